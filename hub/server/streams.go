// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/hub/auth"
)

// errEnding is what open streams hear when the hub ends. Another replica, or the next hub, goes on where they were.
var errEnding = connect.NewError(connect.CodeUnavailable, errors.New("this hub is shutting down: connect again"))

// streams are the open ones. They have no end of their own, so a server that ends has to end them, and nobody may open as many as they like.
type streams struct {
	most int // Those of one caller.

	mu    sync.Mutex
	of    map[string]int // How many each caller has.
	last  uint64
	open  map[uint64]context.CancelCauseFunc
	ended bool
}

// end ends all streams, and those that come later.
func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, cancel := range s.open {
		cancel(errEnding)
	}
}

// enter notes a stream of a caller down, until leave is called.
func (s *streams) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	caller, _ := auth.From(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[caller.Name] >= s.most {
		return nil, nil, connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("user %.64q has %d streams open: want at most %d; end one of them", caller.Name, s.of[caller.Name], s.most))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if s.ended {
		cancel(errEnding)
	}
	if s.open == nil {
		s.open, s.of = map[uint64]context.CancelCauseFunc{}, map[string]int{}
	}
	s.last++
	id := s.last
	s.open[id] = cancel
	s.of[caller.Name]++
	return ctx, func() { s.leave(id, caller.Name) }, nil
}

func (s *streams) leave(id uint64, caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id](nil)
	delete(s.open, id)
	s.of[caller]--
	if s.of[caller] == 0 {
		delete(s.of, caller)
	}
}

// WrapUnary implements connect.Interceptor: such a call finishes.
func (s *streams) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

// WrapStreamingClient implements connect.Interceptor.
func (s *streams) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (s *streams) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, leave, err := s.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		err = next(ctx, conn)
		if errors.Is(context.Cause(ctx), errEnding) {
			return errEnding
		}
		return err
	}
}
