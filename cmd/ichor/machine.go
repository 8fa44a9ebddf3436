// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

func newMachineCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "machine", Short: "List machines, approve them, hold them back", Aliases: []string{"machines"}, Args: cobra.NoArgs}
	cmd.AddCommand(newMachineListCommand(c), newApproveCommand(c), newHoldCommand(c), newUnholdCommand(c))
	return cmd
}

func newMachineListCommand(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List machines, of one cluster with --cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.connect(); err != nil {
				return err
			}
			options := []client.ListOption{c.within(all)}
			if c.cluster != "" {
				options = append(options, client.MatchingLabels{clusterv1.ClusterNameLabel: c.cluster})
			}
			list := &v1alpha1.TalosMachineList{}
			if err := c.service.Client.List(cmd.Context(), list, options...); err != nil {
				return fmt.Errorf("listing machines: %w", err)
			}
			return c.printList(list, "No machines.", func() table { return machineTable(list.Items) })
		},
	}
	addAllNamespaces(cmd, &all)
	return cmd
}

func machineTable(machines []v1alpha1.TalosMachine) table {
	t := table{header: []string{"NAME", "CLUSTER", "NODE", "ROLE", "READY", "TALOS", "KUBELET", "ADDRESS", "NOTES", "AGE"}}
	for i := range machines {
		machine := &machines[i]
		t.rows = append(t.rows, []string{
			machine.Name, machine.Spec.ClusterName, machine.Status.NodeName, string(machine.Spec.Role),
			statusOf(machine.Status.Conditions, v1alpha1.MachineReadyCondition), machine.Status.TalosVersion, machine.Status.KubeletVersion,
			machine.Spec.Address, machineNotes(machine), age(machine.CreationTimestamp, time.Now()),
		})
	}
	slices.SortFunc(t.rows, func(a, b []string) int { return slices.Compare([]string{a[1], a[3], a[0]}, []string{b[1], b[3], b[0]}) })
	return t
}

func machineNotes(machine *v1alpha1.TalosMachine) string {
	switch {
	case machine.Spec.Approval != v1alpha1.Approved:
		return "pending approval"
	case machine.Held() && machine.Annotations[v1alpha1.UpgradeHoldAnnotation] != "":
		return "held: " + machine.Annotations[v1alpha1.UpgradeHoldAnnotation]
	case machine.Held():
		return "held"
	}
	return ""
}

func newApproveCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "approve MACHINE",
		Short: "Let the hub work on a machine that it found later",
		Long: `Let the hub work on a machine that it found after the first discovery of its cluster.

Until then the machine is shown and never touched. MACHINE is the name of its node or of its TalosMachine.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.connect(); err != nil {
				return err
			}
			machine, err := c.service.Machine(cmd.Context(), c.namespace, c.cluster, args[0])
			if err != nil {
				return err
			}
			switch changed, err := c.service.Approve(cmd.Context(), machine); {
			case err != nil:
				return err
			case !changed:
				fmt.Fprintf(c.out, "Machine %s was approved before.\n", machine.Name)
			default:
				fmt.Fprintf(c.out, "Machine %s is approved: operations take it from now on.\n", machine.Name)
			}
			return nil
		},
	}
}

func newHoldCommand(c *cli) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "hold MACHINE",
		Short: "Make upgrades skip a machine",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.setHold(cmd, args[0], true, note)
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for people")
	return cmd
}

func newUnholdCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "unhold MACHINE",
		Short: "Let upgrades take a machine again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.setHold(cmd, args[0], false, "")
		},
	}
}

func (c *cli) setHold(cmd *cobra.Command, name string, held bool, note string) error {
	if err := c.connect(); err != nil {
		return err
	}
	machine, err := c.service.Machine(cmd.Context(), c.namespace, c.cluster, name)
	if err != nil {
		return err
	}
	if _, err := c.service.SetHold(cmd.Context(), machine, held, note); err != nil {
		return err
	}
	if held {
		fmt.Fprintf(c.out, "Machine %s is held: upgrades skip it until: ichor machine unhold %[1]s\n", machine.Name)
	} else {
		fmt.Fprintf(c.out, "Machine %s is not held.\n", machine.Name)
	}
	return nil
}
