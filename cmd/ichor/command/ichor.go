// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"

	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// ichorOrder upgrades the hub itself.
func (a *app) ichorOrder(use, example string) *order {
	wanted := &pb.OperationOrder{Kind: pb.OperationKind_OPERATION_KIND_ICHOR, Target: &pb.OperationTarget{}}
	return &order{
		use: use, example: example,
		short: "Upgrade the hub itself",
		long: `Upgrade the hub itself, where it runs on Kubernetes and nothing else keeps its Deployment as it is.

The spec of the IchorInstallation asks for the version first. Then a Job runs the image of that version, which applies the manifests of its
release and replaces the hub, one replica after the other. Operations on other clusters go on under the next leader. The cluster that is named
lends its lock, so that nothing else happens on it meanwhile; nothing is done on it.

A hub that was installed by Helm or clusterctl, or that Argo CD or Flux keeps as it is in Git, is upgraded there; so is a standalone one, by
another binary.`,
		flags: func(*cobra.Command) {},
		check: func() error { return nil },
		make: func(_ context.Context, args []string) (_ *pb.OperationOrder, err error) {
			wanted.Target.IchorVersion = args[0]
			wanted.Cluster, err = a.clusterRef()
			return wanted, err
		},
	}
}
