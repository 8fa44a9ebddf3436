// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/progress"
)

const (
	// retryFirst and retryMost bound the pauses between attempts of a call that may be repeated.
	retryFirst = 250 * time.Millisecond
	retryMost  = 5 * time.Second
)

// call is what a task does.
type call struct {
	step kind.Step

	// unknown says that an earlier attempt ended without anybody knowing how.
	unknown bool

	do       func(context.Context) (kind.Outcome, error)
	undo     func(ctx context.Context, cause error) error
	classify func(error) v1alpha1.ErrorClass
}

// result is how a task ended.
type result struct {
	step v1alpha1.OperationStep

	// unknown says that an attempt before the last ended without anybody knowing how.
	unknown bool

	outcome       v1alpha1.CallOutcome
	resolvedImage string
	progress      *v1alpha1.UnitProgress
}

// Tasks makes the calls that steps have claimed, outside of reconciles. It remembers nothing that a restart may lose: a claim
// without outcome tells the next process all it needs.
type Tasks struct {
	ctx   context.Context //nolint:containedctx // Tasks die with the process, not with the reconcile that started them.
	clock clock.Clock
	// ending is called when a call has ended and nobody can know yet; ended when its result can be collected.
	ending, ended func(types.NamespacedName)

	mu      sync.Mutex
	running map[observe.Key]*task
	results map[observe.Key]result
}

// task is a call under way.
type task struct {
	cancel context.CancelCauseFunc

	// trouble is what the last attempt failed of, or what the call says that it waits for.
	trouble string
}

// NewTasks returns Tasks that end with ctx.
func NewTasks(ctx context.Context, clk clock.Clock, ending, ended func(types.NamespacedName)) *Tasks {
	return &Tasks{
		ctx: ctx, clock: clk, ending: ending, ended: ended,
		running: map[observe.Key]*task{}, results: map[observe.Key]result{},
	}
}

// start makes a call, unless the unit has one under way or not collected.
func (t *Tasks) start(key observe.Key, c call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[key] != nil {
		return
	}
	if _, uncollected := t.results[key]; uncollected {
		return
	}
	ctx, cancel := context.WithCancelCause(t.ctx)
	made := &task{cancel: cancel}
	t.running[key] = made
	go t.run(ctx, key, made, c)
}

func (t *Tasks) run(ctx context.Context, key observe.Key, self *task, c call) {
	defer self.cancel(nil)
	ctx = progress.With(ctx, func(trouble string) { t.note(self, trouble) })
	outcome, unknown, err := t.attempt(ctx, self, c)
	class := classOf(ctx, err, c.classify)
	if t.ctx.Err() != nil {
		return // The process ends. The claim without outcome says so to the next one.
	}
	if leavesNothing(c.step, class, unknown || c.unknown) {
		err = errors.Join(err, t.undo(c, err))
	}
	r := result{step: c.step.Name, unknown: unknown, resolvedImage: outcome.ResolvedImage, progress: outcome.Progress, outcome: v1alpha1.CallOutcome{
		Result: v1alpha1.CallSucceeded, ExitCode: outcome.ExitCode, Message: shorten(outcome.Message), Time: metav1.NewTime(t.clock.Now()),
	}}
	if err != nil {
		r.outcome.Result, r.outcome.Class, r.outcome.Message = v1alpha1.CallFailed, class, shorten(err.Error())
	}
	t.ending(key.Object)
	if t.finish(key, self, r) {
		t.ended(key.Object)
	}
}

// finish keeps the result of a task, unless it was forgotten meanwhile.
func (t *Tasks) finish(key observe.Key, self *task, r result) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[key] != self {
		return false
	}
	delete(t.running, key)
	t.results[key] = r
	return true
}

func (t *Tasks) note(self *task, trouble string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	self.trouble = trouble
}

// classOf says what the end of a call means; nothing means that it succeeded.
func classOf(ctx context.Context, err error, classify func(error) v1alpha1.ErrorClass) v1alpha1.ErrorClass {
	switch {
	case err == nil:
		return ""
	case context.Cause(ctx) != nil:
		return v1alpha1.ErrorInterrupted
	case isTimeout(err):
		return v1alpha1.ErrorTimeout
	}
	return classify(err)
}

// leavesNothing says whether a call that ended so is over for good, and what it left on the target has to go. A call whose fate is
// looked up, or that is made again, keeps what it left.
func leavesNothing(step kind.Step, class v1alpha1.ErrorClass, unknown bool) bool {
	switch class {
	case v1alpha1.ErrorPermanent:
		return !(unknown && step.Repeat == kind.BootIDGuarded)
	case v1alpha1.ErrorTimeout, v1alpha1.ErrorInterrupted:
		return step.Repeat == kind.Safe
	}
	return false
}

// undoTime bounds taking back what a failed call left.
const undoTime = 15 * time.Second

// undo takes back what a failed call left. It does so even for a call that was told to end, but not in a process that ends.
func (t *Tasks) undo(c call, cause error) error {
	ctx, cancel := context.WithTimeout(t.ctx, undoTime)
	defer cancel()
	return c.undo(ctx, cause)
}

// attempt makes the call until it succeeds, fails for good or the step's deadline passes. Only calls that may be repeated are.
func (t *Tasks) attempt(told context.Context, self *task, c call) (outcome kind.Outcome, unknown bool, err error) {
	ctx, cancel := context.WithTimeout(told, c.step.Timeout)
	defer cancel()
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		outcome, err = c.do(ctx)
		if err == nil || !repeats(c, err) {
			return outcome, unknown, err
		}
		unknown = true
		t.note(self, err.Error())
		select {
		case <-ctx.Done():
		case <-t.clock.After(pause):
		}
		switch {
		case told.Err() != nil:
			return outcome, unknown, context.Cause(told)
		case ctx.Err() != nil:
			return outcome, unknown, &timeoutError{after: c.step.Timeout, last: err}
		}
	}
}

func repeats(c call, err error) bool {
	class := c.classify(err)
	return c.step.Repeat == kind.Safe && (class == v1alpha1.ErrorRetryable || class == v1alpha1.ErrorInProgress)
}

// timeoutError means that a step's deadline passed before its call succeeded.
type timeoutError struct {
	after time.Duration
	last  error
}

// Error says how long was tried, and what happened last.
func (e *timeoutError) Error() string { return fmt.Sprintf("not done within %s: %s", e.after, e.last) }

// Unwrap returns what happened last.
func (e *timeoutError) Unwrap() error { return e.last }

func isTimeout(err error) bool {
	_, ok := err.(*timeoutError) //nolint:errorlint // Only attempt makes it, and returns it as it is.
	return ok
}

// busy says whether the unit has a call under way, or ended and not collected, and what the call has trouble with.
func (t *Tasks) busy(key observe.Key) (trouble string, busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if running := t.running[key]; running != nil {
		return running.trouble, true
	}
	_, ended := t.results[key]
	return "", ended
}

// cancel ends the call of a unit, if it has one.
func (t *Tasks) cancel(key observe.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if running := t.running[key]; running != nil {
		running.cancel(errSettling)
	}
}

// collected returns the results of an operation's calls that have ended. They stay until they are dropped.
func (t *Tasks) collected(operation types.NamespacedName) map[string]result {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := map[string]result{}
	for key, r := range t.results {
		if key.Object == operation {
			found[key.Part] = r
		}
	}
	return found
}

// drop forgets the result of a unit: it is in status, or belongs to nothing.
func (t *Tasks) drop(key observe.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.results, key)
}

// forget ends and forgets everything about an operation that is gone. Another one of the same name begins with nothing.
func (t *Tasks) forget(operation types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, running := range t.running {
		if key.Object == operation {
			running.cancel(errSettling)
			delete(t.running, key)
		}
	}
	for key := range t.results {
		if key.Object == operation {
			delete(t.results, key)
		}
	}
}
