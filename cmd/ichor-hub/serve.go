// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/manager"
	"ichor.maesh.dev/hub/hub/standalone"
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
	deadlines     map[string]string
	log           logOptions
}

func newServeCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the hub",
		Long: `Run the hub.

On Kubernetes it works with the cluster that --kubeconfig, $KUBECONFIG or its own pod names, and several replicas
elect a leader. With --standalone it brings its own API server, which keeps everything in --data-dir.`,
		Example: `  ichor-hub serve --standalone --data-dir /var/lib/ichor-hub
  ichor-hub serve --kubeconfig ~/.kube/config`,
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
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the management cluster (default: $KUBECONFIG, then the pod's own access)")
	flags.StringVar(&o.metricsListen, "metrics-bind-address", "0", `address of the metrics endpoint, such as 127.0.0.1:8080; "0" turns it off`)
	flags.StringVar(&o.healthListen, "health-bind-address", "0", `address of the health endpoint, such as 127.0.0.1:8081; "0" turns it off`)
	flags.StringVar(&o.pprofListen, "pprof-bind-address", "0", `address of the endpoint for Go profiles, such as 127.0.0.1:8082; "0" turns it off`)
	flags.StringVar(&o.imageFactory, "image-factory", manager.DefaultImageFactory, "host, and path if any, of the Image Factory that machines pull installers from")
	flags.StringToStringVar(&o.deadlines, "step-deadline", nil, "deadline of a step instead of its own, such as Draining=30m; may be repeated")
	o.log.addTo(flags)
	cmd.MarkFlagsRequiredTogether("standalone", "data-dir")
	cmd.MarkFlagsMutuallyExclusive("standalone", "kubeconfig")
	return cmd
}

func (o serveOptions) run(cmd *cobra.Command, log logr.Logger) error {
	if o.standalone {
		return o.runStandalone(cmd, log)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("finding the management cluster: %w", err)
	}
	return o.runHub(cmd.Context(), config)
}

// runStandalone runs the hub on an API server of its own: the server is there before the hub and goes after it.
func (o serveOptions) runStandalone(cmd *cobra.Command, log logr.Logger) (err error) {
	instance, err := standalone.Start(cmd.Context(), standalone.Options{DataDir: o.dataDir, Log: log.WithName("standalone")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, instance.Stop()) }()
	fmt.Fprintf(cmd.OutOrStdout(), "Ready: export KUBECONFIG=%s\n", instance.Kubeconfig())

	// A hub without its API server has nothing to do.
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	go func() { cancel(instance.Wait()) }()
	if err := o.runHub(ctx, instance.RESTConfig()); err != nil {
		return err
	}
	if cmd.Context().Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

// runHub runs the hub on a management cluster until ctx is done. Standalone, the lock of the data directory is the leadership.
func (o serveOptions) runHub(ctx context.Context, config *rest.Config) error {
	deadlines, err := parseDeadlines(o.deadlines)
	if err != nil {
		return err
	}
	return manager.Run(ctx, config, manager.Options{
		MetricsBindAddress: o.metricsListen,
		HealthBindAddress:  o.healthListen,
		PprofBindAddress:   o.pprofListen,
		LeaderElection:     !o.standalone,
		ImageFactory:       o.imageFactory,
		Deadlines:          deadlines,
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
