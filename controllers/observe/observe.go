// SPDX-License-Identifier: Apache-2.0

// Package observe looks at targets outside of reconciles, again and again, and wakes who waits for what it sees.
package observe

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// Key names something that is looked at: a part of what the hub does for an object.
type Key struct {
	Object types.NamespacedName
	Part   string
}

// Options say how often and how long an Observer looks.
type Options struct {
	// Interval is the pause between two looks.
	Interval time.Duration

	// Longest is what the pause grows to, three times as long after every look that tells nothing new. Where it is not longer than Interval,
	// the pause does not grow.
	Longest time.Duration

	// Jitter is the part of itself that is added to a pause at most. Without it, looks that began together stay together.
	Jitter float64

	// Timeout bounds one look.
	Timeout time.Duration

	// AtOnce bounds the looks that are under way together, and as many again that take more than half of Timeout.
	AtOnce int
}

// growth is how many times longer a pause becomes after a look that tells nothing new.
const growth = 3

// Observer looks at things and wakes the object that they belong to when something changed. What answers slowly or not at all is
// looked at less often, since the pause grows with the time that looks take, and in slots of its own: however many targets are silent, the
// others do not wait for them.
type Observer struct {
	ctx     context.Context //nolint:containedctx // Looks go on from reconcile to reconcile.
	clock   clock.Clock
	options Options
	wake    func(types.NamespacedName)
	slots   slots

	mu    sync.Mutex
	looks map[Key]*look
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

	// quiet counts the looks in a row that told nothing new.
	quiet int

	// closely keeps the pause from growing.
	closely bool
}

// New returns an Observer that ends with ctx.
func New(ctx context.Context, clk clock.Clock, options Options, wake func(types.NamespacedName)) *Observer {
	return &Observer{
		ctx: ctx, clock: clk, options: options, wake: wake,
		slots: newSlots(options), looks: map[Key]*look{},
	}
}

// Want returns the last observation, says whether it is fresh, and keeps looking: the object is woken when another one differs.
func (o *Observer) Want(key Key, at func(context.Context) any) (seen any, fresh bool) {
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

// Invalidate makes every observation so far for an object worthless, and looks again at once.
func (o *Observer) Invalidate(object types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, l := range o.looks {
		if key.Object != object {
			continue
		}
		l.notBefore = o.clock.Now()
		l.hurry()
	}
}

// Closely says whether the pause between looks at something stays short even while nothing changes. It concerns what is looked at already.
func (o *Observer) Closely(key Key, closely bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, ok := o.looks[key]
	if !ok || l.closely == closely {
		return
	}
	l.closely = closely
	if closely {
		l.hurry()
	}
}

// hurry ends a pause, and makes the next ones short again.
func (l *look) hurry() {
	l.quiet = 0
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Keep ends the looks for an object that are not wanted any more.
func (o *Observer) Keep(object types.NamespacedName, wanted map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, l := range o.looks {
		if key.Object == object && !wanted[key.Part] {
			l.cancel()
			delete(o.looks, key)
		}
	}
}

func (o *Observer) run(ctx context.Context, key Key, l *look) {
	var took time.Duration
	for {
		giveBack, ok := o.slots.take(ctx, took)
		if !ok {
			return
		}
		took = o.look(ctx, key, l)
		giveBack()
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		case <-o.clock.After(o.pause(l, took)):
		}
	}
}

// pause is the time until the next look.
func (o *Observer) pause(l *look, took time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	pause := o.options.Interval
	if !l.closely {
		for range l.quiet {
			if pause >= o.options.Longest {
				break
			}
			pause = min(growth*pause, o.options.Longest)
		}
	}
	if pause = max(pause, took); o.options.Jitter > 0 {
		return wait.Jitter(pause, o.options.Jitter)
	}
	return pause
}

// look takes one look and wakes the object if it tells anything new.
func (o *Observer) look(ctx context.Context, key Key, l *look) (took time.Duration) {
	o.mu.Lock()
	at := l.at
	o.mu.Unlock()
	begun := o.clock.Now()
	bounded, cancel := context.WithTimeout(ctx, o.options.Timeout)
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
	l.quiet++
	if news {
		l.quiet = 0
	}
	o.mu.Unlock()
	if news {
		o.wake(key.Object)
	}
	return o.clock.Since(begun)
}
