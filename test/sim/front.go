// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"net"
	"sync"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/link"
	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/talosapi"
	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

const kubernetesPort = "6443"

// front is the network side of a cluster's Kubernetes API: a port on each control plane, and one that stands for a load
// balancer in front of them.
type front struct {
	cluster  *Cluster
	api      frontend
	servers  []*server
	balancer *link.Port

	certificates map[*link.Port]string // What was ordered about certificates at the last look.

	mu   sync.Mutex // Serializes sync.
	pick sync.Mutex // Guards what the balancer chooses from.
	up   []string   // Names of the control planes that serve.
	next int
}

// server is the Kubernetes API of one control plane.
type server struct {
	machine *machine.Machine
	port    *link.Port
}

// frontend is what serves the connections: an API server in memory, or the way to real ones.
type frontend interface {
	Serve(l net.Listener) error
	Close() error
}

func newFront(c *Cluster, api frontend) *front {
	f := &front{cluster: c, api: api, certificates: map[*link.Port]string{}}
	for _, m := range c.machines() {
		if m.ControlPlane {
			f.servers = append(f.servers, &server{machine: m, port: link.NewPort(net.JoinHostPort(m.Address, kubernetesPort))})
		}
	}
	f.balancer = link.NewBalancer(net.JoinHostPort(c.endpointIP(), kubernetesPort), f.assign)
	return f
}

// assign gives a new connection to the next server.
func (f *front) assign() string {
	f.pick.Lock()
	defer f.pick.Unlock()
	if len(f.up) == 0 {
		return ""
	}
	f.next++
	return f.up[f.next%len(f.up)]
}

func (f *front) serve() error {
	err := f.open()
	for _, s := range f.servers {
		go func() { _ = f.api.Serve(s.port) }()
	}
	go func() { _ = f.api.Serve(f.balancer) }()
	return err
}

// sync follows the machines and the faults. A port that cannot be bound again stays closed, which its clients see.
func (f *front) sync() { _ = f.open() }

func (f *front) open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	var up, down []string
	for _, s := range f.servers {
		mode := f.mode(s.machine, s.port)
		errs = append(errs, s.port.Set(mode))
		if mode == link.Open || mode == link.Slow {
			up = append(up, s.machine.Name)
		} else {
			down = append(down, s.machine.Name)
		}
	}
	f.pick.Lock()
	f.up = up
	f.pick.Unlock()
	errs = append(errs, f.balancer.Set(f.balancerMode(len(up) > 0)))
	for _, name := range down {
		f.balancer.CutBackend(name)
	}
	return errors.Join(errs...)
}

// mode says how a control plane's API server can be reached. It is a static pod beside the local etcd member.
func (f *front) mode(m *machine.Machine, port *link.Port) link.Mode {
	if !m.Serves() {
		return link.Closed
	}
	return talosapi.Reach(f.cluster.sim.faults, m.Site(), "kube", port)
}

func (f *front) balancerMode(serving bool) link.Mode {
	mode := talosapi.Reach(f.cluster.sim.faults, f.endpoint(), "kube", f.balancer)
	if !serving && (mode == link.Open || mode == link.Slow) {
		return link.Closed
	}
	return mode
}

func (f *front) endpoint() fault.Site {
	return fault.Site{Cluster: f.cluster.spec.Name, Node: fault.Endpoint}
}

// certificatesChanged cuts the connections that were made when other orders about certificates were in force.
func (f *front) certificatesChanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults := f.cluster.sim.faults
	check := func(at fault.Site, port *link.Port) {
		if state := tlsfault.State(faults, at, "kube"); state != f.certificates[port] {
			f.certificates[port] = state
			port.Cut()
		}
	}
	for _, s := range f.servers {
		check(s.machine.Site(), s.port)
	}
	check(f.endpoint(), f.balancer)
}

func (f *front) close() error {
	var errs []error
	for _, s := range f.servers {
		errs = append(errs, s.port.Close())
	}
	return errors.Join(append(errs, f.balancer.Close(), f.api.Close())...)
}
