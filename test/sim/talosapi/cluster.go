// SPDX-License-Identifier: Apache-2.0

// Package talosapi serves the Talos API of simulated machines over gRPC and mutual TLS: apid's routing, role checks, and the
// services behind it. What a method is not simulated for answers Unimplemented.
package talosapi

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/siderolabs/grpc-proxy/proxy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Port is where every Talos node listens.
const Port = "50000"

// Options say what a cluster's Talos API needs to know besides its machines.
type Options struct {
	// Name is the cluster's name.
	Name string
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
}

// Cluster serves the Talos API of one cluster's machines. Behind the nodes' own apid servers there is one shared server
// with the services, which keeps a node cheap.
type Cluster struct {
	Options

	listener *bufconn.Listener
	services *grpc.Server
	local    *grpc.ClientConn

	nodes    []*node
	byName   map[string]*node // By name and by address.
	balancer *balancer        // Nil without an endpoint.
}

// New makes the API of the machines, switched off until Serve.
func New(o Options, machines []*machine.Machine) (*Cluster, error) {
	c := &Cluster{Options: o, listener: bufconn.Listen(256 << 10), byName: map[string]*node{}}
	for _, m := range machines {
		n := newNode(c, m)
		c.nodes = append(c.nodes, n)
		c.byName[m.Name], c.byName[m.Address] = n, n
	}
	if o.Endpoint != "" {
		c.balancer = newBalancer(c)
	}
	c.services = newServices(c)
	var err error
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
	errs = append(errs, c.local.Close())
	c.services.Stop()
	return errors.Join(errs...)
}
