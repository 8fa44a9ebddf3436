// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"io"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/providers/talos"
)

// firstRecovered is the ID of the first member of an etcd that began with a snapshot. Those that were before had small ones.
const firstRecovered = 1000

// Staged is the snapshot that a control plane was sent; nil if it was sent none since it was wiped.
func (t *Talos) Staged(address string) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machines[address].staged
}

// Prepares says whether a control plane has no etcd, and waits for one.
func (t *Talos) Prepares(address string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machines[address].prepares
}

// Hesitate keeps a control plane without etcd from joining one, until its etcd was asked for so many times since there is one to join.
func (t *Talos) Hesitate(address string, looks int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].hesitates = looks
	t.join()
}

// GiveUp makes the etcd of a control plane give up waiting for others, if it waits, until it boots or is told to begin.
func (t *Talos) GiveUp(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].gaveUp = t.machines[address].prepares
}

// lookedFor notes that the etcd of a control plane was asked for that has none.
func (t *Talos) lookedFor(m *machine) {
	if t.leader() >= firstRecovered {
		m.hesitates = max(m.hesitates-1, 0)
		t.join()
	}
}

// LoseEtcd takes the etcd of a control plane away, as a bootstrap that a reboot overtook leaves it.
func (t *Talos) LoseEtcd(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].loseEtcd()
}

// wipesEtcd says whether a reset takes the data of etcd and leaves the machine config.
func wipesEtcd(reset talos.Reset) bool {
	return slices.Contains(reset.Partitions, constants.EphemeralPartitionLabel) && !slices.Contains(reset.Partitions, constants.StatePartitionLabel)
}

func (m *machine) loseEtcd() {
	if m.etcd != nil {
		m.prepares, m.gaveUp, m.staged = true, false, nil
		m.etcd.Members, m.etcd.Leader = nil, 0
	}
}

// join lets every control plane that has no etcd join the one that there is.
func (t *Talos) join() {
	leader := t.leader()
	if leader < firstRecovered {
		return
	}
	var members []talos.EtcdMember
	for _, m := range t.machines {
		if m.restored() && len(m.etcd.Members) > len(members) {
			members = m.etcd.Members
		}
	}
	for _, m := range t.machines {
		if m.etcd != nil && m.prepares && m.hesitates == 0 && !m.silent && !m.gaveUp {
			m.prepares = false
			m.etcd.MemberID = firstRecovered + uint64(len(members))
			m.etcd.Leader = leader
			members = append(slices.Clone(members), talos.EtcdMember{ID: m.etcd.MemberID, Hostname: m.facts.NodeName, Started: true})
		}
	}
	for _, m := range t.machines {
		if m.restored() {
			m.etcd.Members = members
		}
	}
}

// leader is the member that leads etcd; zero where there is none.
func (t *Talos) leader() uint64 {
	for _, m := range t.machines {
		if m.restored() {
			return m.etcd.Leader
		}
	}
	return 0
}

// restored says whether the machine is in the etcd that began with a snapshot. One that was not wiped keeps the one that was before.
func (m *machine) restored() bool {
	return m.etcd != nil && !m.prepares && m.etcd.Leader >= firstRecovered
}

// serveEtcd tells the service of etcd with what others are told.
func (m *machine) serveEtcd(services []talos.Service) []talos.Service {
	if m.etcd == nil {
		return services
	}
	etcd := talos.Service{ID: talos.EtcdService, State: "Running", Running: true, Healthy: true, Checked: true}
	if m.prepares {
		etcd = talos.Service{ID: talos.EtcdService, State: talos.StatePreparing}
	}
	if m.gaveUp {
		etcd.State = talos.StateFailed
	}
	return append(services, etcd)
}

func (c *client) RecoverEtcd(ctx context.Context, address string, snapshot io.Reader) error {
	data, err := io.ReadAll(snapshot)
	if err != nil {
		return err
	}
	return c.change(ctx, "RecoverEtcd", address, func(m *machine) error {
		if !m.prepares {
			return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
		}
		m.staged = data
		return nil
	})
}

func (c *client) BootstrapEtcd(ctx context.Context, address string, _ bool) error {
	var data []byte
	return c.changed(ctx, "BootstrapEtcd", address, func(m *machine) error {
		switch {
		case !m.prepares:
			return status.Error(codes.AlreadyExists, "etcd data directory is not empty")
		case m.staged == nil:
			return status.Error(codes.Unknown, "no snapshot was sent")
		}
		m.prepares, m.gaveUp, data = false, false, m.staged
		m.etcd.MemberID, m.etcd.Leader = firstRecovered, firstRecovered
		m.etcd.Members = []talos.EtcdMember{{ID: firstRecovered, Hostname: m.facts.NodeName, Started: true}}
		c.join()
		return nil
	}, func() {
		if c.Recovered != nil && data != nil {
			c.Recovered(address, data)
		}
	})
}
