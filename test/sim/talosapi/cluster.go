// SPDX-License-Identifier: Apache-2.0

// Package talosapi serves the Talos API of simulated machines over gRPC and mutual TLS: apid's routing, role checks, and the
// services behind it. What a method is not simulated for answers Unimplemented.
package talosapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/siderolabs/grpc-proxy/proxy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/pki"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Port is where every Talos node listens.
const Port = "50000"

// Options say what a cluster's Talos API needs to know besides its machines.
type Options struct {
	// Name is the cluster's name.
	Name string
	// PKI issues the certificates.
	PKI *pki.PKI
	// Journal records every call.
	Journal *journal.Journal
	// Faults are asked for what cuts a node off.
	Faults *fault.Registry
	// Registry knows the resource types; one serves all clusters.
	Registry *Registry
	// Clock and Timings pace what waits.
	Clock   clock.Clock
	Timings timing.Timings
	// Endpoint is the address of the load balancer or the VIP in front of the control planes; empty for none.
	Endpoint string
	// Kubeconfig is what MachineService.Kubeconfig returns.
	Kubeconfig []byte
}

// Cluster serves the Talos API of one cluster's machines. Behind the nodes' own apid servers there is one shared server
// with the services, which keeps a node cheap.
type Cluster struct {
	Options
	forwarder tls.Certificate

	listener *bufconn.Listener
	services *grpc.Server
	local    *grpc.ClientConn

	nodes    []*node
	byName   map[string]*node // By name and by address.
	balancer *balancer        // Nil without an endpoint.

	mu      sync.Mutex
	remotes map[string]*grpc.ClientConn // Connections between nodes, by target.
}

// New makes the API of the machines, switched off until Serve.
func New(o Options, machines []*machine.Machine) (*Cluster, error) {
	forwarder, err := o.PKI.TalosForwarder(o.Name + "-apid")
	if err != nil {
		return nil, fmt.Errorf("certificate for forwarding: %w", err)
	}
	c := &Cluster{
		Options: o, forwarder: forwarder, listener: bufconn.Listen(256 << 10),
		byName: map[string]*node{}, remotes: map[string]*grpc.ClientConn{},
	}
	for _, m := range machines {
		if err := c.add(m); err != nil {
			return nil, fmt.Errorf("node %s: %w", m.Name, err)
		}
	}
	if o.Endpoint != "" {
		c.balancer = newBalancer(c)
	}
	c.services = newServices(c)
	c.local, err = grpc.NewClient("passthrough:///local",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(proxy.Codec())),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the services: %w", err)
	}
	return c, nil
}

func (c *Cluster) add(m *machine.Machine) error {
	n, err := newNode(c, m)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, n)
	c.byName[m.Name], c.byName[m.Address] = n, n
	return nil
}

// Serve opens every node's port.
func (c *Cluster) Serve() error {
	go func() { _ = c.services.Serve(c.listener) }()
	for _, n := range c.nodes {
		if err := n.serve(); err != nil {
			return err
		}
	}
	if c.balancer != nil {
		return c.balancer.serve()
	}
	return nil
}

// Sync carries the machines' state and the standing faults to the ports and resources.
func (c *Cluster) Sync() {
	for _, n := range c.nodes {
		n.sync()
	}
	if c.balancer != nil {
		c.balancer.sync()
	}
}

// Close ends everything.
func (c *Cluster) Close() error {
	errs := []error{}
	if c.balancer != nil {
		errs = append(errs, c.balancer.close())
	}
	for _, n := range c.nodes {
		errs = append(errs, n.close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.remotes {
		errs = append(errs, conn.Close())
	}
	errs = append(errs, c.local.Close())
	c.services.Stop()
	return errors.Join(errs...)
}
