// SPDX-License-Identifier: Apache-2.0

// Package machine models one Talos machine: its A/B slots, its META values, the sequences that take it down and bring it up,
// and what the installer does to it. It knows nothing of the network; observers carry its state to the APIs.
package machine

import (
	"cmp"
	"context"
	"sync"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Identity is what never changes about a machine.
type Identity struct {
	// Cluster and Name are the names of the cluster and of the node.
	Cluster, Name string
	// Address is the IP.
	Address string
	// SecondAddress is an address of the other family that the machine tells of; empty for none.
	SecondAddress string
	// Hostname is what Talos calls the machine; the Node has it in lower case, as Name.
	Hostname string
	// ControlPlane machines run etcd and the Kubernetes API.
	ControlPlane bool
	// UUID is the hardware's.
	UUID string
	// MachineID is /etc/machine-id.
	MachineID string
	// Platform is Talos's platform name.
	Platform string
	// SecureBoot says that the machine boots signed images.
	SecureBoot bool
	// Extensions are the services of system extensions, without their prefix.
	Extensions []string
	// UserVolumes are the volumes of users, each on a disk of its own.
	UserVolumes []string
	// SystemVolumes are volumes of the system that have partitions of their own, beside those that every machine has.
	SystemVolumes []string
}

// Addresses are all addresses that the machine tells of.
func (i Identity) Addresses() []string {
	if i.SecondAddress == "" {
		return []string{i.Address}
	}
	return []string{i.Address, i.SecondAddress}
}

// Site is the place where the machine asks for faults.
func (i Identity) Site() fault.Site { return fault.Site{Cluster: i.Cluster, Node: i.Name} }

// Environment is what the machine shares with others.
type Environment struct {
	Clock   clock.WithDelayedExecution
	Timings timing.Timings
	Faults  *fault.Registry
	Journal *journal.Journal
	Etcd    Etcd
	// Processes is nil where nothing runs behind the static pods.
	Processes Processes
	// Configs are what the machines were installed with.
	Configs Configs
	// Kubernetes is nil for machines without a cluster around them.
	Kubernetes Kubernetes
	// ControlPlanes are the cluster's, as far as there are any yet; nil for machines without a cluster around them.
	ControlPlanes func() []*Machine
	// Shared are addresses of load balancers at which the Talos API of control planes answers too.
	Shared []string
}

// State is a snapshot of a machine.
type State struct {
	// Stage is that of the MachineStatus resource.
	Stage runtime.MachineStage
	// Ready says that the machine runs and does all that it should.
	Ready bool
	// BootID changes with each boot.
	BootID string
	// Running is the system that runs (or ran last, when the machine is down).
	Running Slot
	// Next is the system that the next boot starts.
	Next Slot
	// UpgradePending says that the META upgrade key is on disk: the next boot, or this one, is still on trial.
	UpgradePending bool
	// APIUp says that the machine's APIs answer.
	APIUp bool
	// EtcdUp says that the machine's etcd member runs; always false on workers.
	EtcdUp bool
	// EtcdFailed says that the machine's etcd has waited for others for too long, and does not start before it is told to begin.
	EtcdFailed bool
	// KubeletReady says that the kubelet reports Ready.
	KubeletReady bool
	// KubeletRestarting says that somebody has restarted the kubelet, which is not back yet.
	KubeletRestarting bool
	// Installing says that an installer runs.
	Installing bool
	// PoweredOff machines stay down until somebody switches them on.
	PoweredOff bool
	// Maintenance says that the machine has no machine config and waits for one.
	Maintenance bool
}

// StatusReady is what the MachineStatus resource says: only the stages booting and running have conditions to meet.
func (s State) StatusReady() bool {
	return s.Ready || s.Stage != runtime.MachineStageBooting && s.Stage != runtime.MachineStageRunning
}

// Machine is the model. Its methods may be called from any goroutine.
type Machine struct {
	Identity
	env Environment

	certifying sync.Mutex // Held while certificates are made; never taken while mu is held.

	mu         sync.Mutex
	state      State
	disk       disk
	meta       map[uint8]string // machined's copy of META, read from disk at boot.
	disguised  bool             // It has booted since it was told to be another machine.
	images     map[stored]Image // Pulled ones, by every name that finds them.
	config     configuration
	secrets    certification
	set        *component.Set // What the config in force asks for.
	kubelet    kubeletRun
	staticPods []*staticPod // In the order of component.StaticPods; none on workers.
	starts     Starts
	waiting    waiting
	events     *EventLog
	sequence   *sequence       // The one that runs, if any.
	life       context.Context //nolint:containedctx // Ends when this boot ends; no call lasts as long.
	endLife    context.CancelFunc
	observers  []func()
}

// New makes a machine that runs the given system and is ready.
func New(id Identity, env Environment, system Slot) (*Machine, error) {
	return Restore(id, env, Snapshot{Slots: [2]Slot{system}, BootID: uuid.NewString()})
}

// newMachine makes a machine from what is on its disk.
func newMachine(id Identity, env Environment, d disk, bootID string) *Machine {
	m := &Machine{Identity: id, env: env, disk: d, meta: cloneMeta(d.meta), images: map[stored]Image{}, events: newEventLog(env.Clock)}
	m.life, m.endLife = context.WithCancel(context.Background())
	m.state = State{
		Stage: runtime.MachineStageRunning, Ready: true, BootID: bootID, APIUp: true,
		EtcdUp: id.ControlPlane, KubeletReady: true,
	}
	now := env.Clock.Now()
	m.starts = Starts{System: now, Kubelet: now, Extensions: id.extensionsAt(now)}
	if id.ControlPlane {
		for _, name := range component.StaticPods {
			m.staticPods = append(m.staticPods, &staticPod{name: name})
		}
	}
	if d.wiped {
		m.beginWiped()
		return m
	}
	if id.ControlPlane {
		m.starts.Etcd = now
		env.Etcd.Add(id.Name, id.Address)
	}
	m.events.status(m.state)
	return m
}

// State returns a snapshot.
func (m *Machine) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot()
}

func (m *Machine) snapshot() State {
	s := m.state
	s.Running, s.Next = m.disk.slots[m.disk.running], m.disk.slots[m.disk.next]
	_, s.UpgradePending = m.disk.meta[upgradeKey]
	return s
}

// MemberID is the ID of the machine's etcd member, zero on workers.
func (m *Machine) MemberID() uint64 {
	if !m.ControlPlane {
		return 0
	}
	return m.env.Etcd.MemberID(m.Name)
}

// Told returns the UUID and the node name that the machine tells: its own, unless it was ordered to be another one.
func (m *Machine) Told() (id, name string) {
	f, ordered := m.env.Faults.Stands(fault.OtherIdentity, m.Site())
	m.mu.Lock()
	disguised := ordered && (m.disguised || f.Params[fault.ParamWhen] == "now")
	m.mu.Unlock()
	if !disguised {
		return m.UUID, m.Name
	}
	return cmp.Or(f.Params[fault.ParamUUID], m.UUID), cmp.Or(f.Params[fault.ParamName], m.Name)
}

// Etcd is the cluster's etcd.
func (m *Machine) Etcd() Etcd { return m.env.Etcd }

// Events returns the event log of the current boot.
func (m *Machine) Events() *EventLog {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.events
}

// Observe registers a function that runs after each change. It reads State itself, so that a late call does no harm.
func (m *Machine) Observe(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observers = append(m.observers, fn)
}

func (m *Machine) notify() {
	m.mu.Lock()
	observers := m.observers
	m.mu.Unlock()
	for _, fn := range observers {
		fn()
	}
}

// Stop ends whatever the machine is doing, for the end of the simulation.
func (m *Machine) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLife()
	if m.config.trial != nil {
		m.config.trial.Stop() // Save still sees that there was one.
	}
	if m.secrets.late != nil {
		m.secrets.late.Stop()
	}
	if m.sequence != nil {
		m.sequence.cancel()
		m.sequence = nil
	}
}

func (m *Machine) record(name, message string) {
	m.env.Journal.Event(m.Cluster, m.Name, name, message)
}
