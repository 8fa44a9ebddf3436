// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"sync"
	"time"
)

// slots bound the looks that are under way together: some for looks that answered in good time when they were last taken, and as many for
// the others. However many targets are silent, the rest does not wait for them.
type slots struct {
	quick, slow chan struct{}

	// patience is the time after which a look is a slow one.
	patience time.Duration
}

func newSlots(options Options) slots {
	return slots{
		quick: make(chan struct{}, options.AtOnce), slow: make(chan struct{}, options.AtOnce), patience: options.Timeout / 2,
	}
}

// take waits for a slot for a look that took so long the last time, and returns how to give it back.
func (s slots) take(ctx context.Context, took time.Duration) (giveBack func(), ok bool) {
	held := s.quick
	if took > s.patience {
		held = s.slow
	}
	select {
	case held <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	if held == s.slow {
		return func() { <-held }, true
	}
	return s.lend(), true
}

// lend returns how to give a quick slot back. A look that turns out to be slow moves to a slow slot if one is free: targets that fall silent
// together are not found out one after the other. If none is free it stays. More looks than slots would make a machine that is short
// of processors shorter still, until no look ends in time.
func (s slots) lend() (giveBack func()) {
	var mu sync.Mutex
	held := s.quick
	move := time.AfterFunc(s.patience, func() { // In real time, like the end of the look's context.
		mu.Lock()
		defer mu.Unlock()
		if held == nil {
			return
		}
		select {
		case s.slow <- struct{}{}:
			<-held
			held = s.slow
		default:
		}
	})
	return func() {
		move.Stop()
		mu.Lock()
		defer mu.Unlock()
		<-held
		held = nil
	}
}
