// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Names of the sequences, as Talos's events say them.
const (
	sequenceBoot         = "boot"
	sequenceInstall      = "install"
	sequenceReboot       = "reboot"
	sequenceShutdown     = "shutdown"
	sequenceUpgrade      = "upgrade"
	sequenceStageUpgrade = "stageUpgrade"
)

// yields says which sequence may be taken over by which others. A shutdown and a rollback ask nobody.
var yields = map[string][]string{
	sequenceBoot:   {sequenceReboot, sequenceUpgrade, sequenceReset},
	sequenceReboot: {sequenceReboot},
	sequenceReset:  {sequenceReboot},
}

// sequence is a run of one of the machine's sequences. A run that has been taken over changes nothing any more.
type sequence struct {
	name, actor string
	ctx         context.Context //nolint:containedctx // A sequence goes on after the call that started it.
	cancel      context.CancelFunc
}

// Reboot starts the reboot sequence and returns the actor ID of its events. It does not drain anything.
func (m *Machine) Reboot() string { return m.start(sequenceReboot, m.reboot) }

func (m *Machine) reboot(s *sequence) {
	if m.windDown(s, runtime.MachineStageRebooting) && m.away(s, "reboot", true) {
		m.boot(s)
	}
}

// Shutdown starts the shutdown sequence, which drains the node first unless it is forced, and returns the actor ID of its
// events. The machine then stays down, even when the drain failed.
func (m *Machine) Shutdown(force bool) string {
	return m.takeOver(sequenceShutdown, func(s *sequence) {
		if !m.begin(s, runtime.MachineStageShuttingDown) {
			return
		}
		if !force {
			_ = m.drain(s)
		}
		if !m.wait(s, m.env.Timings.Stop) || m.env.Faults.WaitGone(s.ctx, fault.ShutdownStuck, m.Site()) != nil || !m.away(s, "shutdown", false) {
			return
		}
		if _, returns := m.env.Faults.Fire(fault.PowerReturns, m.Site()); returns {
			m.PowerOn()
		}
	})
}

// Rollback makes the other slot the next one and reboots.
func (m *Machine) Rollback() error {
	m.mu.Lock()
	other := 1 - m.disk.running
	if m.disk.slots[other] == (Slot{}) {
		m.mu.Unlock()
		return ErrNoFallback
	}
	m.disk.next = other
	delete(m.disk.meta, upgradeKey)
	m.mu.Unlock()
	m.takeOver(sequenceReboot, m.reboot)
	return nil
}

// PowerOff cuts the power at once.
func (m *Machine) PowerOff() {
	m.mu.Lock()
	s := m.replace(sequenceShutdown)
	m.mu.Unlock()
	m.away(s, "power off", false)
}

// PowerOn boots a machine that is off; it does nothing to one that is not.
func (m *Machine) PowerOn() {
	m.mu.Lock()
	if !m.state.PoweredOff {
		m.mu.Unlock()
		return
	}
	m.state.PoweredOff = false
	s := m.replace(sequenceBoot)
	m.mu.Unlock()
	go m.boot(s)
}

// start runs a sequence unless one is running that does not yield to it. Like Talos it answers with an actor ID either way:
// the refusal is an event.
func (m *Machine) start(name string, run func(*sequence)) string {
	m.mu.Lock()
	if cur := m.sequence; cur != nil && !slices.Contains(yields[cur.name], name) {
		m.mu.Unlock()
		actor := uuid.NewString()
		m.Events().locked(name, actor)
		return actor
	}
	s := m.replace(name)
	m.mu.Unlock()
	go run(s)
	return s.actor
}

// takeOver runs a sequence whatever else is running.
func (m *Machine) takeOver(name string, run func(*sequence)) string {
	m.mu.Lock()
	s := m.replace(name)
	m.mu.Unlock()
	go run(s)
	return s.actor
}

// replace makes a new sequence the running one; the caller holds the lock.
func (m *Machine) replace(name string) *sequence {
	if m.sequence != nil {
		m.sequence.cancel()
	}
	s := &sequence{name: name, actor: uuid.NewString()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	m.sequence = s
	return s
}

// advance changes the state on behalf of a sequence, and refuses when that was taken over.
func (m *Machine) advance(s *sequence, change func()) bool {
	m.mu.Lock()
	if m.sequence != s {
		m.mu.Unlock()
		return false
	}
	before := m.state
	change()
	if m.state.Stage != before.Stage || m.state.Ready != before.Ready {
		m.events.status(m.state)
	}
	m.mu.Unlock()
	m.notify()
	return true
}

// windDown stops the services; the API still answers, and another reboot may still take over.
func (m *Machine) windDown(s *sequence, stage runtime.MachineStage) bool {
	return m.begin(s, stage) && m.wait(s, m.env.Timings.Stop) &&
		m.env.Faults.WaitGone(s.ctx, fault.RebootStuck, m.Site()) == nil
}

func (m *Machine) begin(s *sequence, stage runtime.MachineStage) bool {
	m.Events().started(s.name, s.actor)
	return m.enter(s, stage)
}

func (m *Machine) enter(s *sequence, stage runtime.MachineStage) bool {
	return m.advance(s, func() { m.state.Stage, m.state.Ready = stage, false })
}

func (m *Machine) wait(s *sequence, d time.Duration) bool {
	return timing.Sleep(s.ctx, m.env.Clock, d) == nil
}

// away takes the APIs, the etcd member and the kubelet down, and ends what else was running. The sequence goes on only if
// the machine is to come back.
func (m *Machine) away(s *sequence, why string, comesBack bool) bool {
	m.Events().stopped(s.name, s.actor)
	ok := m.advance(s, func() {
		m.endLife()
		if !comesBack {
			m.state.PoweredOff, m.sequence = true, nil
		}
		m.state.APIUp, m.state.EtcdUp, m.state.KubeletReady, m.state.KubeletRestarting = false, false, false, false
		m.state.Maintenance = false
		m.state.Ready, m.state.Installing = false, false
	})
	if !ok {
		return false
	}
	if m.ControlPlane {
		m.env.Etcd.Down(m.Name)
	}
	m.record("down", why)
	return true
}

// boot brings the machine from darkness to running and ready. It becomes its own sequence, which a reboot may take over.
func (m *Machine) boot(from *sequence) {
	if timing.Sleep(from.ctx, m.env.Clock, m.env.Timings.Boot) != nil ||
		m.env.Faults.WaitGone(from.ctx, fault.BootStuck, m.Site()) != nil || !m.bearsItsConfig(from) || !m.fallBack(from) {
		return
	}
	if m.Wiped() {
		m.maintain(from)
		return
	}
	other, astray := m.env.Faults.Fire(fault.OtherVersion, m.Site())
	_, disguised := m.env.Faults.Stands(fault.OtherIdentity, m.Site())
	m.mu.Lock()
	if m.sequence != from {
		m.mu.Unlock()
		return
	}
	name := sequenceBoot
	ref, staged := m.disk.takeStaged()
	if staged {
		name = sequenceInstall
	}
	s := m.replace(name)
	if m.disguised = disguised; astray {
		m.disk.slots[m.disk.next].Version = other.Params[fault.ParamVersion]
	}
	m.wake(s)
	m.mu.Unlock()
	m.certify()
	m.record("boot", m.State().Running.Version)
	m.notify()
	if staged {
		m.installStaged(s, ref)
		return
	}
	m.services(s)
}

// bearsItsConfig waits where a machine is ordered not to come back with another config than it had.
func (m *Machine) bearsItsConfig(s *sequence) bool {
	active, persistent := m.Config()
	return active == persistent || m.env.Faults.WaitGone(s.ctx, fault.ConfigBreaksBoot, m.Site()) == nil
}

// fallBack tries the new system in vain when that fault was ordered, and reverts to the old one.
func (m *Machine) fallBack(s *sequence) bool {
	if !m.State().UpgradePending {
		return true
	}
	if _, failed := m.env.Faults.Fire(fault.Fallback, m.Site()); !failed {
		return true
	}
	if timing.Sleep(s.ctx, m.env.Clock, m.env.Timings.FailedBoot) != nil {
		return false
	}
	m.record("fallback", m.State().Next.Version)
	return m.advance(s, func() { m.disk.revert() })
}

// wake starts a new boot of the next slot; the caller holds the lock.
func (m *Machine) wake(s *sequence) {
	m.life, m.endLife = context.WithCancel(context.Background())
	m.disk.running = m.disk.next
	m.meta = cloneMeta(m.disk.meta)
	m.events = newEventLog(m.env.Clock)
	m.events.started(s.name, s.actor)
	m.state.BootID = uuid.NewString()
	m.state.APIUp, m.state.Stage, m.state.Ready = true, runtime.MachineStageBooting, false
	m.config.boot()
	m.rebootSecrets()
	m.starts = Starts{System: m.env.Clock.Now(), Extensions: m.extensionsAt(m.env.Clock.Now())}
	m.events.status(m.state)
	m.bootParts()
}

// services brings up etcd, then the kubelet, then readiness.
func (m *Machine) services(s *sequence) {
	ok := m.joinEtcd(s) && m.startKubelet(s) && m.awaitPods(s) &&
		timing.Sleep(s.ctx, m.env.Clock, m.env.Timings.Settle) == nil &&
		m.advance(s, func() {
			m.state.Stage, m.state.Ready, m.sequence = runtime.MachineStageRunning, true, nil
			m.events.stopped(s.name, s.actor)
			m.record("running", m.snapshot().Running.Version) // Before anybody can see it; "ready" comes when everybody has.
		})
	if !ok {
		return
	}
	m.record("ready", m.State().Running.Version)
	m.commit()
}

func (m *Machine) joinEtcd(s *sequence) bool {
	if !m.ControlPlane {
		return true
	}
	switch f, missing := m.env.Faults.Stands(fault.EtcdMissing, m.Site()); {
	case missing && f.Params[fault.ParamMode] == "silent":
		go m.joinLate()
		return true
	case missing && m.env.Faults.WaitGone(s.ctx, fault.EtcdMissing, m.Site()) != nil:
		return false
	}
	if timing.Sleep(s.ctx, m.env.Clock, m.env.Timings.EtcdJoin) != nil || m.awaitEtcd(s.ctx) != nil {
		return false
	}
	return m.advance(s, func() { m.state.EtcdUp, m.starts.Etcd = true, m.env.Clock.Now() })
}

// joinLate brings up the etcd member that was ordered to be missing, when it may run, and if the machine is still up. The pods of the
// control plane come with it.
func (m *Machine) joinLate() {
	m.mu.Lock()
	life := m.life
	m.mu.Unlock()
	if m.env.Faults.WaitGone(life, fault.EtcdMissing, m.Site()) != nil || m.awaitEtcd(life) != nil {
		return
	}
	m.mu.Lock()
	up := life.Err() == nil
	if up {
		m.state.EtcdUp = true
		m.runPods(m.env.Timings.StaticPod)
	}
	m.mu.Unlock()
	if up {
		m.notify()
	}
}

// startKubelet waits for the cluster too: without its API no node becomes Ready.
func (m *Machine) startKubelet(s *sequence) bool {
	part, err := m.firstKubelet(s)
	ready := err == nil && m.env.Etcd.WaitHealthy(s.ctx) == nil &&
		m.advance(s, func() {
			m.kubeletRuns(part)
			m.state.KubeletReady = true
			m.runPods(0)
		})
	if ready {
		m.uncordon(s)
	}
	return ready
}

// commit drops the way back: the running system has proven itself.
func (m *Machine) commit() {
	m.mu.Lock()
	_, onTrial := m.meta[upgradeKey]
	delete(m.meta, upgradeKey)
	delete(m.disk.meta, upgradeKey)
	m.mu.Unlock()
	if onTrial {
		m.notify()
		m.record("committed", m.State().Running.Version)
	}
}
