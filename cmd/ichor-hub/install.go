// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/install"
	"ichor.maesh.dev/hub/hub/scheme"
)

// installWithin is how long an upgrade of the hub may take: the Job that runs it has a few minutes more, to pull the image.
const installWithin = 20 * time.Minute

// installOptions are the flags of install.
type installOptions struct {
	kubeconfig, from, to, terminationLog string
	timeout                              time.Duration
}

// newInstallCommand is what the Job of an upgrade runs.
func newInstallCommand() *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Bring the hub of this namespace to the release of this build",
		Long: `Bring the hub that runs in a namespace of a Kubernetes cluster to the release that this build is of.

It is what the Job runs that an operation of kind ichor creates. It applies the definitions, roles and policies of the release, gives the hub's
Deployment the image of it, and returns when all replicas are of the release. What somebody has chosen in the Deployment, its Service and its
policies stays. It may be run again.`,
		Example: `  ichor-hub install --from v0.1.0 --to v0.2.0`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			done, err := o.run(ctx, cmd)
			if err != nil {
				return o.last(err.Error(), err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), done)
			return o.last(done, nil)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the management cluster (default: $KUBECONFIG, then the pod's own access)")
	flags.StringVar(&o.from, "from", "", "version of the hub that is upgraded")
	flags.StringVar(&o.to, "to", "", "version to bring it to, which is that of this build")
	flags.StringVar(&o.terminationLog, "termination-log", "", "file for what is said in the end, as pods have one")
	flags.DurationVar(&o.timeout, "timeout", installWithin, "how long it may take")
	for _, name := range []string{"from", "to"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // The flag is there.
		}
	}
	return cmd
}

func (o *installOptions) run(ctx context.Context, cmd *cobra.Command) (string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	access := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := access.ClientConfig()
	if err != nil {
		return "", fmt.Errorf("finding the management cluster: %w", err)
	}
	namespace, _, err := access.Namespace()
	if err != nil {
		return "", fmt.Errorf("finding the namespace of the hub: %w", err)
	}
	config.QPS = -1 // A few dozen requests, once.
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		return "", fmt.Errorf("connecting to the management cluster: %w", err)
	}
	return install.Run(ctx, install.Options{Client: c, Namespace: namespace, Version: version, From: o.from, To: o.to, Out: cmd.OutOrStdout()})
}

// last leaves the last words where pods have a place for them.
func (o *installOptions) last(words string, err error) error {
	if o.terminationLog == "" {
		return err
	}
	if writeErr := os.WriteFile(o.terminationLog, []byte(words), 0o600); writeErr != nil && err == nil {
		return fmt.Errorf("writing --termination-log: %w", writeErr)
	}
	return err
}
