// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/talos"
)

// AddBlank makes a machine wait in maintenance mode at an address. facts are what it tells once it has booted with a machine config; a control
// plane then joins the etcd of the others.
func (t *Talos) AddBlank(address string, found talos.Unconfigured, facts talos.Machine, controlPlane bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &machine{facts: facts, silent: true, blank: &found}
	if controlPlane {
		m.etcd = &talos.Etcd{}
	}
	t.machines[address] = m
}

// ChangeBlank changes what a machine in maintenance mode tells.
func (t *Talos) ChangeBlank(address string, change func(*talos.Unconfigured)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t.machines[address].blank)
}

// Learn makes the member of a control plane that joins stay a learner until its etcd was asked for so many times.
func (t *Talos) Learn(address string, looks int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].learns = looks
}

// Inspect implements talos.Reader.
func (c *client) Inspect(ctx context.Context, address, fingerprint string) (talos.Unconfigured, error) {
	if err := c.Look(ctx, "Inspect", address); err != nil {
		return talos.Unconfigured{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.findBlank(address, fingerprint)
	if err != nil {
		return talos.Unconfigured{}, err
	}
	return *m.blank, nil
}

func (c *client) findBlank(address, fingerprint string) (*machine, error) {
	m, ok := c.machines[address]
	switch {
	case !ok || m.blank == nil:
		return nil, status.Errorf(codes.Unavailable, "no machine in maintenance mode answers at %s", address)
	case fingerprint != "" && m.blank.Fingerprint != fingerprint:
		return nil, &talos.FingerprintError{Address: address, Want: fingerprint, Got: m.blank.Fingerprint}
	}
	return m, nil
}

// Provision has a machine boot with its machine config at once. A control plane joins as a learner.
func (c *client) Provision(ctx context.Context, address, fingerprint string, config []byte) error {
	if err := guard.Check(guard.With(ctx, c.guard), "Provision"); err != nil {
		return err
	}
	return c.Run(ctx, "Provision", address, func() error {
		if err := c.provision(address, fingerprint, config); err != nil {
			return err
		}
		if c.Provisioned != nil {
			c.Provisioned(address, config)
		}
		return nil
	})
}

func (c *client) provision(address, fingerprint string, config []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.findBlank(address, fingerprint)
	if err != nil {
		return err
	}
	m.blank, m.silent, m.wiped = nil, false, nil
	m.config = talos.Config{Active: slices.Clone(config), Persistent: slices.Clone(config)}
	if m.etcd != nil {
		c.joinAsLearner(m)
	}
	return nil
}

// joinAsLearner makes a machine a member of the etcd that the others have.
func (c *client) joinAsLearner(m *machine) {
	var members []talos.EtcdMember
	var leader, id uint64
	for _, other := range c.machines {
		if other == m || other.etcd == nil || other.silent {
			continue
		}
		members, leader = other.etcd.Members, other.etcd.Leader
	}
	for _, member := range members {
		id = max(id, member.ID)
	}
	m.etcd.MemberID, m.etcd.Leader, m.etcd.Learner = id+1, leader, m.learns > 0
	joined := talos.EtcdMember{ID: id + 1, Hostname: m.facts.NodeName, Started: true, Learner: m.learns > 0}
	for _, other := range c.machines {
		if other.etcd != nil && (!other.silent || other == m) {
			other.etcd.Members = append(slices.Clone(members), joined)
		}
	}
}

// asked promotes a learner that was asked for often enough.
func (t *Talos) asked(m *machine) {
	if m.learns == 0 || !m.etcd.Learner {
		return
	}
	m.learns--
	if m.learns > 0 {
		return
	}
	m.etcd.Learner = false
	for _, other := range t.machines {
		if other.etcd == nil {
			continue
		}
		other.etcd.Members = slices.Clone(other.etcd.Members)
		for i := range other.etcd.Members {
			if other.etcd.Members[i].ID == m.etcd.MemberID {
				other.etcd.Members[i].Learner = false
			}
		}
	}
}
