// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/cobra"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// restoreOrder puts a cluster back to a snapshot of its etcd.
func (a *app) restoreOrder(use, example string) *order {
	parameters := &pb.EtcdRestoreParameters{}
	wanted := &pb.OperationOrder{
		Kind: pb.OperationKind_OPERATION_KIND_ETCD_RESTORE, Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_EtcdRestore{EtcdRestore: parameters}},
	}
	var safety, none, raw bool
	var bypass overrides
	return &order{
		use: use, example: example,
		short: "Put a cluster back to a snapshot of its etcd",
		long: `Put a cluster back to a snapshot of its etcd: what was written to the Kubernetes API since then is lost.

Everything is checked before anything is touched: that what is stored is whole, that its etcd is not newer than that which runs, that CA and
keys are those of the snapshot, and that every control plane answers. Then the etcd of every control plane is wiped, one of them begins
anew with the snapshot, and the others join it. The Kubernetes API need not work for that: it is how a cluster that has lost its etcd
comes back.

Whether a snapshot of what runs now is stored first has to be said: --safety-snapshot or --no-safety-snapshot. The first one needs an etcd
that still answers.`,
		names: a.clusterNames,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringVar(&parameters.SnapshotName, "from", "", "the snapshot, as ichor snapshot list names it")
			flags.BoolVar(&safety, "safety-snapshot", false, "store a snapshot of what runs now first")
			flags.BoolVar(&none, "no-safety-snapshot", false, "store no snapshot of what runs now: there is no way back")
			flags.BoolVar(&raw, "raw-copy", false, "take a database that was copied from a disk, which has no hash, on your word that it is whole")
			bypass.addTo(cmd)
			_ = cmd.RegisterFlagCompletionFunc("from", func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
				return a.offer(cmd, a.snapshotNames, begin), cobra.ShellCompDirectiveNoFileComp
			}) // The flag was made just now.
		},
		check: func() (err error) {
			switch {
			case parameters.GetSnapshotName() == "":
				return usageError("say which snapshot: --from SNAPSHOT; see: ichor snapshot list")
			case safety == none:
				return usageError("say whether a snapshot of what runs now is stored first: either --safety-snapshot or --no-safety-snapshot")
			}
			if parameters.SafetySnapshot = "None"; safety {
				parameters.SafetySnapshot = "Take"
			}
			if parameters.Integrity = ""; raw {
				parameters.Integrity = "RawCopy"
			}
			wanted.Overrides, err = bypass.parse()
			return err
		},
		make: a.ofCluster(wanted),
	}
}
