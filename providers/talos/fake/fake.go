// SPDX-License-Identifier: Apache-2.0

// Package fake stands in for the Talos API of targets in tests: it takes orders, keeps minutes, and behaves like machines that work.
package fake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// Talos is a talos.Provider whose machines live in memory.
type Talos struct {
	*script.Script

	// Rebooted is called after a machine has booted, if it is set.
	Rebooted func(address string, now talos.Machine)

	// PoweredOff is called after a machine has powered off, if it is set.
	PoweredOff func(address string)

	// Applied is called after a machine has taken a config in force, if it is set: what the machine runs lives here.
	Applied func(address string, data []byte)

	// Provisioned is called after a machine in maintenance mode has booted with the machine config that it was given, if it is set.
	Provisioned func(address string, config []byte)

	// Recovered is called after etcd has begun with a snapshot, if it is set: what is in the snapshot lives here.
	Recovered func(address string, snapshot []byte)

	mu        sync.Mutex
	machines  map[string]*machine
	manifests []map[string]any
}

type machine struct {
	facts     talos.Machine
	etcd      *talos.Etcd
	config    talos.Config
	files     map[string]file
	snapshot  []byte
	runs      talos.Kubernetes
	installed string
	exitCode  int32
	fallsBack bool
	hangs     bool
	boots     int
	silent    bool
	services  []talos.Service
	volumes   []talos.Volume
	size      int64
	wiped     *talos.Reset
	unseen    bool

	// blank is what a machine in maintenance mode tells; nil for one that has a machine config. learns is how many times the etcd of a control
	// plane that joins is asked for before it votes.
	blank  *talos.Unconfigured
	learns int

	// prepares control planes have no etcd and wait for one; staged is the snapshot that they were sent. They join none before their etcd was
	// asked for as many times as they hesitate, or while they have given up.
	prepares  bool
	gaveUp    bool
	hesitates int
	staged    []byte
}

// New returns a Talos without machines.
func New() *Talos { return &Talos{Script: script.New(), machines: map[string]*machine{}} }

// Add makes a machine answer at an address. etcd is nil for a worker.
func (t *Talos) Add(address string, facts talos.Machine, etcd *talos.Etcd) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address] = &machine{facts: facts, etcd: etcd}
}

// Change changes what a machine tells.
func (t *Talos) Change(address string, change func(*talos.Machine, *talos.Etcd)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[address]
	change(&m.facts, m.etcd)
}

// FallBack makes the next boot of a machine end in the old system.
func (t *Talos) FallBack(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].fallsBack = true
}

// ExitWith makes the installer of a machine end with an exit code from now on.
func (t *Talos) ExitWith(address string, code int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].exitCode = code
}

// Hang makes a machine hear of reboots and shutdowns and stay in a stage from then on, until it is power-cycled.
func (t *Talos) Hang(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].hangs = true
}

// PowerCycle boots a machine, whatever it does.
func (t *Talos) PowerCycle(address string) {
	t.mu.Lock()
	m := t.machines[address]
	m.hangs, m.silent, m.facts.Stage = false, false, talos.StageRunning
	m.boot()
	now := m.facts
	t.mu.Unlock()
	if t.Rebooted != nil {
		t.Rebooted(address, now)
	}
}

// Silence makes a machine answer nothing, or answer again.
func (t *Talos) Silence(address string, silent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].silent = silent
}

// Facts are what a machine tells now.
func (t *Talos) Facts(address string) talos.Machine {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machines[address].facts
}

// Reader implements talos.Provider.
func (t *Talos) Reader(context.Context, target.Target) (talos.Reader, error) {
	return &client{Talos: t}, nil
}

// Writer implements talos.Provider.
func (t *Talos) Writer(_ context.Context, _ target.Target, g guard.Func) (talos.Writer, error) {
	return &client{Talos: t, guard: g}, nil
}

type client struct {
	*Talos

	guard guard.Func
}

func (c *client) find(address string) (*machine, error) {
	m, ok := c.machines[address]
	if !ok || m.silent {
		return nil, status.Errorf(codes.Unavailable, "no machine answers at %s", address)
	}
	return m, nil
}

func (c *client) Machine(ctx context.Context, address string) (talos.Machine, error) {
	if err := c.Look(ctx, "Machine", address); err != nil {
		return talos.Machine{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return talos.Machine{}, err
	}
	return m.facts, nil
}

func (c *client) Etcd(_ context.Context, address string) (talos.Etcd, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return talos.Etcd{}, err
	}
	if m.etcd == nil {
		return talos.Etcd{}, status.Error(codes.Unimplemented, "status is only available on control plane nodes")
	}
	if m.prepares {
		c.lookedFor(m)
		return talos.Etcd{}, status.Error(codes.Unavailable, "connection error: desc = \"transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused\"")
	}
	c.asked(m)
	etcd := *m.etcd
	etcd.Members = slices.Clone(m.etcd.Members)
	return etcd, nil
}

func (c *client) Members(context.Context) ([]talos.Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var members []talos.Member
	for address, m := range c.machines {
		members = append(members, talos.Member{Hostname: m.facts.NodeName, Addresses: []string{address}, ControlPlane: m.etcd != nil})
	}
	return members, nil
}

// change carries out a call that changes a machine: the guard first, then the script, then the effect.
func (c *client) change(ctx context.Context, call, address string, effect func(*machine) error) error {
	return c.changed(ctx, call, address, effect, func() {})
}

// changed is change, and calls then as a part of the effect, without holding anything.
func (c *client) changed(ctx context.Context, call, address string, effect func(*machine) error, then func()) error {
	if err := guard.Check(guard.With(ctx, c.guard), call); err != nil {
		return err
	}
	return c.Run(ctx, call, address, func() error {
		if err := c.affect(address, effect); err != nil {
			return err
		}
		then()
		return nil
	})
}

func (c *client) affect(address string, effect func(*machine) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return err
	}
	return effect(m)
}

func (c *client) PullImage(ctx context.Context, address, image string) (string, error) {
	return image, c.change(ctx, "PullImage", address, func(*machine) error { return nil })
}

func (c *client) InstallImage(ctx context.Context, address, image string) (code int32, err error) {
	err = c.change(ctx, "InstallImage", address, func(m *machine) error {
		if code = m.exitCode; code == 0 {
			m.installed = image
		}
		return nil
	})
	return code, err
}

// Upgrade installs and boots at once, whatever version runs.
func (c *client) Upgrade(ctx context.Context, address, image string) error {
	return c.reboots(ctx, "Upgrade", address, talos.StageUpgrading, func(m *machine) { m.installed = image })
}

func (c *client) ForfeitLeadership(ctx context.Context, address string) error {
	return c.change(ctx, "ForfeitLeadership", address, func(m *machine) error {
		for _, member := range m.etcd.Members {
			if member.ID != m.etcd.MemberID {
				c.elect(member.ID)
				break
			}
		}
		return nil
	})
}

func (c *client) elect(leader uint64) {
	for _, m := range c.machines {
		if m.etcd != nil {
			m.etcd.Leader = leader
		}
	}
}

func (c *client) Reboot(ctx context.Context, address string, _ v1alpha1.RebootMode) error {
	return c.reboots(ctx, "Reboot", address, talos.StageRebooting, func(*machine) {})
}

// reboots carries out a call that ends in a boot, unless the machine hangs on the way there.
func (c *client) reboots(ctx context.Context, call, address, stage string, before func(*machine)) error {
	if err := guard.Check(guard.With(ctx, c.guard), call); err != nil {
		return err
	}
	return c.Run(ctx, call, address, func() error {
		now, booted, err := c.boot(address, stage, before)
		if booted && c.Rebooted != nil {
			c.Rebooted(address, now)
		}
		return err
	})
}

func (c *client) boot(address, stage string, before func(*machine)) (now talos.Machine, booted bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return talos.Machine{}, false, err
	}
	before(m)
	if m.hangs {
		m.facts.Stage = stage
		return m.facts, false, nil
	}
	m.boot()
	return m.facts, true, nil
}

// boot takes the installed system, unless it falls back.
func (m *machine) boot() {
	m.boots++
	m.facts.BootID = fmt.Sprintf("%s-boot-%d", m.facts.NodeName, m.boots)
	if m.installed != "" && !m.fallsBack {
		name, version, _ := strings.Cut(m.installed[strings.LastIndex(m.installed, "/")+1:], ":")
		m.facts.SchematicID, m.facts.Version = name, version
	}
	m.installed, m.fallsBack, m.gaveUp = "", false, false
	m.config.Active = m.config.Persistent
}
