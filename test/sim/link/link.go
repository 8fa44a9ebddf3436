// SPDX-License-Identifier: Apache-2.0

// Package link is the network side of a simulated service: a listener that can be switched on and off, that can swallow
// every byte without an answer, and that cuts its connections when the machine behind it goes away.
package link

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Mode says how the port behaves towards its clients.
type Mode int

const (
	// Closed refuses connections.
	Closed Mode = iota
	// Open serves.
	Open
	// Blackhole accepts connections and never answers; established ones fall silent.
	Blackhole
	// Reset accepts connections and cuts them at once, established ones as well.
	Reset
	// Slow serves, and takes its time for each answer; see Port.SetDelay.
	Slow
)

// Port is a net.Listener for one address whose Mode can change while a server is accepting from it.
type Port struct {
	address string
	assign  func() string // Names the backend of a new connection; nil for ports without backends.

	mu     sync.Mutex
	mode   Mode
	delay  time.Duration // Of mode Slow.
	inner  net.Listener
	conns  map[*conn]struct{}
	gate   chan struct{} // Closed while bytes may flow.
	wake   chan struct{} // Closed and replaced when inner changes.
	closed bool
}

// NewPort makes a closed port for an address such as "127.1.1.1:50000".
func NewPort(address string) *Port {
	gate := make(chan struct{})
	close(gate)
	return &Port{address: address, conns: map[*conn]struct{}{}, gate: gate, wake: make(chan struct{})}
}

// NewBalancer makes a closed port whose connections each belong to a backend, as assign names them.
// CutBackend then cuts those of one backend, as a load balancer does when a server dies.
func NewBalancer(address string, assign func() string) *Port {
	p := NewPort(address)
	p.assign = assign
	return p
}

// Set changes the mode. Leaving Open for Closed cuts all connections.
func (p *Port) Set(mode Mode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode == mode {
		return nil
	}
	if err := p.listen(mode != Closed); err != nil {
		return err
	}
	p.setGate(mode != Blackhole)
	if p.mode = mode; mode == Reset {
		p.cut()
	}
	return nil
}

// SetDelay says what mode Slow adds to each answer.
func (p *Port) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut cuts all connections and goes on listening.
func (p *Port) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Port) cut() {
	for c := range p.conns {
		c.abort()
	}
	clear(p.conns)
}

func (p *Port) listen(on bool) error {
	if on == (p.inner != nil) {
		return nil
	}
	if !on {
		p.hangUp()
		return nil
	}
	inner, err := net.Listen("tcp", p.address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", p.address, err)
	}
	p.inner = inner
	p.signal()
	return nil
}

func (p *Port) hangUp() {
	if p.inner != nil {
		_ = p.inner.Close()
		p.inner = nil
	}
	p.cut()
	p.signal()
}

func (p *Port) signal() {
	close(p.wake)
	p.wake = make(chan struct{})
}

func (p *Port) setGate(open bool) {
	select {
	case <-p.gate:
		if !open {
			p.gate = make(chan struct{})
		}
	default:
		if open {
			close(p.gate)
		}
	}
}

// CutBackend cuts the connections that belong to the backend.
func (p *Port) CutBackend(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.backend == name {
			c.abort()
			delete(p.conns, c)
		}
	}
}

// Accept implements net.Listener: it waits through the times when the port is closed.
func (p *Port) Accept() (net.Conn, error) {
	for {
		inner, wake, err := p.current()
		if err != nil {
			return nil, err
		}
		if inner == nil {
			<-wake
			continue
		}
		raw, err := inner.Accept()
		if err != nil {
			if p.replaced(inner) {
				continue
			}
			return nil, err
		}
		if c := p.admit(inner, raw); c != nil {
			return c, nil
		}
	}
}

func (p *Port) current() (net.Listener, chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, net.ErrClosed
	}
	return p.inner, p.wake, nil
}

func (p *Port) replaced(inner net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inner != inner
}

func (p *Port) admit(inner net.Listener, raw net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner != inner {
		_ = raw.Close()
		return nil
	}
	c := &conn{Conn: raw, port: p, done: make(chan struct{})}
	if p.mode == Reset {
		c.abort()
		return nil
	}
	if p.assign != nil {
		c.backend = p.assign()
	}
	p.conns[c] = struct{}{}
	return c
}

// Close implements net.Listener and ends the port for good.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.hangUp()
	p.setGate(true)
	return nil
}

// Addr implements net.Listener.
func (p *Port) Addr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", p.address)
	if err != nil {
		return &net.TCPAddr{}
	}
	return addr
}

// errCut is what the server side of a cut connection sees.
var errCut = errors.New("connection cut")

// conn is a connection whose bytes pass the port's gate.
type conn struct {
	net.Conn
	port    *Port
	backend string
	once    sync.Once
	done    chan struct{}
}

// Read gates the bytes after they were read, so that a reader that waits already notices a black hole too.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if passErr := c.pass(); passErr != nil {
		return 0, passErr
	}
	return n, err
}

// Write gates the bytes before they leave.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	if err := c.dawdle(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// dawdle takes the time of a slow network.
func (c *conn) dawdle() error {
	c.port.mu.Lock()
	slow, delay := c.port.mode == Slow, c.port.delay
	c.port.mu.Unlock()
	if !slow || delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.done:
		return errCut
	}
}

func (c *conn) pass() error {
	c.port.mu.Lock()
	gate := c.port.gate
	c.port.mu.Unlock()
	select {
	case <-gate:
		return nil
	case <-c.done:
		return errCut
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.port.mu.Lock()
	delete(c.port.conns, c)
	c.port.mu.Unlock()
	return c.shut()
}

func (c *conn) shut() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.done)
		err = c.Conn.Close()
	})
	return err
}

// abort cuts the connection with a reset, as a machine that vanishes and returns would. The caller holds the port's lock.
func (c *conn) abort() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.shut()
}

// Backend is the backend that a balancer's connection belongs to, also through TLS; empty for other connections.
func Backend(c net.Conn) string {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = wrapped.NetConn()
	}
	if own, ok := c.(*conn); ok {
		return own.backend
	}
	return ""
}
