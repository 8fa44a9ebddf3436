// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"sync"
)

// errEnough ends a Follow that has found what it looked for.
var errEnough = errors.New("enough")

// subscription is a queue of entries for one follower. It never blocks the machines, however slow the follower is.
type subscription struct {
	filter Filter
	wake   chan struct{}

	mu    sync.Mutex
	queue []Entry
}

func (s *subscription) offer(e Entry) {
	if !s.filter.Matches(e) {
		return
	}
	s.mu.Lock()
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) take() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}

// Follow calls fn with every entry that the filter selects, past and future: when a call arrives and again when it ends.
// It returns the error of fn or of the context.
func (j *Journal) Follow(ctx context.Context, f Filter, fn func(Entry) error) error {
	sub := &subscription{filter: f, wake: make(chan struct{}, 1)}
	j.mu.Lock()
	past := j.entries(f)
	j.subs[sub] = struct{}{}
	j.mu.Unlock()
	defer j.unsubscribe(sub)

	if err := each(past, fn); err != nil {
		return err
	}
	for {
		if err := each(sub.take(), fn); err != nil {
			return err
		}
		select {
		case <-sub.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (j *Journal) unsubscribe(sub *subscription) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.subs, sub)
}

func each(entries []Entry, fn func(Entry) error) error {
	for _, e := range entries {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}
