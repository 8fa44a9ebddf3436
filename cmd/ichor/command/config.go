// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/cmd/ichor/follow"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func newConfigCommand(a *app) *cobra.Command {
	return group("config", "Compare and roll out machine configs", nil, newConfigDiffCommand(a),
		a.startCommand(a.configOrder("rollout", `  ichor config rollout --cluster prod-1 --follow
  ichor config rollout --cluster prod-1 --machine worker-1 --machine worker-2`)))
}

func newConfigDiffCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [MACHINE...]",
		Short: "Show how the machine config of machines differs from the one that is asked for",
		Long: `Show how the machine config of machines differs from the one that the spec of their cluster asks for, and what it takes to bring it in
force: nothing, no reboot, a reboot, or the next upgrade of Talos. Secrets are masked.

MACHINE is the name of a node or of its TalosMachine. What is shown the hub has found out at its last look at the machines. Exit codes: 0
nothing differs, 4 something does, 1 it is not known of some machine, or something else went wrong.`,
		Example:           "  ichor config diff --cluster prod-1\n  ichor config diff worker-1 --cluster prod-1 -o json",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.complete(a.machineNames),
		RunE: a.connected(func(cmd *cobra.Command, args []string) error {
			cluster, err := a.clusterRef()
			if err != nil {
				return err
			}
			response, err := call(cmd.Context(), a, a.connection.clusters.DiffConfig, &pb.DiffConfigRequest{Cluster: cluster, Machines: args})
			if err != nil {
				return err
			}
			if err := a.showConfigDiffs(response); err != nil {
				return err
			}
			return judgeDiffs(response.GetMachines())
		}),
	}
}

func (a *app) showConfigDiffs(response *pb.DiffConfigResponse) error {
	if a.forPeople() {
		for _, machine := range response.GetMachines() {
			a.showConfigDiff(machine)
		}
		return nil
	}
	items := make([]item, len(response.GetMachines()))
	for i, machine := range response.GetMachines() {
		items[i] = a.item(machine, machineResource, machine.GetMachine())
	}
	return a.printList(response, items, "No machines.", func() table { return table{} })
}

// configEffects are what it takes to bring a config in force, in words.
var configEffects = map[string]string{
	string(v1alpha1.ConfigEffectNone): "as it is asked for", string(v1alpha1.ConfigEffectLive): "differs, and needs no reboot",
	string(v1alpha1.ConfigEffectReboot): "differs, and needs a reboot", string(v1alpha1.ConfigEffectUpgrade): "differs, and takes effect at the next upgrade of Talos",
}

func (a *app) showConfigDiff(machine *pb.ConfigDiff) {
	state := configEffects[machine.GetEffect()]
	if trouble := machine.GetTrouble(); trouble != "" {
		state = "not known: " + trouble
	}
	fmt.Fprintf(a.Out, "%s (%s): %s\n", machine.GetMachine().GetName(), word("MACHINE_ROLE_", machine.GetRole()), follow.Plain(state))
	if pending := machine.GetPending(); pending != "" {
		fmt.Fprintf(a.Out, "  Pending: %s\n", follow.Plain(pending))
	}
	for line := range strings.Lines(machine.GetDiff()) {
		fmt.Fprintf(a.Out, "  %s\n", follow.Plain(strings.TrimRight(line, "\n")))
	}
}

// judgeDiffs makes an exit code of what differs.
func judgeDiffs(machines []*pb.ConfigDiff) error {
	var unknown, differ int
	for _, machine := range machines {
		switch effect := machine.GetEffect(); {
		case machine.GetTrouble() != "" || effect == "":
			unknown++
		case effect != string(v1alpha1.ConfigEffectNone) || machine.GetPending() != "":
			differ++
		}
	}
	switch {
	case unknown > 0:
		return errors.New("it is not known of every machine how its config stands")
	case differ > 0:
		return &codedError{code: exitDiffers}
	}
	return nil
}

// configOrder rolls machine configs out.
func (a *app) configOrder(use, example string) *order {
	config := &pb.ConfigParameters{}
	wanted := &pb.OperationOrder{
		Kind: pb.OperationKind_OPERATION_KIND_CONFIG, Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Config{Config: config}},
	}
	var bypass overrides
	return &order{
		use: use, example: example, args: cobra.NoArgs,
		short: "Bring machines to the machine config that the spec of their cluster asks for",
		long: `Bring machines to the machine config that the spec of their cluster asks for (spec.machineConfig of the TalosCluster).

Every machine checks its config first. Then one machine goes, and only when that one has proved itself the others do: control planes one at a
time, then workers, up to --max-unavailable at once. Machines whose change needs a reboot are drained and rebooted; the others are not. What
differs is shown by: ichor config diff. Versions, and the keys of the cluster, are never changed so.`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringVar(&wanted.MaxUnavailable, "max-unavailable", "", "how many workers may be away at once, as a number or a percentage (default 1)")
			flags.StringSliceVar(&config.Machines, "machine", nil, "only these machines, by the names of their nodes or TalosMachines; may be given several times")
			bypass.addTo(cmd)
		},
		check: func() (err error) {
			if wanted.Overrides, err = bypass.parse(); err != nil {
				return err
			}
			return checkMaxUnavailable(wanted.GetMaxUnavailable())
		},
		make: func(context.Context, []string) (_ *pb.OperationOrder, err error) {
			wanted.Cluster, err = a.clusterRef()
			return wanted, err
		},
	}
}
