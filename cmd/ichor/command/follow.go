// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"

	"ichor.maesh.dev/hub/cmd/ichor/follow"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// view shows an operation that is followed.
type view interface {
	Show(*pb.Operation)
	Tell(string)
	End()
}

// follow shows what an operation does until it ends. Nil means completed; see exit codes for the rest.
func (a *app) follow(ctx context.Context, name *pb.Reference) error {
	v := a.view()
	waiting, cancel := a.patience(ctx)
	defer cancel()
	followed := &follow.Operation{
		Client: a.connection.operations, Ref: name, Show: v.Show,
		Lost: func(err error) {
			v.Tell(fmt.Sprintf("The %s does not answer (%v); trying again for %s.", a.connection.where, a.reason(err), follow.Patience))
		},
		Back: func() { v.Tell(fmt.Sprintf("The %s answers again.", a.connection.where)) },
	}
	op, err := followed.Run(waiting)
	v.End()
	return a.ended(ctx, name, op, err)
}

// reason is why nobody answers, in a few words.
func (a *app) reason(err error) string {
	var said interface{ Message() string }
	if errors.As(err, &said) {
		return said.Message()
	}
	return err.Error()
}

// ended is what has come of following an operation.
func (a *app) ended(ctx context.Context, name *pb.Reference, op *pb.Operation, err error) error {
	again := "ichor operation watch " + a.named(name)
	switch {
	case ctx.Err() != nil:
		a.remark("Detached; the operation goes on. Follow it again with: %s", again)
		return &codedError{errors.New("interrupted"), exitInterrupted}
	case errors.Is(err, context.DeadlineExceeded):
		return &codedError{fmt.Errorf("operation %s still goes on after %s%s; follow it again with: %s", a.named(name), a.timeout, standsAt(op), again), exitStillRuns}
	case err != nil:
		return fmt.Errorf("%w; the operation goes on; follow it again with: %s", a.explain(err), again)
	case op == nil:
		return &codedError{fmt.Errorf("operation %s was deleted", a.named(name)), exitFailed}
	}
	if (a.output == outputJSON || a.output == outputYAML) && a.printDocument(op) != nil {
		return fmt.Errorf("printing operation %s", a.named(name))
	}
	if follow.NeedsPerson(op) {
		answer := op.GetAnswer()
		return &codedError{fmt.Errorf("operation %s needs a person: %s: %s; %s: %s", a.named(name), answer.GetReason(), answer.GetWhy(), answer.GetWho(), answer.GetCommand()), exitFailed}
	}
	return nil
}

// standsAt is where an operation stands that was followed for too short a time.
func standsAt(op *pb.Operation) string {
	if op == nil {
		return ""
	}
	text := fmt.Sprintf(" (%s", word("OPERATION_PHASE_", op.GetPhase()))
	if reason := op.GetAnswer().GetReason(); reason != "" {
		text += ", " + reason
	}
	return text + ")"
}

// view is the way to show an operation that fits the output: a tree that changes on a terminal, a log for people elsewhere, states for
// programs that want them.
func (a *app) view() view {
	switch {
	case a.output == outputJSONL:
		return &stateView{app: a}
	case !a.forPeople():
		return follow.NewLog(a.Err, a.Err, a.Now) // The state at the end is the result.
	case a.OutTerminal && !a.dumb():
		screen := &follow.Screen{Out: a.Out, Err: a.Err, Size: a.Size, Style: a.style(), Now: a.Now}
		screen.Start()
		return screen
	}
	return follow.NewLog(a.Out, a.Err, a.Now)
}

// stateView prints every state.
type stateView struct{ *app }

// Show prints a state.
func (v *stateView) Show(op *pb.Operation) {
	if err := v.printItem(v.operationItem(op)); err != nil {
		v.remark("%v", err)
	}
}

// Tell prints a remark.
func (v *stateView) Tell(text string) { v.remark("%s", text) }

// End has nothing to add.
func (*stateView) End() {}
