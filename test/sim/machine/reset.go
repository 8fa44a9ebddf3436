// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"ichor.maesh.dev/hub/test/sim/secrets"
)

const sequenceReset = "reset"

// Reset is what a reset wipes, checked already.
type Reset struct {
	// Graceful resets drain the node and have its etcd member leave first.
	Graceful bool
	// System wipes the system disk: the named partitions, or without any all of it.
	System     bool
	Partitions []string
	// Disks are other disks, by their paths.
	Disks []string
	// Reboot boots afterwards; otherwise the machine powers off.
	Reboot bool
}

// wipes says whether the reset takes the machine config away.
func (r Reset) wipes() bool {
	return r.System && (len(r.Partitions) == 0 || slices.Contains(r.Partitions, constants.StatePartitionLabel))
}

// wipesEtcd says whether the reset takes the data of etcd away, which is on a volume of its own on some machines.
func (r Reset) wipesEtcd(volumes []string) bool {
	label := constants.EphemeralPartitionLabel
	if slices.Contains(volumes, constants.EtcdDataVolumeID) {
		label = constants.EtcdDataVolumeID
	}
	return r.System && (len(r.Partitions) == 0 || slices.Contains(r.Partitions, label))
}

// wipesVar says whether the reset takes away what components keep on disk.
func (r Reset) wipesVar() bool {
	return r.System && (len(r.Partitions) == 0 || slices.Contains(r.Partitions, constants.EphemeralPartitionLabel))
}

// everything says whether the reset takes Talos itself away.
func (r Reset) everything() bool { return r.System && len(r.Partitions) == 0 }

func (r Reset) String() string {
	if r.everything() {
		return strings.Join(append([]string{"everything"}, r.Disks...), ",")
	}
	return strings.Join(slices.Concat(r.Partitions, r.Disks), ",")
}

// Reset starts the reset sequence and returns the actor ID of its events.
func (m *Machine) Reset(r Reset) string {
	return m.start(sequenceReset, func(s *sequence) { m.reset(s, r) })
}

func (m *Machine) reset(s *sequence, r Reset) {
	if !m.begin(s, runtime.MachineStageResetting) {
		return
	}
	if r.Graceful {
		_ = m.drain(s)
		if err := m.leaveForReset(s.ctx); err != nil {
			m.fail(s, fmt.Errorf("error running phase 4 in reset sequence: task 1/1: failed, %w", err))
			return
		}
	}
	if !m.wait(s, m.env.Timings.Stop) || !m.wipe(s, r) {
		return
	}
	m.record("wiped", r.String())
	if m.away(s, sequenceReset, r.Reboot) {
		m.boot(s)
	}
}

// wipe stops etcd where it has to, and carries out what a reset wipes.
func (m *Machine) wipe(s *sequence, r Reset) bool {
	etcd := m.ControlPlane && r.wipesEtcd(m.SystemVolumes)
	ok := m.advance(s, func() {
		m.disk.wipe(r)
		m.wipeSecrets(r)
		if etcd {
			m.state.EtcdUp, m.starts.Etcd = false, time.Time{}
		}
	})
	if ok && etcd {
		m.env.Etcd.Down(m.Name)
		m.env.Etcd.Wipe(m.Name)
	}
	return ok
}

// leaveForReset leaves etcd, where there is anything to leave.
func (m *Machine) leaveForReset(ctx context.Context) error {
	if !m.ControlPlane || !m.State().EtcdUp {
		return nil
	}
	return m.LeaveEtcd(ctx)
}

// wipe carries out what a reset wipes.
func (d *disk) wipe(r Reset) {
	if r.wipes() {
		d.wiped, d.dead = true, r.everything()
	}
}

// LeaveEtcd removes the machine's own etcd member, stops it and deletes its data.
func (m *Machine) LeaveEtcd(ctx context.Context) error {
	if err := m.env.Etcd.Remove(ctx, m.Name, m.MemberID()); err != nil {
		return err
	}
	m.StopEtcd()
	m.record("left etcd", "")
	return nil
}

// StopEtcd stops the etcd member, which does not belong to the cluster any more.
func (m *Machine) StopEtcd() {
	m.mu.Lock()
	m.state.EtcdUp, m.starts.Etcd = false, time.Time{}
	m.mu.Unlock()
	m.notify()
}

// maintain brings up what a machine without a machine config has: an API that asks for one. Without Talos on its disk not even that.
func (m *Machine) maintain(s *sequence) {
	m.mu.Lock()
	if m.sequence != s || m.disk.dead {
		m.mu.Unlock()
		return
	}
	m.sequence = nil
	m.wake(s)
	m.state.Stage, m.state.Maintenance = runtime.MachineStageMaintenance, true
	m.events.status(m.state)
	m.mu.Unlock()
	m.record("maintenance", m.State().Running.Version)
	m.notify()
}

// beginWiped is the state of a machine that was reset before the simulation began.
func (m *Machine) beginWiped() {
	m.state = State{Stage: runtime.MachineStageMaintenance, BootID: m.state.BootID, APIUp: !m.disk.dead, Maintenance: !m.disk.dead}
	m.starts = Starts{System: m.env.Clock.Now()}
	m.secrets.base = &secrets.Files{} // The kubelet has to ask for a client certificate.
	if m.ControlPlane {
		m.env.Etcd.Know(m.Name, m.Address)
	}
	m.events.status(m.state)
}

// Wiped says that the machine has lost its machine config: it belongs to no cluster.
func (m *Machine) Wiped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk.wiped
}
