// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/controllers/beside"
	"ichor.maesh.dev/hub/hub/scheme"
)

func newLetGoCommand() *cobra.Command {
	var kubeconfig, namespace string
	cmd := &cobra.Command{
		Use:   "let-go",
		Short: "Take back what hubs have left on Cluster API's objects",
		Long: `Take back what hubs have left on Cluster API's objects, after the last hub of a management cluster was stopped:
hooks that keep control planes from being deleted and topologies from upgrades, annotations that keep health checks from
machines and clusters from being moved, and the condition of Clusters. A hub that runs puts them there again.

It needs the right to list and patch Clusters, their status, Machines and TalosClusters. Doing it again finishes it.`,
		Example: `  kubectl scale deployment ichor-hub -n ichor-system --replicas 0
  ichor-hub let-go --kubeconfig ~/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
			if err != nil {
				return fmt.Errorf("finding the management cluster: %w", err)
			}
			c, err := client.New(config, client.Options{Scheme: scheme.New()})
			if err != nil {
				return fmt.Errorf("connecting to the management cluster: %w", err)
			}
			return beside.LetGo(cmd.Context(), c, namespace)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the management cluster (default: $KUBECONFIG, then the pod's own access)")
	cmd.Flags().StringVar(&namespace, "namespace", "", "the only namespace to do it in (default: all)")
	return cmd
}
