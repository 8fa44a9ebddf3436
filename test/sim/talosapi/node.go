// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"google.golang.org/grpc"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/link"
	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/secrets"
	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

// node is the API side of one machine.
type node struct {
	*machine.Machine
	cluster *Cluster
	port    *link.Port
	apid    *grpc.Server

	applying sync.Mutex // Held by a call of ApplyConfiguration.

	mu        sync.Mutex
	resources *resources // Of the current boot.
	bootID    string     // The boot that resources belong to.
	version   string     // The version that the other nodes were told.
	wiped     bool       // Whether they were told that it belongs to no cluster.

	configuration configuration // What configuredNow was made from; only sync uses both.
	configuredNow []resource.Resource

	revealed    bool         // Somebody has read resources with secrets.
	secretsFrom secretsState // What secretsNow was made from.
	secretsNow  []resource.Resource

	strange strange // What the machine serves in maintenance mode; guarded by dialing.

	certificates string // What was ordered about certificates at the last look.

	dialing sync.Mutex
	remotes map[string]*grpc.ClientConn // Connections to other nodes, by target.
	dialed  *secrets.API                // The certificates that they were made with.
}

func newNode(c *Cluster, m *machine.Machine) *node {
	n := &node{
		Machine: m, cluster: c, port: link.NewPort(net.JoinHostPort(m.Address, Port)), remotes: map[string]*grpc.ClientConn{},
	}
	n.apid = newApid(n)
	return n
}

func (n *node) serve() error {
	n.certificates = tlsfault.State(n.cluster.Faults, n.Site(), "talos")
	n.sync()
	if err := n.port.Set(n.mode()); err != nil {
		return err
	}
	n.Observe(n.changed)
	go func() { _ = n.apid.Serve(n.port) }()
	return nil
}

// changed follows the machine. The other nodes hear of a new version, since their member lists show it.
func (n *node) changed() {
	n.sync()
	n.mu.Lock()
	version := n.State().Running.Version
	news := version != n.version || n.Wiped() != n.wiped
	n.version, n.wiped = version, n.Wiped()
	n.mu.Unlock()
	if news {
		n.cluster.Sync()
	}
}

// sync brings resources and port in line with the machine. It reads the state under its own lock, so that of two
// concurrent calls the later one has the last word.
func (n *node) sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	state := n.State()
	if state.APIUp && n.bootID != state.BootID {
		n.resources, n.bootID = newResources(n.cluster.Registry.of(state.Running)), state.BootID
	}
	if state.APIUp {
		n.resources.publish(n.describe(state))
	}
	// An address that cannot be bound again leaves the port closed, which is what its clients then see.
	_ = n.port.Set(n.mode())
	if certificates := tlsfault.State(n.cluster.Faults, n.Site(), "talos"); certificates != n.certificates {
		n.certificates = certificates
		n.port.Cut()
	}
}

// mode says how the port can be reached. apid does not start before it has a certificate.
func (n *node) mode() link.Mode {
	state := n.State()
	if api, _ := n.API(); !state.APIUp || api == nil && !state.Maintenance {
		return link.Closed
	}
	return Reach(n.cluster.Faults, n.Site(), "talos", n.port)
}

// reaches are the modes of a port by the modes of the fault Unreachable.
var reaches = map[string]link.Mode{"refuse": link.Closed, "blackhole": link.Blackhole, "reset": link.Reset, "slow": link.Slow}

// Reach says how an API of a running machine can be reached through a port, given the faults in force. The latest order wins.
func Reach(faults *fault.Registry, at fault.Site, api string, port *link.Port) link.Mode {
	mode := link.Open
	for _, f := range faults.Standing(fault.Unreachable, at) {
		if which := f.Params[fault.ParamAPI]; which != api && which != "both" {
			continue
		}
		mode = reaches[f.Params[fault.ParamMode]]
		if delay, err := time.ParseDuration(f.Params[fault.ParamDelay]); err == nil {
			port.SetDelay(delay)
		}
	}
	return mode
}

func (n *node) current() *resources {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.resources
}

func (n *node) close() error {
	errs := []error{n.port.Close()}
	n.apid.Stop()
	n.dialing.Lock()
	defer n.dialing.Unlock()
	for _, conn := range n.remotes {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
