// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"time"

	"ichor.maesh.dev/hub/test/sim/fault"
)

// waiting is an etcd that has no data and waits. Talos lets it wait for half an hour, and then start no more before it is told to begin or the
// machine boots.
type waiting struct {
	told   chan struct{} // Closed when it is told to begin; nil while it has not given up.
	upload []byte        // The snapshot that was uploaded since it has given up.
}

// awaitEtcd returns when the machine's member votes. One that was ordered to give up waits for no longer than that, and then for being told.
func (m *Machine) awaitEtcd(ctx context.Context) error {
	patience, limited := m.patience()
	if !limited {
		return m.env.Etcd.Join(ctx, m.Name)
	}
	joining, stop := context.WithCancel(ctx)
	defer stop()
	timer := m.env.Clock.NewTimer(patience)
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			if m.env.Etcd.Preparing(m.Name) {
				stop()
			}
		case <-joining.Done():
		}
	}()
	if err := m.env.Etcd.Join(joining, m.Name); err == nil || ctx.Err() != nil {
		return err
	}
	if err := m.giveUp(ctx); err != nil {
		return err
	}
	return m.env.Etcd.Join(ctx, m.Name)
}

// patience is how long the machine's etcd waits for others, where that was ordered.
func (m *Machine) patience() (time.Duration, bool) {
	f, stands := m.env.Faults.Stands(fault.EtcdGivesUp, m.Site())
	if !stands {
		return 0, false
	}
	patience, err := time.ParseDuration(f.Params[fault.ParamDelay])
	return patience, err == nil
}

// giveUp waits until etcd is told to begin, or until the context ends.
func (m *Machine) giveUp(ctx context.Context) error {
	told := make(chan struct{})
	m.mu.Lock()
	m.state.EtcdFailed, m.waiting = true, waiting{told: told}
	m.mu.Unlock()
	m.record("etcd", "gave up waiting")
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.state.EtcdFailed, m.waiting = false, waiting{}
	}()
	select {
	case <-told:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Upload keeps a snapshot for an etcd that has given up, and says whether it has.
func (m *Machine) Upload(snapshot []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.EtcdFailed {
		return false
	}
	m.waiting.upload = bytes.Clone(snapshot)
	return true
}

// Wake has an etcd that has given up wait once more, as it does when it is told to begin, with what was uploaded since.
func (m *Machine) Wake(ctx context.Context) error {
	m.mu.Lock()
	told, upload := m.waiting.told, m.waiting.upload
	m.state.EtcdFailed, m.waiting = false, waiting{}
	m.mu.Unlock()
	if told == nil {
		return nil
	}
	close(told)
	for !m.env.Etcd.Preparing(m.Name) {
		select {
		case <-m.env.Clock.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if upload == nil {
		return nil
	}
	return m.env.Etcd.Recover(m.Name, upload)
}
