// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/talos"
)

// Serve gives a machine services.
func (t *Talos) Serve(address string, services ...talos.Service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].services = services
}

// Hold gives a machine volumes.
func (t *Talos) Hold(address string, volumes ...talos.Volume) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].volumes = volumes
}

// Wiped is what a machine was last told to wipe; nil if it never was.
func (t *Talos) Wiped(address string) *talos.Reset {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machines[address].wiped
}

// Unseen keeps a machine from being seen in maintenance mode, as where it gets another address there.
func (t *Talos) Unseen(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].unseen = true
}

func (c *client) Services(_ context.Context, address string) ([]talos.Service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return nil, err
	}
	return m.serveEtcd(slices.Clone(m.services)), nil
}

func (c *client) Volumes(_ context.Context, address string) ([]talos.Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return nil, err
	}
	return slices.Clone(m.volumes), nil
}

// Maintenance answers for a machine whose system was wiped and that was not powered off.
func (c *client) Maintenance(_ context.Context, address string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.machines[address]
	if ok && m.blank != nil {
		return m.blank.UUID, nil
	}
	if !ok || m.unseen || m.wiped == nil || len(m.wiped.Partitions) == 0 || m.wiped.PowerOff || wipesEtcd(*m.wiped) {
		return "", status.Errorf(codes.Unavailable, "no machine in maintenance mode answers at %s", address)
	}
	return m.facts.UUID, nil
}

// Reset wipes a machine. With its system it loses what it needs to answer; without, it boots into the same one.
func (c *client) Reset(ctx context.Context, address string, reset talos.Reset) error {
	if wipesEtcd(reset) && !reset.PowerOff {
		return c.reboots(ctx, "Reset", address, talos.StageResetting, func(m *machine) {
			m.wiped = &reset
			m.loseEtcd()
		})
	}
	if len(reset.Partitions) > 0 || reset.PowerOff {
		return c.goesDown(ctx, "Reset", address, talos.StageResetting, func(m *machine) { m.wiped = &reset })
	}
	return c.reboots(ctx, "Reset", address, talos.StageResetting, func(m *machine) { m.wiped = &reset })
}

// goesDown carries out a call after which a machine answers no more.
func (c *client) goesDown(ctx context.Context, call, address, stage string, before func(*machine)) error {
	if err := guard.Check(guard.With(ctx, c.guard), call); err != nil {
		return err
	}
	return c.Run(ctx, call, address, func() error {
		down, err := c.down(address, stage, before)
		if down && c.PoweredOff != nil {
			c.PoweredOff(address)
		}
		return err
	})
}

func (c *client) down(address, stage string, before func(*machine)) (down bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return false, err
	}
	if m.hangs {
		m.facts.Stage = stage
		return false, nil
	}
	before(m)
	m.silent = true
	return true, nil
}

// RestartService starts a service anew, a second later than before.
func (c *client) RestartService(ctx context.Context, address, service string) error {
	return c.change(ctx, "RestartService", address, func(m *machine) error {
		for i := range m.services {
			if s := &m.services[i]; s.ID == service {
				s.Started, s.Running = s.Started.Add(time.Second), true
				return nil
			}
		}
		return status.Errorf(codes.Unknown, "service %q not defined", service)
	})
}

// Defragment halves the database of a member.
func (c *client) Defragment(ctx context.Context, address string) (before, after int64, err error) {
	err = c.change(ctx, "Defragment", address, func(m *machine) error {
		before = max(m.size, 2<<20)
		m.size = before / 2
		after = m.size
		return nil
	})
	return before, after, err
}

func (c *client) DisarmAlarms(ctx context.Context, address string) error {
	return c.change(ctx, "DisarmAlarms", address, func(*machine) error {
		for _, m := range c.machines {
			if m.etcd != nil {
				m.etcd.Alarms = nil
			}
		}
		return nil
	})
}

func (c *client) LeaveEtcd(ctx context.Context, address string) error {
	return c.change(ctx, "LeaveEtcd", address, func(m *machine) error {
		c.forgetMember(m.etcd.MemberID)
		m.etcd.Members = nil
		return nil
	})
}

func (c *client) RemoveEtcdMember(ctx context.Context, address string, id uint64) error {
	return c.change(ctx, "RemoveEtcdMember", address, func(*machine) error {
		c.forgetMember(id)
		return nil
	})
}

// forgetMember takes a member out of the list of every member.
func (c *client) forgetMember(id uint64) {
	for _, m := range c.machines {
		if m.etcd != nil {
			m.etcd.Members = slices.DeleteFunc(slices.Clone(m.etcd.Members), func(other talos.EtcdMember) bool { return other.ID == id })
		}
	}
}
