// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/manager"
	"ichor.maesh.dev/hub/hub/standalone"
)

// The flags of the standalone API server's own audit, which is not the hub's (--audit-max-age).
const (
	apiServerAuditLog    = "api-server-audit-log"
	apiServerAuditPolicy = "api-server-audit-policy"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	standalone    bool
	dataDir       string
	kubeconfig    string
	metricsListen string
	healthListen  string
	pprofListen   string
	imageFactory  string
	namespace     string
	watchFilter   string
	deadlines     map[string]string
	storage       storageOptions
	audit         standalone.Audit // Of the standalone API server.
	election      manager.Election
	serving       servingOptions
	log           logOptions
}

func newServeCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the hub",
		Long: `Run the hub.

On Kubernetes it works with the cluster that --kubeconfig, $KUBECONFIG or its own pod names, and several replicas
elect a leader; each of them serves on --listen. With --standalone it brings its own API server, which keeps
everything in --data-dir, and prints where it serves and a link that signs in once.`,
		Example: `  ichor-hub serve --standalone --data-dir /var/lib/ichor-hub
  ichor-hub serve --tls-cert-file tls.crt --tls-private-key-file tls.key
  ichor-hub serve --kubeconfig ~/.kube/config --listen 0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := o.log.setUp(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return o.run(cmd, log)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.standalone, "standalone", false, "bring an API server instead of using a cluster's")
	flags.StringVar(&o.dataDir, "data-dir", "", "directory of the standalone API server, created when missing")
	flags.StringVar(&o.audit.Log, apiServerAuditLog, "", "file that the standalone API server writes its audit to, in lines of JSON, as --"+apiServerAuditPolicy+" says; a gigabyte of it is kept")
	flags.StringVar(&o.audit.Policy, apiServerAuditPolicy, "", "file with the audit policy (audit.k8s.io/v1) of the standalone API server")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the management cluster (default: $KUBECONFIG, then the pod's own access)")
	flags.StringVar(&o.metricsListen, "metrics-bind-address", "0", `address of the metrics endpoint, such as 127.0.0.1:8080; "0" turns it off. On another address than a loopback one it is HTTPS, and for those whom the management API lets get /metrics`)
	flags.StringVar(&o.healthListen, "health-bind-address", "0", `address of the health endpoint, such as 127.0.0.1:8081; "0" turns it off`)
	flags.StringVar(&o.pprofListen, "pprof-bind-address", "0", `address of the endpoint for Go profiles, such as 127.0.0.1:8082; "0" turns it off`)
	flags.StringVar(&o.imageFactory, "image-factory", manager.DefaultImageFactory, "host, and path if any, of the Image Factory that machines pull installers from")
	flags.StringVar(&o.namespace, "namespace", "", "the only namespace of the management cluster that the hub works in (default: all)")
	flags.StringVar(&o.watchFilter, "watch-filter", "", "work only on clusters with the label "+clusterv1.WatchLabel+" of this value, on the TalosCluster or else on the Cluster (default: on all)")
	flags.StringToStringVar(&o.deadlines, "step-deadline", nil, "deadline of a step instead of its own, such as Draining=30m; may be repeated")
	o.storage.addTo(flags)
	o.addElectionTo(flags)
	o.serving.addTo(cmd)
	o.log.addTo(flags)
	cmd.MarkFlagsRequiredTogether("standalone", "data-dir")
	cmd.MarkFlagsRequiredTogether(apiServerAuditLog, apiServerAuditPolicy)
	cmd.MarkFlagsMutuallyExclusive("standalone", "kubeconfig")
	return cmd
}

// addElectionTo adds the flags of the election, which are named as Kubernetes' own controllers name them.
func (o *serveOptions) addElectionTo(flags *pflag.FlagSet) {
	usual := manager.DefaultElection
	flags.DurationVar(&o.election.LeaseDuration, "leader-elect-lease-duration", usual.LeaseDuration, "how long other replicas wait for a leader that gives no sign of life")
	flags.DurationVar(&o.election.RenewDeadline, "leader-elect-renew-deadline", usual.RenewDeadline, "how long a leader tries to give a sign of life before it ends; less than the lease duration")
	flags.DurationVar(&o.election.RetryPeriod, "leader-elect-retry-period", usual.RetryPeriod, "pause between attempts to lead, or to give a sign of life; less than the renew deadline")
	flags.StringVar(&o.election.Namespace, "leader-elect-resource-namespace", "", "namespace of the Lease (default: the namespace of the pod, or of the kubeconfig's context)")
}

// checkElection refuses durations with which nobody could keep the lead.
func (o *serveOptions) checkElection() error {
	switch e := o.election; {
	case e.RetryPeriod <= 0:
		return fmt.Errorf("--leader-elect-retry-period %s: want more than 0s", e.RetryPeriod)
	case float64(e.RenewDeadline) <= leaderelection.JitterFactor*float64(e.RetryPeriod):
		return fmt.Errorf("--leader-elect-renew-deadline %s: want more than %g times --leader-elect-retry-period %s", e.RenewDeadline, leaderelection.JitterFactor, e.RetryPeriod)
	case e.LeaseDuration <= e.RenewDeadline:
		return fmt.Errorf("--leader-elect-lease-duration %s: want more than --leader-elect-renew-deadline %s", e.LeaseDuration, e.RenewDeadline)
	}
	return nil
}

// checkShare refuses a share of the clusters that would be none.
func (o *serveOptions) checkShare() error {
	if o.namespace != "" {
		if problems := validation.IsDNS1123Label(o.namespace); len(problems) > 0 {
			return fmt.Errorf("--namespace %q: %s", o.namespace, problems[0])
		}
	}
	if problems := validation.IsValidLabelValue(o.watchFilter); len(problems) > 0 {
		return fmt.Errorf("--watch-filter %q: %s", o.watchFilter, problems[0])
	}
	return nil
}

func (o serveOptions) run(cmd *cobra.Command, log logr.Logger) (err error) {
	if !o.standalone {
		if err := o.checkElection(); err != nil {
			return err
		}
		if o.audit != (standalone.Audit{}) {
			return fmt.Errorf("--%s %s: it is for --standalone; the API server of a cluster has flags of its own", apiServerAuditLog, o.audit.Log)
		}
	}
	if err := o.checkShare(); err != nil {
		return err
	}
	if err := o.serving.check(o.standalone); err != nil {
		return err
	}
	listener, err := o.serving.open(cmd.Context())
	if err != nil {
		return err
	}
	if listener != nil {
		defer listener.Close() //nolint:errcheck // The server has closed it, unless nothing came so far.
	}
	if o.standalone {
		return o.runStandalone(cmd, log, listener)
	}
	return o.runOnKubernetes(cmd.Context(), listener)
}

// runOnKubernetes runs the hub beside its other replicas.
func (o serveOptions) runOnKubernetes(ctx context.Context, listener net.Listener) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	access := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := access.ClientConfig()
	if err != nil {
		return fmt.Errorf("finding the management cluster: %w", err)
	}
	if o.election.Namespace == "" {
		if o.election.Namespace, _, err = access.Namespace(); err != nil {
			return fmt.Errorf("finding the namespace of the election: %w", err)
		}
	}
	serving, err := o.serving.onKubernetes(ctx, config, o.election.Namespace, listener)
	if err != nil {
		return err
	}
	return o.runHub(ctx, config, &o.election, serving, o.election.Namespace)
}

// runStandalone runs the hub on an API server of its own: the server is there before the hub and goes after it.
func (o serveOptions) runStandalone(cmd *cobra.Command, log logr.Logger, listener net.Listener) (err error) {
	instance, err := standalone.Start(cmd.Context(), standalone.Options{DataDir: o.dataDir, Hosts: o.serving.hosts(), Audit: o.audit, Log: log.WithName("standalone")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, instance.Stop()) }()
	fmt.Fprintf(cmd.OutOrStdout(), "Ready: export KUBECONFIG=%s\n", instance.Kubeconfig())
	serving, err := o.serving.standalone(cmd.OutOrStdout(), o.dataDir, instance, listener)
	if err != nil {
		return err
	}

	// A hub without its API server has nothing to do.
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	go func() { cancel(instance.Wait()) }()
	if err := o.runHub(ctx, instance.RESTConfig(), nil, serving, metav1.NamespaceDefault); err != nil {
		return err
	}
	if cmd.Context().Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

// runHub runs the hub on a management cluster until ctx is done. Standalone, the lock of the data directory is the leadership. namespace is
// where the hub's own IchorInstallation is.
func (o serveOptions) runHub(ctx context.Context, config *rest.Config, election *manager.Election, serving *manager.Serving, namespace string) error {
	deadlines, err := parseDeadlines(o.deadlines)
	if err != nil {
		return err
	}
	return manager.Run(ctx, config, manager.Options{
		MetricsBindAddress: o.metricsListen,
		HealthBindAddress:  o.healthListen,
		PprofBindAddress:   o.pprofListen,
		Election:           election,
		ImageFactory:       o.imageFactory,
		Namespace:          o.namespace,
		WatchFilter:        o.watchFilter,
		Deadlines:          deadlines,
		Storage:            o.storage.opener(o.dataDir),
		Serve:              serving,
		Installation:       manager.Installation{Namespace: namespace, Version: version, Standalone: o.standalone},
	})
}

// parseDeadlines reads --step-deadline.
func parseDeadlines(flags map[string]string) (map[v1alpha1.OperationStep]time.Duration, error) {
	deadlines := make(map[v1alpha1.OperationStep]time.Duration, len(flags))
	for step, text := range flags {
		deadline, err := time.ParseDuration(text)
		if err != nil || deadline <= 0 {
			return nil, fmt.Errorf("--step-deadline %s=%s: %q is not a duration such as 15m", step, text, text)
		}
		deadlines[v1alpha1.OperationStep(step)] = deadline
	}
	return deadlines, nil
}
