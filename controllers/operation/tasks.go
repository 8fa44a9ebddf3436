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
)

const (
	// retryFirst and retryMost bound the pauses between attempts of a call that may be repeated.
	retryFirst = 250 * time.Millisecond
	retryMost  = 5 * time.Second
)

// call is what a task does.
type call struct {
	step     kind.Step
	do       func(context.Context) (kind.Outcome, error)
	undo     func(context.Context) error
	classify func(error) v1alpha1.ErrorClass
}

// result is how a task ended.
type result struct {
	step          v1alpha1.OperationStep
	outcome       v1alpha1.CallOutcome
	resolvedImage string
}

// Tasks makes the calls that steps have claimed, outside of reconciles. It remembers nothing that a restart may lose: a claim
// without outcome tells the next process all it needs.
type Tasks struct {
	ctx   context.Context //nolint:containedctx // Tasks die with the process, not with the reconcile that started them.
	clock clock.Clock
	// ended is called after a task has ended and its result can be collected.
	ended func(types.NamespacedName)

	mu      sync.Mutex
	running map[observe.Key]context.CancelCauseFunc
	results map[observe.Key]result
}

// NewTasks returns Tasks that end with ctx.
func NewTasks(ctx context.Context, clk clock.Clock, ended func(types.NamespacedName)) *Tasks {
	return &Tasks{ctx: ctx, clock: clk, ended: ended, running: map[observe.Key]context.CancelCauseFunc{}, results: map[observe.Key]result{}}
}

// start makes a call, unless the unit has one under way or not collected.
func (t *Tasks) start(key observe.Key, c call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, busy := t.running[key]; busy {
		return
	}
	if _, uncollected := t.results[key]; uncollected {
		return
	}
	ctx, cancel := context.WithCancelCause(t.ctx)
	t.running[key] = cancel
	go t.run(ctx, key, c)
}

func (t *Tasks) run(ctx context.Context, key observe.Key, c call) {
	outcome, err := t.attempt(ctx, c)
	class := classOf(ctx, err, c.classify)
	if class == v1alpha1.ErrorPermanent || class == v1alpha1.ErrorTimeout || class == v1alpha1.ErrorInterrupted {
		err = errors.Join(err, t.undo(c))
	}
	if t.ctx.Err() != nil {
		return // The process ends. The claim without outcome says so to the next one.
	}
	r := result{step: c.step.Name, resolvedImage: outcome.ResolvedImage, outcome: v1alpha1.CallOutcome{
		Result: v1alpha1.CallSucceeded, ExitCode: outcome.ExitCode, Message: shorten(outcome.Message), Time: metav1.NewTime(t.clock.Now()),
	}}
	if err != nil {
		r.outcome.Result, r.outcome.Class, r.outcome.Message = v1alpha1.CallFailed, class, shorten(err.Error())
	}
	t.mu.Lock()
	t.running[key](nil)
	delete(t.running, key)
	t.results[key] = r
	t.mu.Unlock()
	t.ended(key.Object)
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

// undoTime bounds taking back what a failed call left.
const undoTime = 15 * time.Second

// undo takes back what a failed call left. It does so even for a call that was told to end, but not in a process that ends.
func (t *Tasks) undo(c call) error {
	ctx, cancel := context.WithTimeout(t.ctx, undoTime)
	defer cancel()
	return c.undo(ctx)
}

// attempt makes the call until it succeeds, fails for good or the step's deadline passes. Only calls that may be repeated are.
func (t *Tasks) attempt(ctx context.Context, c call) (kind.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, c.step.Timeout)
	defer cancel()
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		outcome, err := c.do(ctx)
		if err == nil {
			return outcome, nil
		}
		class := c.classify(err)
		again := c.step.Repeat == kind.Safe && (class == v1alpha1.ErrorRetryable || class == v1alpha1.ErrorInProgress)
		if !again {
			return outcome, err
		}
		select {
		case <-ctx.Done():
			return outcome, &timeoutError{after: c.step.Timeout, last: err}
		case <-t.clock.After(pause):
		}
	}
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

// busy says whether the unit has a call under way, or ended and not collected.
func (t *Tasks) busy(key observe.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, running := t.running[key]
	_, ended := t.results[key]
	return running || ended
}

// cancel ends the call of a unit, if it has one.
func (t *Tasks) cancel(key observe.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cancel, ok := t.running[key]; ok {
		cancel(errSettling)
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

// drop forgets results that have been written to status.
func (t *Tasks) drop(operation types.NamespacedName, units map[string]result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for unit := range units {
		delete(t.results, observe.Key{Object: operation, Part: unit})
	}
}

// forget ends and forgets everything about an operation that is gone.
func (t *Tasks) forget(operation types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, cancel := range t.running {
		if key.Object == operation {
			cancel(errSettling)
		}
	}
	for key := range t.results {
		if key.Object == operation {
			delete(t.results, key)
		}
	}
}
