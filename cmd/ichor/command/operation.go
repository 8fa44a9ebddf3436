// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ichor.maesh.dev/hub/cmd/ichor/follow"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func newOperationCommand(a *app) *cobra.Command {
	return group("operation", "See and steer operations", []string{"op", "operations"},
		newOperationListCommand(a), newOperationGetCommand(a), newPlanCommand(a), newWatchCommand(a), newPauseCommand(a), newResumeCommand(a),
		newRetryCommand(a), newConfirmCommand(a), newTurnBackCommand(a), newOperationDeleteCommand(a))
}

// onOperation is a command about the operation that its argument names.
func (a *app) onOperation(use, short string, run func(context.Context, *pb.Reference) error) *cobra.Command {
	return &cobra.Command{
		Use:               use,
		Short:             short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(a.operationNames),
		RunE: a.connected(func(cmd *cobra.Command, args []string) error {
			name, err := operationResource.parse(args[0], a.namespace)
			if err != nil {
				return err
			}
			return run(cmd.Context(), name)
		}),
	}
}

func newOperationListCommand(a *app) *cobra.Command {
	var all bool
	var kinds, phases []string
	filter := &pb.OperationFilter{}
	request := &pb.ListOperationsRequest{Filter: filter}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List operations, of one cluster with --cluster",
		Args:    cobra.NoArgs,
		RunE: a.connected(func(cmd *cobra.Command, _ []string) error {
			var err error
			if filter.Namespaces, filter.Clusters, err = a.scope(all); err != nil {
				return err
			}
			if filter.Kinds, err = values[pb.OperationKind]("--kind", "OPERATION_KIND_", pb.OperationKind_value, kinds); err != nil {
				return err
			}
			if filter.Phases, err = values[pb.OperationPhase]("--phase", "OPERATION_PHASE_", pb.OperationPhase_value, phases); err != nil {
				return err
			}
			list, err := a.listOperations(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("listing operations: %w", err)
			}
			items := make([]item, len(list.GetOperations()))
			for i, op := range list.GetOperations() {
				items[i] = a.operationItem(op)
			}
			if err := a.printList(list, items, "No operations.", func() table { return a.operationTable(list.GetOperations(), all) }); err != nil {
				return err
			}
			return a.partial(list.GetFailures())
		}),
	}
	addAllNamespaces(cmd, &all)
	addSelection(cmd, &filter.LabelSelector, &filter.Text, &request.OrderBy,
		"create_time desc, start_time, completion_time, name, cluster, kind, phase, attention")
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "kinds of operations, such as talos,node")
	cmd.Flags().StringSliceVar(&phases, "phase", nil, "phases, such as in-progress,paused")
	return cmd
}

// values reads values of an enum as people write them.
func values[E ~int32](flag, prefix string, known map[string]int32, texts []string) ([]E, error) {
	var read []E
	for _, text := range texts {
		value, ok := known[prefix+strings.ToUpper(strings.ReplaceAll(text, "-", "_"))]
		if !ok || value == 0 {
			return nil, usageError("%s %q is not one of %s", flag, text, strings.Join(spellings(prefix, known), ", "))
		}
		read = append(read, E(value))
	}
	return read, nil
}

// spellings are the values of an enum as people write them, in order.
func spellings(prefix string, known map[string]int32) []string {
	names := make([]string, len(known))
	for name, number := range known {
		names[number] = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", "-"))
	}
	return slices.Delete(names, 0, 1)
}

func (a *app) operationItem(op *pb.Operation) item { return a.item(op, operationResource, op.GetRef()) }

func (a *app) operationTable(operations []*pb.Operation, all bool) table {
	t := table{columns: columns("NAME", "CLUSTER", "KIND", "PHASE", "STAGE", "MACHINES", "REASON", "AGE", "+CREATED-BY", "+STARTED", "+TOOK", "+WHY")}
	namespaces := make([]string, len(operations))
	for i, op := range operations {
		namespaces[i] = op.GetRef().GetNamespace()
		t.rows = append(t.rows, []string{
			op.GetRef().GetName(), op.GetCluster().GetName(), follow.KindName(op.GetKind()), word("OPERATION_PHASE_", op.GetPhase()), op.GetStage(),
			progress(op), op.GetAnswer().GetReason(), a.age(op.GetCreateTime()), op.GetCreatedBy(), a.clock(op.GetStartTime()), a.took(op), op.GetAnswer().GetWhy(),
		})
	}
	return withNamespace(t, all, namespaces)
}

// progress counts machines that are over, and those that there are.
func progress(op *pb.Operation) string {
	if op.GetMachinesTotal() == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", op.GetMachinesCompleted(), op.GetMachinesTotal())
}

// took is how long an operation has been going on, or went on.
func (a *app) took(op *pb.Operation) string {
	if op.GetStartTime() == nil {
		return ""
	}
	end := a.Now()
	if op.GetCompletionTime() != nil {
		end = op.GetCompletionTime().AsTime()
	}
	return human(end.Sub(op.GetStartTime().AsTime()))
}

func newOperationGetCommand(a *app) *cobra.Command {
	return a.onOperation("get NAME", "Say what an operation does, why it does not move, and who changes that", func(ctx context.Context, name *pb.Reference) error {
		response, err := call(ctx, a, a.connection.operations.GetOperation, &pb.GetOperationRequest{Ref: name})
		if err != nil {
			return err
		}
		if !a.forPeople() {
			return a.printItem(a.operationItem(response.GetOperation()))
		}
		return a.describeOperation(response.GetOperation(), response.GetEvents())
	})
}

func (a *app) describeOperation(op *pb.Operation, events []*pb.OperationEvent) error {
	if err := a.printTable(a.operationTable([]*pb.Operation{op}, false)); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	answer := op.GetAnswer()
	err := a.printLines([][2]string{
		{"Doing", answer.GetDoing()}, {"Why", answer.GetWhy()}, {"Who", answer.GetWho()}, {"Command", answer.GetCommand()},
		{"Held", strings.Join(op.GetHeld(), ", ")}, {"Created by", op.GetCreatedBy()},
	})
	if err != nil {
		return err
	}
	for _, t := range []table{a.unitTable("MACHINE", op.GetMachines()), a.unitTable("UNIT", op.GetUnits()), a.eventTable(events)} {
		if len(t.rows) == 0 {
			continue
		}
		fmt.Fprintln(a.Out)
		if err := a.printTable(t); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) unitTable(name string, units []*pb.OperationUnit) table {
	t := table{columns: columns(name, "PHASE", "STAGE", "STEP", "SINCE", "MESSAGE")}
	for _, u := range units {
		t.rows = append(t.rows, []string{
			u.GetName(), word("UNIT_PHASE_", u.GetPhase()), u.GetStage(), u.GetStep(), a.age(u.GetStepStartTime()), u.GetMessage(),
		})
	}
	return t
}

// lastEvents is how many events are shown; kubectl shows all.
const lastEvents = 10

func (a *app) eventTable(events []*pb.OperationEvent) table {
	t := table{columns: columns("EVENT", "AGE", "REASON", "MESSAGE")}
	for _, e := range events[max(len(events)-lastEvents, 0):] {
		kind := "Normal"
		if e.GetWarning() {
			kind = "Warning"
		}
		t.rows = append(t.rows, []string{kind, a.age(e.GetTime()), e.GetReason(), e.GetMessage()})
	}
	return t
}

func newWatchCommand(a *app) *cobra.Command {
	cmd := a.onOperation("watch NAME", "Follow an operation until it ends", func(ctx context.Context, name *pb.Reference) error {
		a.follows = true
		// A name that does not exist is an error at once, not something to wait for.
		if _, err := call(ctx, a, a.connection.operations.GetOperation, &pb.GetOperationRequest{Ref: name}); err != nil {
			return err
		}
		return a.follow(ctx, name)
	})
	cmd.Long = `Follow an operation until it ends.

It survives a hub or a management API that is away for up to ten minutes, and misses nothing of what happened meanwhile. Ctrl-C ends the
command, not the operation. Exit codes: 0 the operation is completed, 3 it needs a person or was deleted, 5 --timeout was over, 130
interrupted.`
	return cmd
}

func newPauseCommand(a *app) *cobra.Command {
	return a.onOperation("pause NAME", "Stop an operation at the next safe point", func(ctx context.Context, name *pb.Reference) error {
		response, err := call(ctx, a, a.connection.operations.SetOperationPaused, &pb.SetOperationPausedRequest{Ref: name, Paused: true})
		switch {
		case err != nil:
			return fmt.Errorf("pausing operation %s: %w", a.named(name), err)
		case !response.GetChanged():
			return a.unchanged(response.GetOperation(), name, "is paused already")
		}
		return a.did(a.operationResult(response.GetOperation(), name),
			"Operation %s pauses at the next safe point and keeps its lock. Go on with: ichor operation resume %[1]s", a.named(name))
	})
}

// unchanged says that an operation is what it should become.
func (a *app) unchanged(op *pb.Operation, name *pb.Reference, is string) error {
	if follow.Completed(op) {
		is = "is completed"
	}
	a.remark("Operation %s %s: nothing to do.", a.named(name), is)
	if a.forPeople() {
		return nil
	}
	return a.printItem(a.operationResult(op, name))
}

// operationResult is the operation that a hub answered with.
func (a *app) operationResult(op *pb.Operation, name *pb.Reference) item {
	return a.item(op, operationResource, name)
}

func newResumeCommand(a *app) *cobra.Command {
	var followed bool
	cmd := a.onOperation("resume NAME", "Lift a pause, or retry what failed: what the operation needs", func(ctx context.Context, name *pb.Reference) error {
		a.follows = followed
		if err := a.resume(ctx, name); err != nil || !followed {
			return err
		}
		return a.follow(ctx, name)
	})
	cmd.Flags().BoolVar(&followed, "follow", false, "follow the operation until it ends")
	return cmd
}

// resume retries what failed before it lifts a pause: the retry needs a right that the pause does not, and without it nothing is changed.
// Whether there is a pause is the hub's to say: what it answered may be older than a pause of a moment ago.
func (a *app) resume(ctx context.Context, name *pb.Reference) error {
	response, err := call(ctx, a, a.connection.operations.GetOperation, &pb.GetOperationRequest{Ref: name})
	if err != nil {
		return err
	}
	op := response.GetOperation()
	var did []string
	if op.GetFailureReason() != "" && !op.GetRetryRequested() && !follow.Completed(op) {
		retried, err := call(ctx, a, a.connection.operations.RetryOperation, &pb.RetryOperationRequest{Ref: name})
		if err != nil {
			return fmt.Errorf("retrying operation %s: %w", a.named(name), err)
		}
		if retried.GetChanged() {
			op, did = retried.GetOperation(), append(did, "the failed step is retried")
		}
	}
	if !follow.Completed(op) {
		resumed, err := call(ctx, a, a.connection.operations.SetOperationPaused, &pb.SetOperationPausedRequest{Ref: name})
		if err != nil {
			return fmt.Errorf("lifting the pause of operation %s (%s): %w", a.named(name), cmp.Or(strings.Join(did, ""), "nothing was changed"), err)
		}
		if resumed.GetChanged() {
			op, did = resumed.GetOperation(), append([]string{"unpaused"}, did...)
		}
	}
	if len(did) == 0 {
		return a.unchanged(op, name, "is neither paused nor failed")
	}
	return a.did(a.operationResult(op, name), "Operation %s: %s.", a.named(name), strings.Join(did, ", and "))
}

func newRetryCommand(a *app) *cobra.Command {
	return a.onOperation("retry NAME", "Retry what failed, or what was refused", func(ctx context.Context, name *pb.Reference) error {
		response, err := call(ctx, a, a.connection.operations.RetryOperation, &pb.RetryOperationRequest{Ref: name})
		switch {
		case err != nil:
			return fmt.Errorf("retrying operation %s: %w", a.named(name), err)
		case !response.GetChanged():
			return a.unchanged(response.GetOperation(), name, "has not failed")
		}
		return a.did(a.operationResult(response.GetOperation(), name), "Operation %s: the failed step is retried.", a.named(name))
	})
}

func newConfirmCommand(a *app) *cobra.Command {
	var stage string
	cmd := a.onOperation("confirm NAME", "End a stage that waits for people: what it waits for is done", func(ctx context.Context, name *pb.Reference) error {
		if stage == "" {
			found, err := call(ctx, a, a.connection.operations.GetOperation, &pb.GetOperationRequest{Ref: name})
			if err != nil {
				return err
			}
			stage = found.GetOperation().GetStage()
		}
		response, err := call(ctx, a, a.connection.operations.ConfirmOperation, &pb.ConfirmOperationRequest{Ref: name, Stage: stage})
		switch {
		case err != nil:
			return fmt.Errorf("confirming stage %s of operation %s: %w", stage, a.named(name), err)
		case !response.GetChanged():
			return a.unchanged(response.GetOperation(), name, "has been told already")
		}
		return a.did(a.operationResult(response.GetOperation(), name), "Operation %s: stage %s is confirmed.", a.named(name), stage)
	})
	cmd.Flags().StringVar(&stage, "stage", "", "the stage (default: the one under way)")
	return cmd
}

func newOperationDeleteCommand(a *app) *cobra.Command {
	var force bool
	var reason, confirm string
	cmd := a.onOperation("delete NAME", "Settle an operation and delete it", func(ctx context.Context, name *pb.Reference) error {
		if force {
			if reason == "" {
				return usageError("--force needs a reason: add --reason")
			}
			a.remark("Operation %s goes at once. Machines that it has half-way done stay half-way: installed and not rebooted, drained, or away.", a.named(name))
			if err := a.askName(ctx, "operation", name.GetName(), confirm); err != nil {
				return err
			}
		}
		response, err := call(ctx, a, a.connection.operations.DeleteOperation, &pb.DeleteOperationRequest{Ref: name, Force: force, Reason: reason})
		if err != nil {
			return fmt.Errorf("deleting operation %s: %w", a.named(name), err)
		}
		if response.GetGone() {
			fmt.Fprintf(a.Out, "Operation %s is deleted.\n", a.named(name))
		} else {
			fmt.Fprintf(a.Out, "Operation %s is being deleted: it settles first, and gives its lock back.\n", a.named(name))
		}
		return nil
	})
	flags := cmd.Flags()
	flags.BoolVar(&force, "force", false, "leave its machines as they are; needs the right to override")
	flags.StringVar(&reason, "reason", "", "why --force is right; kept in the audit")
	flags.StringVar(&confirm, "confirm", "", "the operation's name: do not ask for it with --force")
	return cmd
}
