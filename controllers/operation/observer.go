// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// lookInterval is the pause between two looks at something that a running operation waits for.
	lookInterval = 250 * time.Millisecond

	// lookTimeout bounds one look.
	lookTimeout = 5 * time.Second

	// looksAtOnce bounds the looks of all operations together.
	looksAtOnce = 256
)

// Observer looks at what operations wait for, outside of reconciles, and wakes an operation when something changed. A target
// that answers slowly or not at all is looked at less often: the pause grows with the time that looks take.
type Observer struct {
	ctx   context.Context //nolint:containedctx // Looks go on from reconcile to reconcile.
	clock clock.Clock
	wake  func(types.NamespacedName)
	slots chan struct{}

	mu    sync.Mutex
	looks map[unitKey]*look
}

// look is one thing that is looked at again and again.
type look struct {
	at     func(context.Context) any
	cancel context.CancelFunc
	kick   chan struct{}

	// seen is the last observation, and begun when it began; zero until there is one.
	seen  any
	begun time.Time

	// notBefore is when the last thing happened that makes earlier observations worthless.
	notBefore time.Time
}

// NewObserver returns an Observer that ends with ctx.
func NewObserver(ctx context.Context, clk clock.Clock, wake func(types.NamespacedName)) *Observer {
	return &Observer{ctx: ctx, clock: clk, wake: wake, slots: make(chan struct{}, looksAtOnce), looks: map[unitKey]*look{}}
}

// want returns the last observation if it is fresh, and keeps looking: the operation is woken when another one differs.
func (o *Observer) want(key unitKey, at func(context.Context) any) (seen any, fresh bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, ok := o.looks[key]
	if !ok {
		ctx, cancel := context.WithCancel(o.ctx)
		l = &look{at: at, cancel: cancel, kick: make(chan struct{}, 1)}
		o.looks[key] = l
		go o.run(ctx, key, l)
		return nil, false
	}
	l.at = at
	return l.seen, l.isFresh()
}

func (l *look) isFresh() bool { return !l.begun.IsZero() && l.begun.After(l.notBefore) }

// invalidate makes every observation so far of an operation's units worthless and looks again at once.
func (o *Observer) invalidate(operation types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, l := range o.looks {
		if key.operation != operation {
			continue
		}
		l.notBefore = o.clock.Now()
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// keep ends the looks of an operation that are not wanted any more.
func (o *Observer) keep(operation types.NamespacedName, wanted map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, l := range o.looks {
		if key.operation == operation && !wanted[key.unit] {
			l.cancel()
			delete(o.looks, key)
		}
	}
}

func (o *Observer) run(ctx context.Context, key unitKey, l *look) {
	for {
		select {
		case o.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		took := o.look(ctx, key, l)
		<-o.slots
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		case <-o.clock.After(max(lookInterval, took)):
		}
	}
}

// look takes one look and wakes the operation if it tells anything new.
func (o *Observer) look(ctx context.Context, key unitKey, l *look) (took time.Duration) {
	o.mu.Lock()
	at := l.at
	o.mu.Unlock()
	begun := o.clock.Now()
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	seen := at(bounded)
	cancel()
	if ctx.Err() != nil {
		return 0
	}
	o.mu.Lock()
	stale := !l.isFresh()
	news := !reflect.DeepEqual(seen, l.seen)
	l.seen, l.begun = seen, begun
	news = l.isFresh() && (news || stale)
	o.mu.Unlock()
	if news {
		o.wake(key.operation)
	}
	return o.clock.Since(begun)
}
