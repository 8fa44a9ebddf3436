// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func newMachineCommand(a *app) *cobra.Command {
	return group("machine", "List machines, approve them, hold them back, have them join and leave", []string{"machines"},
		newMachineListCommand(a), newMachineGetCommand(a), newApproveCommand(a), newHoldCommand(a), newUnholdCommand(a), newJoinCommand(a), a.startCommand(a.removeOrder("remove MACHINE", "ichor machine remove")))
}

func newMachineListCommand(a *app) *cobra.Command {
	var all bool
	request := &pb.ListMachinesRequest{}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List machines, of one cluster with --cluster",
		Args:    cobra.NoArgs,
		RunE: a.connected(func(cmd *cobra.Command, _ []string) error {
			var err error
			if request.Namespaces, request.Clusters, err = a.scope(all); err != nil {
				return err
			}
			list, err := a.listMachines(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("listing machines: %w", err)
			}
			items := make([]item, len(list.GetMachines()))
			for i, machine := range list.GetMachines() {
				items[i] = a.item(machine, machineResource, machine.GetRef())
			}
			if err := a.printList(list, items, "No machines.", func() table { return a.machineTable(list.GetMachines(), all) }); err != nil {
				return err
			}
			return a.partial(list.GetFailures())
		}),
	}
	addAllNamespaces(cmd, &all)
	addSelection(cmd, &request.LabelSelector, &request.Text, &request.OrderBy, "cluster, name, role, attention")
	return cmd
}

func (a *app) machineTable(machines []*pb.Machine, all bool) table {
	t := table{columns: columns("NAME", "CLUSTER", "NODE", "ROLE", "READY", "TALOS", "KUBELET", "ADDRESS", "NOTES", "AGE", "+SCHEMATIC", "+UUID", "+OPERATION")}
	namespaces := make([]string, len(machines))
	for i, m := range machines {
		namespaces[i] = m.GetRef().GetNamespace()
		t.rows = append(t.rows, []string{
			m.GetRef().GetName(), m.GetCluster().GetName(), m.GetNode(), word("MACHINE_ROLE_", m.GetRole()),
			statusOf(m.GetConditions(), v1alpha1.MachineReadyCondition), m.GetTalosVersion(), m.GetKubernetesVersion(),
			m.GetAddress(), machineNotes(m), a.age(m.GetCreateTime()), m.GetSchematicId(), m.GetUuid(), m.GetOperation().GetName(),
		})
	}
	return withNamespace(t, all, namespaces)
}

func machineNotes(m *pb.Machine) string {
	switch {
	case !m.GetApproved() && m.GetJoining():
		return "to join, pending approval"
	case !m.GetApproved():
		return "pending approval"
	case m.GetJoining() && m.GetStep() == "":
		return "to join"
	case m.GetRemoving() && m.GetStep() == "":
		return "to be removed"
	case m.GetHeld() && m.GetHoldNote() != "":
		return "held: " + m.GetHoldNote()
	case m.GetHeld():
		return "held"
	}
	return m.GetStep()
}

func newMachineGetCommand(a *app) *cobra.Command {
	return a.onMachine("get MACHINE", "Show a machine", func(_ context.Context, m *pb.Machine) error {
		if !a.forPeople() {
			return a.printItem(a.item(m, machineResource, m.GetRef()))
		}
		if err := a.printTable(a.machineTable([]*pb.Machine{m}, false)); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
		return a.printTable(conditionTable(m.GetConditions()))
	})
}

// onMachine is a command about the machine that its argument names.
func (a *app) onMachine(use, short string, run func(context.Context, *pb.Machine) error) *cobra.Command {
	return &cobra.Command{
		Use:               use,
		Short:             short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(a.machineNames),
		RunE: a.connected(func(cmd *cobra.Command, args []string) error {
			machine, err := a.machine(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return run(cmd.Context(), machine)
		}),
	}
}

func newApproveCommand(a *app) *cobra.Command {
	cmd := a.onMachine("approve MACHINE", "Let the hub work on a machine that it found later", func(ctx context.Context, m *pb.Machine) error {
		response, err := call(ctx, a, a.connection.clusters.ApproveMachine, &pb.ApproveMachineRequest{Ref: m.GetRef()})
		if err != nil {
			return fmt.Errorf("approving machine %s: %w", m.GetRef().GetName(), err)
		}
		if response.GetChanged() && response.GetMachine().GetJoining() {
			return a.did(a.machineResult(response.GetMachine(), m), "Machine %s is approved; have it join with: ichor node join %[1]s", m.GetRef().GetName())
		}
		if response.GetChanged() {
			return a.did(a.machineResult(response.GetMachine(), m), "Machine %s is approved: operations take it from now on.", m.GetRef().GetName())
		}
		return a.did(a.machineResult(response.GetMachine(), m), "Machine %s was approved before.", m.GetRef().GetName())
	})
	cmd.Long = `Let the hub work on a machine that it found after the first discovery of its cluster.

Until then the machine is shown and never touched. MACHINE is the name of its node or of its TalosMachine.`
	return cmd
}

// machineResult is the machine that a hub answered with, or the one that was known.
func (a *app) machineResult(answered, known *pb.Machine) item {
	if answered == nil {
		answered = known
	}
	return a.item(answered, machineResource, known.GetRef())
}

// did prints what came of a command: in words for people, and the object for others.
func (a *app) did(result item, format string, args ...any) error {
	if a.forPeople() {
		fmt.Fprintf(a.Out, format+"\n", args...)
		return nil
	}
	return a.printItem(result)
}

func newHoldCommand(a *app) *cobra.Command {
	var note string
	cmd := a.onMachine("hold MACHINE", "Make upgrades skip a machine", func(ctx context.Context, m *pb.Machine) error {
		return a.hold(ctx, m, true, note)
	})
	cmd.Flags().StringVar(&note, "note", "", "why, for people")
	return cmd
}

func newUnholdCommand(a *app) *cobra.Command {
	return a.onMachine("unhold MACHINE", "Let upgrades take a machine again", func(ctx context.Context, m *pb.Machine) error {
		return a.hold(ctx, m, false, "")
	})
}

func (a *app) hold(ctx context.Context, m *pb.Machine, held bool, note string) error {
	name := m.GetRef().GetName()
	response, err := call(ctx, a, a.connection.clusters.HoldMachine, &pb.HoldMachineRequest{Ref: m.GetRef(), Held: held, Note: note})
	if err != nil {
		return fmt.Errorf("changing the hold of machine %s: %w", name, err)
	}
	if held {
		return a.did(a.machineResult(response.GetMachine(), m), "Machine %s is held: upgrades skip it until: ichor machine unhold %[1]s", name)
	}
	return a.did(a.machineResult(response.GetMachine(), m), "Machine %s is not held.", name)
}

// sorted are names in order, each once.
func sorted(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
