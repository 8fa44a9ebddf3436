// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"

	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// powerOrder stops or starts the cluster that is the argument.
func powerOrder(action string) (*pb.OperationOrder, *pb.ShutdownParameters) {
	parameters := &pb.ShutdownParameters{Action: action}
	return &pb.OperationOrder{
		Kind: pb.OperationKind_OPERATION_KIND_SHUTDOWN, Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Shutdown{Shutdown: parameters}},
	}, parameters
}

// shutdownOrder powers every machine of a cluster off.
func (a *app) shutdownOrder(use, example string) *order {
	wanted, parameters := powerOrder("Stop")
	var snapshot, none bool
	var bypass overrides
	return &order{
		use: use, example: example,
		short: "Power every machine of a cluster off",
		long: `Power every machine of a cluster off, until people power them on again.

Every node is cordoned, and which ones were before is kept in mind. Then workers are powered off, and after them control planes, one
at a time and the leader of etcd last. Nothing is drained: pods would have nowhere to go. Afterwards the cluster holds no lock, and
takes no other operation until it is started with: ichor cluster start NAME

Whether a snapshot of etcd is stored first has to be said: --snapshot or --no-snapshot.`,
		names: a.clusterNames,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.BoolVar(&snapshot, "snapshot", false, "store a snapshot of etcd first")
			flags.BoolVar(&none, "no-snapshot", false, "store no snapshot of etcd")
			flags.StringVar(&wanted.MaxUnavailable, "max-unavailable", "", "how many workers go at once, as a number or a percentage (default: all)")
			bypass.addTo(cmd)
		},
		check: func() (err error) {
			if snapshot == none {
				return usageError("say whether a snapshot of etcd is stored first: either --snapshot or --no-snapshot")
			}
			if parameters.Snapshot = "None"; snapshot {
				parameters.Snapshot = "Take"
			}
			if wanted.Overrides, err = bypass.parse(); err != nil {
				return err
			}
			return checkMaxUnavailable(wanted.GetMaxUnavailable())
		},
		make: a.ofCluster(wanted),
	}
}

// powerOnOrder takes a cluster back into service.
func (a *app) powerOnOrder(use, example string) *order {
	wanted, _ := powerOrder("Start")
	return &order{
		use: use, example: example,
		short: "Take a cluster back into service that was shut down",
		long: `Take a cluster back into service that was shut down.

Power its machines on, control planes first: the hub cannot do that. It waits until all of them answer, however long that takes, until
etcd, the Kubernetes API and every node are well, and uncordons exactly the nodes that the shutdown has cordoned.`,
		names: a.clusterNames,
		flags: func(*cobra.Command) {},
		check: func() error { return nil },
		make:  a.ofCluster(wanted),
	}
}

// ofCluster makes an order about the cluster that is the argument.
func (a *app) ofCluster(wanted *pb.OperationOrder) func(context.Context, []string) (*pb.OperationOrder, error) {
	return func(_ context.Context, args []string) (_ *pb.OperationOrder, err error) {
		wanted.Cluster, err = clusterResource.parse(args[0], a.namespace)
		return wanted, err
	}
}
