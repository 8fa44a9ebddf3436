// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/service"
)

// patience is for how long following an operation survives a management API that does not answer.
const patience = 10 * time.Minute

// needsPerson are the reasons of a pause that end --follow: only a person changes them.
var needsPerson = map[string]bool{
	v1alpha1.StatusLostReason: true, v1alpha1.StepFailedReason: true, v1alpha1.NoExecutorReason: true, v1alpha1.RefusedReason: true,
}

// follow prints what an operation does until it ends. Exit code 0 means completed, 3 that a person is needed.
func (c *cli) follow(ctx context.Context, key client.ObjectKey) error {
	f := &follower{cli: c, key: key, said: map[string]string{}}
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Cap: 10 * time.Second, Steps: 1 << 30}
	lost := time.Time{}
	for {
		err := f.watch(ctx, func() { lost = time.Time{} })
		var gone *service.NotFoundError
		switch {
		case errors.Is(err, errEnded):
			return f.verdict
		case ctx.Err() != nil:
			fmt.Fprintf(c.err, "Detached; the operation goes on. Follow it again with: ichor operation watch %s\n", key.Name)
			return &codedError{errors.New("interrupted"), exitInterrupted}
		case errors.As(err, &gone), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return err
		case lost.IsZero():
			lost = time.Now()
			if err != nil {
				fmt.Fprintf(c.err, "The management API does not answer (%v); trying for %s.\n", err, patience)
			}
		case time.Since(lost) > patience:
			return fmt.Errorf("the management API has not answered for %s: %w", patience, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// errEnded ends a watch: the verdict is known.
var errEnded = errors.New("the operation ended")

// follower prints each thing once.
type follower struct {
	*cli

	key     client.ObjectKey
	said    map[string]string
	verdict error
}

// watch prints changes until the watch ends, for whatever reason.
func (f *follower) watch(ctx context.Context, connected func()) error {
	op, err := f.service.Operation(ctx, f.key)
	if err != nil {
		return err
	}
	connected()
	if f.say(op) {
		return errEnded
	}
	watcher, err := f.watcher.Watch(ctx, &v1alpha1.TalosOperationList{}, client.InNamespace(f.key.Namespace), &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", f.key.Name),
		Raw:           &metav1.ListOptions{ResourceVersion: op.ResourceVersion},
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		switch event.Type { //nolint:exhaustive // The rest carries an operation.
		case watch.Deleted:
			f.verdict = &codedError{fmt.Errorf("operation %s was deleted", f.key.Name), exitFailed}
			return errEnded
		case watch.Error:
			return apierrors.FromObject(event.Object)
		}
		if op, ok := event.Object.(*v1alpha1.TalosOperation); ok && f.say(op) {
			return errEnded
		}
	}
	return nil
}

// say prints what is new, and says whether the operation has ended.
func (f *follower) say(op *v1alpha1.TalosOperation) (ended bool) {
	for i := range op.Status.Machines {
		f.sayMachine(&op.Status.Machines[i])
	}
	f.line("", "", f.state(op))
	paused := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition)
	switch {
	case op.Completed():
		return true
	case paused != nil && paused.Status == metav1.ConditionTrue && needsPerson[paused.Reason] && op.Annotations[v1alpha1.RetryAnnotation] == "":
		f.verdict = &codedError{fmt.Errorf("operation %s needs a person: %s: %s", op.Name, paused.Reason, paused.Message), exitFailed}
		return true
	}
	return false
}

// state is the line about the operation as a whole: nothing while machines tell all that there is to tell.
func (f *follower) state(op *v1alpha1.TalosOperation) string {
	if op.Status.Phase == v1alpha1.OperationInProgress && reason(op) == "" {
		return ""
	}
	if op.Status.Phase == "" || op.Status.Phase == v1alpha1.OperationPending {
		return ""
	}
	return explain(op)
}

func (f *follower) sayMachine(machine *v1alpha1.UnitStatus) {
	what := string(machine.Step)
	switch {
	case machine.Phase == v1alpha1.UnitCompleted:
		what = string(machine.Phase)
	case machine.Message != "":
		what += ": " + machine.Message
	case what == "" && machine.CompletedStage != "":
		what = machine.CompletedStage + " is over"
	}
	f.line(machine.Name, machine.Name, what)
}

// line prints something about a subject, unless that was the last thing said about it.
func (f *follower) line(subject, label, what string) {
	if f.said[subject] == what {
		return
	}
	f.said[subject] = what
	if what == "" {
		return
	}
	if label != "" {
		label += "  "
	}
	fmt.Fprintf(f.out, "%s  %s%s\n", f.service.Now().Format(time.TimeOnly), label, what)
}
