// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"ichor.maesh.dev/hub/test/sim/link"
)

// Proxy passes connections on to the API servers as they are, so that both sides prove who they are to each other. It stands where the
// shallow simulation has an API server of its own.
type Proxy struct {
	cluster *Cluster

	mu        sync.Mutex
	listeners []net.Listener
	closed    bool
}

// Proxy makes the network side of the API servers.
func (c *Cluster) Proxy() *Proxy { return &Proxy{cluster: c} }

// Serve passes on what a listener accepts, until Close.
func (p *Proxy) Serve(l net.Listener) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return l.Close()
	}
	p.listeners = append(p.listeners, l)
	p.mu.Unlock()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go p.pass(conn)
	}
}

// Close ends all listeners. Connections end with their listeners' ports.
func (p *Proxy) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// pass connects a client with the server of the address that it has called, or of the backend that the load balancer has chosen.
func (p *Proxy) pass(client net.Conn) {
	defer client.Close() //nolint:errcheck // It may be cut already.
	n := p.cluster.nodeOf(client)
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(p.cluster.life, 5*time.Second)
	defer cancel()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.serverAddress())
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // As above.
	ended := make(chan struct{}, 2)
	for _, way := range []struct{ to, from net.Conn }{{server, client}, {client, server}} {
		go func() {
			_, _ = io.Copy(way.to, way.from)
			ended <- struct{}{}
		}()
	}
	select { // TLS says goodbye by itself; what comes after one side's end is of no use.
	case <-ended:
	case <-p.cluster.life.Done():
	}
}

// nodeOf is the machine that a connection is for, or nil.
func (c *Cluster) nodeOf(conn net.Conn) *node {
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	backend := link.Backend(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.name == backend || backend == "" && n.address == host {
			return n
		}
	}
	return nil
}
