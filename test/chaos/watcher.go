// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
)

// watcher follows every operation from its creation to its end.
type watcher struct {
	log    *log
	events watch.Interface

	mu         sync.Mutex
	operations map[types.UID]*story
}

// story is what became of an operation.
type story struct {
	last *v1alpha1.TalosOperation
	gone bool
}

func newWatcher(ctx context.Context, c client.WithWatch, l *log) (*watcher, error) {
	events, err := c.Watch(ctx, &v1alpha1.TalosOperationList{}, client.InNamespace(harness.Namespace))
	if err != nil {
		return nil, fmt.Errorf("watching operations: %w", err)
	}
	return &watcher{log: l, events: events, operations: map[types.UID]*story{}}, nil
}

// follow looks at every change until the context ends.
func (w *watcher) follow(ctx context.Context) {
	defer w.events.Stop()
	for event := range w.events.ResultChan() {
		if op, ok := event.Object.(*v1alpha1.TalosOperation); ok {
			w.see(op, event.Type == watch.Deleted)
		}
	}
	if ctx.Err() == nil {
		w.log.problem("the watch of operations ended")
	}
}

func (w *watcher) see(op *v1alpha1.TalosOperation, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.operations[op.UID]
	if was == nil {
		was = &story{}
		w.operations[op.UID] = was
	}
	for _, problem := range invariant.StatusProblems(was.last, op) {
		w.log.problem("operation %s: %s", op.Name, problem)
	}
	was.last, was.gone = op, gone
}

func holdsLock(op *v1alpha1.TalosOperation) bool {
	return meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.LockHeldCondition)
}

// ends counts how operations ended, by kind and end.
func (w *watcher) ends() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := map[string]int{}
	for _, s := range w.operations {
		counts[fmt.Sprintf("%s %s", s.last.Spec.Kind, s.end())]++
	}
	return counts
}

// end is what became of an operation, in a word or two.
func (s *story) end() string {
	op := s.last
	succeeded := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.SucceededCondition)
	paused := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition)
	switch {
	case op.Completed() && succeeded != nil:
		return succeeded.Reason
	case s.gone && op.Status.StartTime.IsZero():
		return "Deleted before it began"
	case s.gone:
		return "Deleted on its way"
	case paused != nil && paused.Reason != v1alpha1.NotPausedReason:
		return paused.Reason
	}
	return "Unfinished"
}
