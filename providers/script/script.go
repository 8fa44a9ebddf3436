// SPDX-License-Identifier: Apache-2.0

// Package script is what the fakes of the adapters have in common: calls that can be made to fail or to hang, and minutes of those
// that took effect.
package script

import (
	"context"
	"sync"
)

// Script takes orders and keeps minutes. A call is named by what it does and to whom, such as "Reboot" and "10.0.0.1".
type Script struct {
	mu      sync.Mutex
	minutes []string
	fails   map[string][]error
	stops   map[stop]*Stop
}

type stop struct {
	call, subject string
	after         bool
}

// Stop is a place at which a call hangs.
type Stop struct {
	// Reached is closed when a call has come here.
	Reached chan struct{}

	released chan struct{}
}

// Release lets the call go on.
func (s *Stop) Release() { close(s.released) }

// New returns a Script without orders.
func New() *Script { return &Script{fails: map[string][]error{}, stops: map[stop]*Stop{}} }

// FailNext makes the next such call fail before it takes effect.
func (s *Script) FailNext(call, subject string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := call + " " + subject
	s.fails[key] = append(s.fails[key], err)
}

// HangBefore makes the next such call hang before it takes effect, until it is released or its context ends.
func (s *Script) HangBefore(call, subject string) *Stop {
	return s.hang(stop{call: call, subject: subject})
}

// HangAfter makes the next such call hang after it has taken effect and before its caller knows.
func (s *Script) HangAfter(call, subject string) *Stop {
	return s.hang(stop{call: call, subject: subject, after: true})
}

func (s *Script) hang(at stop) *Stop {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := &Stop{Reached: make(chan struct{}), released: make(chan struct{})}
	s.stops[at] = made
	return made
}

// Calls are the minutes: the calls that took effect, in order.
func (s *Script) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.minutes...)
}

// Run plays a call: it fails or hangs as ordered, and otherwise takes effect and gets into the minutes.
func (s *Script) Run(ctx context.Context, call, subject string, effect func() error) error {
	if err := s.Look(ctx, call, subject); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	s.note(call + " " + subject)
	return s.pause(ctx, stop{call: call, subject: subject, after: true})
}

// Look plays a call that changes nothing: it fails or hangs as ordered, and gets into no minutes.
func (s *Script) Look(ctx context.Context, call, subject string) error {
	if err := s.pause(ctx, stop{call: call, subject: subject}); err != nil {
		return err
	}
	return s.failure(call + " " + subject)
}

func (s *Script) pause(ctx context.Context, at stop) error {
	s.mu.Lock()
	here := s.stops[at]
	delete(s.stops, at)
	s.mu.Unlock()
	if here == nil {
		return nil
	}
	close(here.Reached)
	select {
	case <-here.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Script) failure(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fails[key]) == 0 {
		return nil
	}
	err := s.fails[key][0]
	s.fails[key] = s.fails[key][1:]
	return err
}

func (s *Script) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.minutes = append(s.minutes, line)
}
