// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// removeOrder takes a machine out of its cluster for good.
func (a *app) removeOrder(use, command string) *order {
	remove := &pb.RemoveParameters{}
	node := &pb.NodeParameters{Action: "Remove", Remove: remove}
	wanted := &pb.OperationOrder{
		Kind: pb.OperationKind_OPERATION_KIND_NODE, Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Node{Node: node}},
	}
	var bypass overrides
	var dead bool
	return &order{
		use: use, short: "Take a machine out of its cluster for good", names: a.machineNames,
		long: `Take a machine out of its cluster for good.

The machine is drained and its etcd member leaves, which another control plane has to confirm. Then it is wiped, and its node and its TalosMachine
are deleted. --reason is written on the TalosMachine first (spec.removal); where Git or kubectl has done that, it may be left out.

A machine that does not answer is removed with --dead, which says that it is lost: it is asked for nothing, and another control plane removes its
etcd member. One that still answers is refused. If it comes back later it belongs to nothing, and has to be wiped.

MACHINE is the name of its node or of its TalosMachine.`,
		example: fmt.Sprintf(`  %[1]s worker-4 --cluster prod-1 --reason "returned to the pool"
  %[1]s cp-2 --cluster prod-1 --dead --reason "mainboard"`, command),
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&remove.Reason, "reason", "", "why, for people and the audit")
			cmd.Flags().BoolVar(&dead, "dead", false, "the machine is lost: ask it for nothing")
			bypass.addTo(cmd)
		},
		check: func() (err error) {
			if remove.Manner = ""; dead {
				remove.Manner = "Dead"
			}
			wanted.Overrides, err = bypass.parse()
			return err
		},
		make: func(ctx context.Context, args []string) (*pb.OperationOrder, error) {
			return a.locateNode(ctx, wanted, node, args)
		},
	}
}
