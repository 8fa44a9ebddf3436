// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"io"
	"net"
	"sync"
	"time"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/link"
)

// balancerDial is how long the balancer tries to reach a control plane.
const balancerDial = time.Second

// balancer is what listens at the cluster's endpoint: it passes the bytes of each connection on to a control plane that is up, and is
// never a node itself. Like a VIP it stays with one control plane for as long as that is up.
type balancer struct {
	cluster *Cluster
	port    *link.Port

	mu     sync.Mutex
	holder *node
	closed bool
	conns  map[net.Conn]*node // Both sides of each connection, with its control plane.
}

func newBalancer(c *Cluster) *balancer {
	return &balancer{cluster: c, port: link.NewPort(net.JoinHostPort(c.Endpoint, Port)), conns: map[net.Conn]*node{}}
}

func (b *balancer) serve() error {
	b.sync()
	err := b.port.Set(b.mode())
	go b.accept()
	for _, n := range b.cluster.nodes {
		n.Observe(b.sync)
	}
	return err
}

func (b *balancer) mode() link.Mode {
	return Reach(b.cluster.Faults, fault.Site{Cluster: b.cluster.Name, Node: fault.Endpoint}, "talos", b.port)
}

// sync lets go of control planes that went down.
func (b *balancer) sync() {
	_ = b.port.Set(b.mode()) // As with the nodes' ports.
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn, n := range b.conns {
		if !n.State().APIUp {
			_ = conn.Close()
			delete(b.conns, conn)
		}
	}
}

// pick returns the control plane that holds the endpoint.
func (b *balancer) pick() *node {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holder != nil && b.holder.State().APIUp && !b.holder.State().Maintenance {
		return b.holder
	}
	b.holder = nil
	for _, n := range b.cluster.nodes {
		if state := n.State(); n.ControlPlane && state.APIUp && !state.Maintenance {
			b.holder = n
			break
		}
	}
	return b.holder
}

func (b *balancer) accept() {
	for {
		client, err := b.port.Accept()
		if err != nil {
			return
		}
		go b.pass(client)
	}
}

func (b *balancer) pass(client net.Conn) {
	defer client.Close() //nolint:errcheck // Both ends know by then.
	n := b.pick()
	if n == nil {
		return
	}
	server, err := net.DialTimeout("tcp", net.JoinHostPort(n.Address, Port), balancerDial)
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // As above.
	if !b.keep(n, client, server) {
		return
	}
	defer b.forget(client, server)
	done := make(chan struct{}, 2)
	for _, way := range []struct{ to, from net.Conn }{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way.to, way.from)
			done <- struct{}{}
		}()
	}
	<-done
}

func (b *balancer) keep(n *node, conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		b.conns[conn] = n
	}
	return !b.closed
}

func (b *balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		delete(b.conns, conn)
	}
}

func (b *balancer) close() error {
	err := b.port.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for conn := range b.conns {
		_ = conn.Close()
	}
	return err
}
