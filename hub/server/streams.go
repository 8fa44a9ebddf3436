// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync"

	"connectrpc.com/connect"
)

// errEnding is what open streams hear when the hub ends. Another replica, or the next hub, goes on where they were.
var errEnding = connect.NewError(connect.CodeUnavailable, errors.New("this hub is shutting down: connect again"))

// streams are the open ones. They have no end of their own, so a server that ends has to end them.
type streams struct {
	mu    sync.Mutex
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

// enter notes a stream down, until leave is called.
func (s *streams) enter(ctx context.Context) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		cancel(errEnding)
	}
	if s.open == nil {
		s.open = map[uint64]context.CancelCauseFunc{}
	}
	s.last++
	id := s.last
	s.open[id] = cancel
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
		cancel(nil)
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
		ctx, leave := s.enter(ctx)
		defer leave()
		err := next(ctx, conn)
		if errors.Is(context.Cause(ctx), errEnding) {
			return errEnding
		}
		return err
	}
}
