// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

func newOperationCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "operation", Short: "See and steer operations", Aliases: []string{"op", "operations"}, Args: cobra.NoArgs}
	cmd.AddCommand(newOperationListCommand(c),
		c.onOperation("get NAME", "Say what an operation does, why it does not move, and who changes that", c.getOperation),
		c.onOperation("watch NAME", "Follow an operation until it ends", func(ctx context.Context, op *v1alpha1.TalosOperation) error {
			return c.follow(ctx, client.ObjectKeyFromObject(op))
		}),
		c.onOperation("pause NAME", "Stop an operation at the next safe point", c.pauseOperation),
		c.onOperation("resume NAME", "Lift a pause, or retry what failed", c.resumeOperation),
		c.onOperation("delete NAME", "Settle an operation and delete it", c.deleteOperation),
	)
	return cmd
}

// onOperation is a command about the operation that its argument names.
func (c *cli) onOperation(use, short string, run func(context.Context, *v1alpha1.TalosOperation) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.connect(); err != nil {
				return err
			}
			op, err := c.service.Operation(cmd.Context(), client.ObjectKey{Namespace: c.namespace, Name: args[0]})
			if err != nil {
				return err
			}
			return run(cmd.Context(), op)
		},
	}
}

func newOperationListCommand(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List operations, of one cluster with --cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.connect(); err != nil {
				return err
			}
			list := &v1alpha1.TalosOperationList{}
			if err := c.service.Client.List(cmd.Context(), list, c.within(all)); err != nil {
				return fmt.Errorf("listing operations: %w", err)
			}
			list.Items = slices.DeleteFunc(list.Items, func(op v1alpha1.TalosOperation) bool {
				return c.cluster != "" && op.Spec.ClusterName != c.cluster
			})
			slices.SortStableFunc(list.Items, func(a, b v1alpha1.TalosOperation) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
			return c.printList(list, "No operations.", func() table { return operationTable(list.Items) })
		},
	}
	addAllNamespaces(cmd, &all)
	return cmd
}

func operationTable(operations []v1alpha1.TalosOperation) table {
	t := table{header: []string{"NAME", "CLUSTER", "KIND", "PHASE", "STAGE", "MACHINES", "REASON", "AGE"}}
	for i := range operations {
		op := &operations[i]
		t.rows = append(t.rows, []string{
			op.Name, op.Spec.ClusterName, string(op.Spec.Kind), string(op.Status.Phase), op.Status.Stage, progress(op), reason(op),
			age(op.CreationTimestamp, time.Now()),
		})
	}
	return t
}

// progress counts machines that are over and those that were selected so far.
func progress(op *v1alpha1.TalosOperation) string {
	if len(op.Status.Machines) == 0 {
		return ""
	}
	completed := 0
	for _, machine := range op.Status.Machines {
		if machine.Phase == v1alpha1.UnitCompleted {
			completed++
		}
	}
	return fmt.Sprintf("%d/%d", completed, len(op.Status.Machines))
}

// reason is why an operation does not move; nothing if it does, or is over.
func reason(op *v1alpha1.TalosOperation) string {
	if condition := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition); condition != nil && condition.Status == metav1.ConditionTrue {
		return condition.Reason
	}
	condition := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ProgressingCondition)
	if op.Status.Phase == v1alpha1.OperationInProgress && condition != nil && condition.Status == metav1.ConditionFalse {
		return condition.Reason
	}
	return ""
}

func (c *cli) getOperation(_ context.Context, op *v1alpha1.TalosOperation) error {
	if c.output != outputTable {
		return c.printObject(op)
	}
	if err := c.printTable(operationTable([]v1alpha1.TalosOperation{*op})); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	if err := c.printLines(answerOf(op).lines()); err != nil {
		return err
	}
	if len(op.Status.Machines) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	return c.printTable(unitTable(op, time.Now()))
}

func unitTable(op *v1alpha1.TalosOperation, now time.Time) table {
	t := table{header: []string{"MACHINE", "PHASE", "STAGE", "STEP", "SINCE", "MESSAGE"}}
	for _, machine := range op.Status.Machines {
		t.rows = append(t.rows, []string{
			machine.Name, string(machine.Phase), machine.Stage, string(machine.Step), age(machine.StepStartTime, now), machine.Message,
		})
	}
	return t
}

func (c *cli) pauseOperation(ctx context.Context, op *v1alpha1.TalosOperation) error {
	changed, err := c.service.SetPaused(ctx, op, true)
	if err != nil {
		return err
	}
	if !changed {
		fmt.Fprintf(c.err, "operation %s is paused already: nothing to do\n", op.Name)
		return nil
	}
	fmt.Fprintf(c.out, "Operation %s pauses at the next safe point and keeps its lock. Go on with: ichor operation resume %[1]s\n", op.Name)
	return nil
}

func (c *cli) resumeOperation(ctx context.Context, op *v1alpha1.TalosOperation) error {
	retried, err := c.service.Retry(ctx, op)
	if err != nil {
		return err
	}
	unpaused, err := c.service.SetPaused(ctx, op, false)
	if err != nil {
		return err
	}
	switch {
	case retried && unpaused:
		fmt.Fprintf(c.out, "Operation %s: unpaused, and the failed step is retried.\n", op.Name)
	case retried:
		fmt.Fprintf(c.out, "Operation %s: the failed step is retried.\n", op.Name)
	case unpaused:
		fmt.Fprintf(c.out, "Operation %s: unpaused.\n", op.Name)
	default:
		fmt.Fprintf(c.err, "operation %s is neither paused nor failed: nothing to do\n", op.Name)
	}
	return nil
}

func (c *cli) deleteOperation(ctx context.Context, op *v1alpha1.TalosOperation) error {
	if _, err := c.service.Delete(ctx, op, false, ""); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "Operation %s is being deleted: it settles first, and gives its lock back.\n", op.Name)
	return nil
}
