// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Errors of beginning an etcd with a snapshot.
var (
	// ErrNotPreparing is returned by a machine that has not come up as far as its etcd.
	ErrNotPreparing = errors.New("etcd service is not ready for recovery yet")
	// ErrHasData is returned by a machine that has an etcd.
	ErrHasData = errors.New("etcd data directory is not empty")
	// ErrNothingStaged is returned by a machine that is to begin with a snapshot and was sent none.
	ErrNothingStaged = errors.New("open /var/lib/etcd.snapshot: no such file or directory")
)

// recovery is what a machine without etcd was told.
type recovery struct {
	told     chan struct{} // Closed when it is told to begin one; nil while it does not wait.
	skipHash bool
}

// beginWithoutEtcd is the state of a control plane that had no etcd when the simulation ended.
func (m *Machine) beginWithoutEtcd() {
	m.state.Stage, m.state.Ready = runtime.MachineStageBooting, false
	m.state.EtcdUp, m.state.KubeletReady = false, false
	m.starts.Kubelet = time.Time{}
}

// goOnWithoutEtcd lets such a machine go on with its boot.
func (m *Machine) goOnWithoutEtcd() {
	m.mu.Lock()
	if !m.ControlPlane || m.disk.wiped || !m.disk.etcdWiped {
		m.mu.Unlock()
		return
	}
	s := m.replace(sequenceBoot)
	m.mu.Unlock()
	go m.services(s)
}

func (m *Machine) hasNoEtcd() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk.etcdWiped
}

// getEtcd waits for an etcd: to be told to begin one, or for one of others to join.
func (m *Machine) getEtcd(s *sequence) bool {
	told := make(chan struct{})
	if !m.advance(s, func() { m.state.EtcdPreparing, m.recovery = true, recovery{told: told} }) {
		return false
	}
	m.record("etcd preparing", "")
	for {
		select {
		case <-told:
			if m.recoverEtcd(s) {
				return true
			}
			told = make(chan struct{})
			if !m.advance(s, func() { m.recovery = recovery{told: told} }) {
				return false
			}
		case joined := <-m.joinOthers(s, told):
			if joined {
				return true
			}
			if s.ctx.Err() != nil {
				return false
			}
		}
	}
}

// joinOthers joins the etcd of others as soon as there is one that takes a learner. It gives up when the machine is told to begin one.
func (m *Machine) joinOthers(s *sequence, told <-chan struct{}) <-chan bool {
	over := make(chan bool, 1)
	ctx, cancel := context.WithCancel(s.ctx)
	go func() {
		defer cancel()
		select {
		case <-told:
			cancel()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer cancel()
		id, err := m.env.Etcd.Join(ctx, m.Name, m.Address)
		if err != nil {
			<-ctx.Done()
			over <- false
			return
		}
		over <- m.runsEtcd(s, id) && timing.Sleep(s.ctx, m.env.Clock, m.env.Timings.EtcdJoin) == nil && m.env.Etcd.Promote(id)
	}()
	return over
}

// runsEtcd notes that the machine has an etcd member.
func (m *Machine) runsEtcd(s *sequence, id uint64) bool {
	m.memberID.Store(id)
	return m.advance(s, func() {
		m.disk.etcdWiped, m.disk.staged = false, nil
		m.state.EtcdPreparing, m.state.EtcdUp, m.starts.Etcd = false, true, m.env.Clock.Now()
		m.recovery = recovery{}
	})
}

// recoverEtcd begins an etcd with the snapshot that was sent.
func (m *Machine) recoverEtcd(s *sequence) bool {
	if timing.Sleep(s.ctx, m.env.Clock, m.env.Timings.EtcdJoin) != nil {
		return false
	}
	m.mu.Lock()
	data, skipHash := m.disk.staged, m.recovery.skipHash
	m.mu.Unlock()
	id, revision, err := m.env.Etcd.Recover(m.Name, m.Address, data, skipHash)
	if err != nil {
		m.record("etcd not recovered", err.Error())
		return false
	}
	m.record("etcd recovered", revision)
	return m.runsEtcd(s, id)
}

// StageRecovery keeps a snapshot for an etcd to begin with.
func (m *Machine) StageRecovery(data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.APIUp || m.state.Maintenance {
		return ErrNotPreparing
	}
	m.disk.staged = data
	return nil
}

// Bootstrap tells the machine to begin an etcd with the snapshot that it was sent. It returns before that has begun, and a reboot forgets it.
func (m *Machine) Bootstrap(skipHash bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.disk.etcdWiped:
		return ErrHasData
	case m.recovery.told == nil || !m.state.EtcdPreparing:
		return ErrNotPreparing
	case m.disk.staged == nil:
		return ErrNothingStaged
	}
	if _, lost := m.env.Faults.Fire(fault.BootstrapLost, m.Site()); lost {
		return nil
	}
	select {
	case <-m.recovery.told: // It was told before.
	default:
		m.recovery.skipHash = skipHash
		close(m.recovery.told)
	}
	return nil
}
