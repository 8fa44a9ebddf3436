// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"sync"

	"google.golang.org/grpc"
)

// calls counts the calls that are under way on a connection, so that it can be closed after the last one.
type calls struct {
	mu      sync.Mutex
	running int
	end     func()
}

func (c *calls) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
}

func (c *calls) exit() {
	c.mu.Lock()
	c.running--
	c.mu.Unlock()
	c.endIfOver()
}

// endWith calls end when no call is under way any more.
func (c *calls) endWith(end func()) {
	c.mu.Lock()
	c.end = sync.OnceFunc(end)
	c.mu.Unlock()
	c.endIfOver()
}

func (c *calls) endIfOver() {
	c.mu.Lock()
	end, over := c.end, c.running == 0
	c.mu.Unlock()
	if end != nil && over {
		end()
	}
}

func (c *calls) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c.enter()
	defer c.exit()
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (c *calls) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.enter()
	stream, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		c.exit()
		return nil, err
	}
	counted := &countedStream{ClientStream: stream, over: sync.OnceFunc(c.exit)}
	context.AfterFunc(ctx, counted.over) // Whoever loses interest does not read to the end.
	return counted, nil
}

// countedStream tells when it has been read to its end.
type countedStream struct {
	grpc.ClientStream

	over func()
}

// RecvMsg implements grpc.ClientStream.
func (s *countedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		s.over()
	}
	return err
}
