// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// memory is a listener whose connections never leave the process.
type memory struct {
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newMemory() *memory { return &memory{incoming: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements net.Listener.
func (m *memory) Accept() (net.Conn, error) {
	select {
	case conn := <-m.incoming:
		return conn, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

// Addr implements net.Listener.
func (m *memory) Addr() net.Addr { return memoryAddress{} }

// dial connects to the listener.
func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case m.incoming <- far:
		return near, nil
	case <-m.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// client speaks HTTP/2 over such connections: many calls and streams share one.
func (m *memory) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: m.dial, Protocols: onlyHTTP2(), DisableCompression: true}}
}

func onlyHTTP2() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// memoryAddress is the address of whoever calls from the same process.
type memoryAddress struct{}

// Network implements net.Addr.
func (memoryAddress) Network() string { return "memory" }

// String implements net.Addr.
func (memoryAddress) String() string { return "memory" }
