// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"

	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// kubernetesOrder upgrades Kubernetes.
func (a *app) kubernetesOrder(use, example string) *order {
	wanted := &pb.OperationOrder{Kind: pb.OperationKind_OPERATION_KIND_KUBERNETES, Target: &pb.OperationTarget{}}
	var bypass overrides
	return &order{
		use: use, example: example,
		short: "Upgrade Kubernetes on all machines of a cluster",
		long: `Upgrade Kubernetes on all machines of a cluster.

Everything is checked, and every image pulled, before the first change. Then API servers, controller managers and schedulers are
brought to the version, each on all control planes before the next; then kubelets, control planes one at a time and workers up to
--max-unavailable at once; and last the bootstrap manifests of Talos, with kube-proxy. Nodes are drained for another minor version
only. Workers that are held are skipped.`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&wanted.MaxUnavailable, "max-unavailable", "", "how many workers may be away at once, as a number or a percentage (default 1)")
			bypass.addTo(cmd)
		},
		check: func() (err error) {
			if wanted.Overrides, err = bypass.parse(); err != nil {
				return err
			}
			return checkMaxUnavailable(wanted.GetMaxUnavailable())
		},
		make: func(_ context.Context, args []string) (_ *pb.OperationOrder, err error) {
			wanted.Target.KubernetesVersion = args[0]
			wanted.Cluster, err = a.clusterRef()
			return wanted, err
		},
	}
}
