// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Kubernetes is what a machine does at its cluster's Kubernetes API, with its kubelet's credentials.
type Kubernetes interface {
	// Drain cordons the node and evicts its pods. What a disruption budget holds back is left behind after a while, without
	// an error; an API that cannot be reached is one.
	Drain(ctx context.Context, node string) error
	// Uncordon takes back a cordon of Drain, and nobody else's.
	Uncordon(ctx context.Context, node string) error
}

// Upgrade is what a call of the older upgrade API asks for.
type Upgrade struct {
	// Image is the installer's reference.
	Image string
	// Stage puts the installation off until the next boot.
	Stage bool
	// Force and Preserve skip the check of etcd.
	Force, Preserve bool
}

// Upgrade is the older upgrade API. It pulls and checks the image, and etcd on control planes, while the caller waits; then it
// starts a sequence that drains, installs and reboots, and returns the actor ID of its events.
func (m *Machine) Upgrade(ctx context.Context, u Upgrade) (string, error) {
	image, err := m.pullInstaller(ctx, u.Image)
	if err != nil {
		return "", fmt.Errorf("error validating installer image %q: %w", u.Image, err)
	}
	if m.ControlPlane && !u.Force && !u.Preserve {
		if err := m.env.Etcd.ValidateForUpgrade(ctx); err != nil {
			return "", fmt.Errorf("error validating etcd for upgrade: %w", err)
		}
	}
	if !u.Stage {
		return m.start(sequenceUpgrade, func(s *sequence) { m.upgrade(s, image.System) }), nil
	}
	if err := m.stageUpgrade(u); err != nil {
		return "", err
	}
	return m.start(sequenceStageUpgrade, func(s *sequence) {
		if m.windDown(s, runtime.MachineStageUpgrading) && m.away(s, "reboot", true) {
			m.boot(s)
		}
	}), nil
}

func (m *Machine) pullInstaller(ctx context.Context, ref string) (Image, error) {
	image, err := m.Pull(ctx, SystemStore, ref)
	if err == nil && image.System == (Slot{}) {
		err = ErrNoInstaller
	}
	return image, err
}

// upgrade drains, stops everything but the API, installs and reboots. Any failure is fatal: the machine reboots then, too.
func (m *Machine) upgrade(s *sequence, system Slot) {
	if !m.begin(s, runtime.MachineStageUpgrading) {
		return
	}
	if err := m.phase(s, 1, "drain", func() error { return m.drain(s) }); err != nil {
		m.fail(s, err)
		return
	}
	if !m.stopServices(s) {
		return
	}
	if err := m.phase(s, 9, "upgrade", func() error { return m.runInstaller(s, system) }); err != nil {
		m.fail(s, err)
		return
	}
	m.reloadMeta()
	if m.enter(s, runtime.MachineStageRebooting) && m.stopEverything(s) && m.away(s, "reboot", true) {
		m.boot(s)
	}
}

// phase surrounds a part of a sequence with its events. The number is its place in Talos's own sequence.
func (m *Machine) phase(s *sequence, number int, name string, run func() error) error {
	events := m.Events()
	events.phase(name, machineapi.PhaseEvent_START, s.actor)
	defer events.phase(name, machineapi.PhaseEvent_STOP, s.actor)
	if err := run(); err != nil {
		return fmt.Errorf("error running phase %d in %s sequence: task 1/1: failed, %w", number, s.name, err)
	}
	return nil
}

func (m *Machine) drain(s *sequence) error {
	if m.env.Kubernetes == nil {
		return nil
	}
	if err := m.env.Kubernetes.Drain(s.ctx, m.Name); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	m.record("drained", "")
	return nil
}

// uncordon takes the machine's own cordon back once its node is there again.
func (m *Machine) uncordon(s *sequence) {
	if m.env.Kubernetes != nil {
		_ = m.env.Kubernetes.Uncordon(s.ctx, m.Name)
	}
}

// stopServices ends the kubelet and etcd: the installer is to have the disk for itself.
func (m *Machine) stopServices(s *sequence) bool {
	if !m.wait(s, m.env.Timings.Stop) || !m.advance(s, m.stopped) {
		return false
	}
	if m.ControlPlane {
		m.env.Etcd.Down(m.Name)
	}
	return true
}

func (m *Machine) stopped() {
	m.kubelet.end()
	m.state.EtcdUp, m.state.KubeletReady, m.state.KubeletRestarting = false, false, false
	m.starts.Etcd, m.starts.Kubelet = time.Time{}, time.Time{}
}

// stopEverything is the last phase with an API. Its task is what clients take for the beginning of the reboot.
func (m *Machine) stopEverything(s *sequence) bool {
	events := m.Events()
	events.phase("stopEverything", machineapi.PhaseEvent_START, s.actor)
	events.task("stopAllServices", machineapi.TaskEvent_START, s.actor)
	return m.wait(s, m.env.Timings.Stop)
}

// runInstaller runs the installer to its end on behalf of a sequence.
func (m *Machine) runInstaller(s *sequence, system Slot) error {
	life, err := m.beginInstall()
	if err != nil {
		return err
	}
	run := &Installation{Done: make(chan struct{})}
	go m.install(life, system, run)
	select {
	case <-run.Done:
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	if run.Aborted {
		return context.Canceled
	}
	if run.Code != 0 {
		return fmt.Errorf("task \"upgrade\" failed: exit code %d", run.Code)
	}
	return nil
}

// fail ends a sequence as Talos does when one of its phases fails: the way back is taken if there is one, and the machine
// reboots.
func (m *Machine) fail(s *sequence, err error) {
	if s.ctx.Err() != nil {
		return // It was taken over: nothing has failed.
	}
	m.Events().failed(s.name, s.actor, err)
	m.record("failed", err.Error())
	if m.enter(s, runtime.MachineStageRebooting) && m.wait(s, m.env.Timings.Stop) && m.advance(s, m.disk.goBack) &&
		m.away(s, "fatal error in the "+s.name+" sequence", true) {
		m.boot(s)
	}
}

// reloadMeta lets machined see what the installer has written.
func (m *Machine) reloadMeta() {
	m.mu.Lock()
	m.meta = cloneMeta(m.disk.meta)
	m.mu.Unlock()
	m.notify()
}

// stageUpgrade notes the installation for the next boot. As every write of machined's copy of META, it loses the way back of an
// installer that has run since the boot.
func (m *Machine) stageUpgrade(u Upgrade) error {
	options, err := json.Marshal(map[string]bool{"Pull": true, "Upgrade": true, "Force": !u.Preserve})
	if err != nil {
		return fmt.Errorf("error serializing install options: %w", err)
	}
	m.mu.Lock()
	m.meta[meta.StagedUpgradeImageRef], m.meta[meta.StagedUpgradeInstallOptions] = u.Image, string(options)
	m.disk.meta = cloneMeta(m.meta)
	m.mu.Unlock()
	m.notify()
	return nil
}

// installStaged carries a staged upgrade out at the beginning of a boot, which another one then follows.
func (m *Machine) installStaged(s *sequence, ref string) {
	if !m.enter(s, runtime.MachineStageInstalling) {
		return
	}
	err := m.phase(s, 2, "install", func() error {
		image, err := m.pullInstaller(s.ctx, ref)
		if err != nil {
			return err
		}
		return m.runInstaller(s, image.System)
	})
	if err != nil {
		m.fail(s, err)
		return
	}
	m.reloadMeta()
	if m.stopEverything(s) && m.away(s, "reboot", true) {
		m.boot(s)
	}
}
