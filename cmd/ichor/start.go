// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/hub/service"
)

// startFlags are the flags of every command that starts an operation.
type startFlags struct{ follow, yes, dryRun bool }

func (f *startFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.follow, "follow", false, "follow the operation until it ends")
	flags.BoolVar(&f.yes, "yes", false, "do not ask for a confirmation")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan and change nothing")
}

func newUpgradeCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "upgrade", Short: "Upgrade a cluster", Args: cobra.NoArgs}
	cmd.AddCommand(newUpgradeTalosCommand(c))
	return cmd
}

func newUpgradeTalosCommand(c *cli) *cobra.Command {
	var start startFlags
	var maxUnavailable string
	cmd := &cobra.Command{
		Use:   "talos VERSION",
		Short: "Upgrade Talos on all machines of a cluster",
		Long: `Upgrade Talos on all machines of a cluster.

Every machine pulls the image first. Then control planes go one at a time and the leader of etcd last, then workers, up to
--max-unavailable at once. Machines that are held are skipped.`,
		Example: `  ichor upgrade talos v1.14.1 --cluster prod-1 --follow
  ichor upgrade talos 1.14.1 --cluster prod-1 --max-unavailable 25% --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			budget, err := parseMaxUnavailable(maxUnavailable)
			if err != nil {
				return err
			}
			return c.start(cmd, start, func() (*service.Start, error) {
				key, err := c.clusterKey()
				if err != nil {
					return nil, err
				}
				return c.planTalosUpgrade(cmd.Context(), key, args[0], budget)
			})
		},
	}
	cmd.Flags().StringVar(&maxUnavailable, "max-unavailable", "", "how many workers may be away at once, as a number or a percentage (default 1)")
	start.addTo(cmd)
	return cmd
}

func (c *cli) planTalosUpgrade(ctx context.Context, cluster client.ObjectKey, version string, budget *intstr.IntOrString) (*service.Start, error) {
	normal, err := versions.Normalize(version)
	if err != nil {
		return nil, err
	}
	return c.service.Plan(ctx, service.Order{
		Cluster: cluster,
		Spec:    v1alpha1.TalosOperationSpec{ClusterName: cluster.Name, Kind: v1alpha1.TalosKind, MaxUnavailable: budget},
		Target:  v1alpha1.OperationTarget{TalosVersion: normal},
	})
}

// parseMaxUnavailable leaves the judgement to the API server, and only tells numbers from percentages.
func parseMaxUnavailable(text string) (*intstr.IntOrString, error) {
	if text == "" {
		return nil, nil
	}
	parsed := intstr.Parse(text)
	if parsed.Type == intstr.String && !strings.HasSuffix(text, "%") {
		return nil, usageError("--max-unavailable %q is neither a number nor a percentage such as 25%%", text)
	}
	return &parsed, nil
}

func newNodeCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Act on one machine", Args: cobra.NoArgs}
	cmd.AddCommand(newRebootCommand(c))
	return cmd
}

var rebootModes = map[string]v1alpha1.RebootMode{
	"": "", "default": v1alpha1.RebootModeDefault, "powercycle": v1alpha1.RebootModePowerCycle, "force": v1alpha1.RebootModeForce,
}

func newRebootCommand(c *cli) *cobra.Command {
	var start startFlags
	var mode string
	cmd := &cobra.Command{
		Use:   "reboot MACHINE",
		Short: "Drain and reboot a machine",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, ok := rebootModes[mode]
			if !ok {
				return usageError("--mode %q is not one of default, powercycle, force", mode)
			}
			return c.start(cmd, start, func() (*service.Start, error) {
				machine, err := c.service.Machine(cmd.Context(), c.namespace, c.cluster, args[0])
				if err != nil {
					return nil, err
				}
				return c.service.Plan(cmd.Context(), service.Order{
					Cluster: client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName},
					Spec: v1alpha1.TalosOperationSpec{
						ClusterName: machine.Spec.ClusterName, Kind: v1alpha1.NodeKind,
						Node: &v1alpha1.NodeParameters{Machine: machine.Name, Action: v1alpha1.RebootAction, RebootMode: chosen},
					},
				})
			})
		},
	}
	cmd.Flags().StringVar(&mode, "mode", "", "how to reboot: default, powercycle or force")
	start.addTo(cmd)
	return cmd
}

// start shows a plan, asks, and starts it.
func (c *cli) start(cmd *cobra.Command, flags startFlags, prepare func() (*service.Start, error)) error {
	if err := c.connect(); err != nil {
		return err
	}
	start, err := prepare()
	if err != nil {
		return err
	}
	if start.AtTarget() {
		fmt.Fprintf(c.err, "Every machine of cluster %s that is not held runs Talos %s already: nothing to do.\n", start.Spec.ClusterName, start.Plan.Target.TalosVersion)
		return nil
	}
	c.showPlan(start)
	if len(start.Refusals) > 0 {
		return &service.RefusedError{Refusals: start.Refusals}
	}
	if flags.dryRun {
		fmt.Fprintln(c.err, "Dry run: nothing was changed.")
		return nil
	}
	if err := c.confirm("Start?", flags.yes); err != nil {
		return err
	}
	created, err := c.service.Create(cmd.Context(), start, service.CreateOptions{})
	if err != nil {
		return err
	}
	op := created.Operation
	if c.output != outputTable {
		if err := c.printObject(op); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(c.out, "Operation %s is created.\n", op.Name)
	}
	if !flags.follow {
		fmt.Fprintf(c.err, "Follow it with: ichor operation watch %s\n", op.Name)
		return nil
	}
	return c.follow(cmd.Context(), client.ObjectKeyFromObject(op))
}

// showPlan prints what would be done, in the order in which it would be.
func (c *cli) showPlan(start *service.Start) {
	fmt.Fprintf(c.err, "Cluster %s: %s\n", start.Spec.ClusterName, purpose(start))
	for i, stage := range start.Plan.Stages {
		fmt.Fprintf(c.err, "  %d. %s %s\n", i+1, stage.Name, batch(start.Spec, stage))
		for _, name := range stage.Machines {
			fmt.Fprintf(c.err, "       %s\n", machineLine(start, name))
		}
	}
	for _, held := range start.Plan.Held {
		fmt.Fprintf(c.err, "  held, skipped: %s\n", held)
	}
	for _, warning := range start.Plan.Warnings {
		fmt.Fprintf(c.err, "  Warning: %s\n", warning.Message)
	}
}

func purpose(start *service.Start) string {
	if start.Spec.Kind == v1alpha1.NodeKind {
		return fmt.Sprintf("%s of %s", strings.ToLower(string(start.Spec.Node.Action)), start.Spec.Node.Machine)
	}
	return "upgrade Talos to " + start.Plan.Target.TalosVersion
}

func batch(spec v1alpha1.TalosOperationSpec, stage plan.Stage) string {
	switch {
	case !stage.Batch.Tiered:
		return fmt.Sprintf("(up to %d at once)", stage.Batch.Parallel)
	case len(stage.Machines) == 1:
		return "(the machine is drained and reboots)"
	}
	workers := "1"
	if spec.MaxUnavailable != nil {
		workers = spec.MaxUnavailable.String()
	}
	return fmt.Sprintf("(control planes one at a time, then up to %s workers at once; machines are drained and reboot)", workers)
}

func machineLine(start *service.Start, name string) string {
	machine := start.Facts.Machine(name)
	if machine == nil {
		return name
	}
	if start.Spec.Kind != v1alpha1.TalosKind {
		return fmt.Sprintf("%s (%s)", name, machine.Spec.Role)
	}
	return fmt.Sprintf("%s (%s) %s -> %s", name, machine.Spec.Role, machine.Status.TalosVersion, start.Plan.Target.TalosVersion)
}
