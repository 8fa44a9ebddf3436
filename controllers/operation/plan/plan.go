// SPDX-License-Identifier: Apache-2.0

// Package plan says what an operation would do. What it computes is what the engine runs: there is no second copy of the order.
//
// Everything here is pure and links no client of a target, so the CLI and the service use it as it is.
package plan

import (
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Planner is the part of a kind that needs no target.
type Planner interface {
	// Traits are what is special about the kind.
	Traits(v1alpha1.TalosOperationSpec) Traits

	// Narrow leaves of a target what operations of the kind bring about.
	Narrow(v1alpha1.OperationTarget) v1alpha1.OperationTarget

	// Plan says what would be done, and what speaks against it. It is pure.
	Plan(Facts) (Plan, []Refusal)

	// AtTarget says whether a machine is already what an operation of the kind would make of it, as far as the management API knows. An
	// action that leaves no trace is never done already.
	AtTarget(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) bool
}

// Traits are what is special about a kind.
type Traits struct {
	// Repeatable kinds may be run again by an operation whose status was lost: what is done already is found done. The others must be
	// created anew by somebody who has looked at the machines.
	Repeatable bool

	// RecordOptional kinds go on without the record on the target where its Kubernetes API is down: they are how it comes back.
	RecordOptional bool

	// Windows says for what of the operation a maintenance window has to be open, where the target has any.
	Windows Windows

	// Power is what becomes of the power of the whole cluster. The engine writes it on the TalosCluster.
	Power Power

	// Confirmable are the stages that wait for people, and end when somebody says that they may.
	Confirmable []string

	// StartVerb is the subresource of talosoperations on which who starts one, or retries it, needs the verb start. The service asks for
	// it before it writes anything, and the admission policy holds everybody else to it.
	StartVerb string
}

// Windows says for what a maintenance window has to be open.
type Windows string

const (
	// WindowsThroughout is for work that waits between two machines until a window opens again.
	WindowsThroughout Windows = ""

	// WindowsToBegin is for work that is better finished than left half-way: once it has taken a machine away, it goes on.
	WindowsToBegin Windows = "ToBegin"

	// WindowsNever is for work that takes nothing away.
	WindowsNever Windows = "Never"
)

// Power is what becomes of the power of a whole cluster.
type Power string

const (
	// PowerStays is for operations after which the cluster runs as before.
	PowerStays Power = ""

	// PowerOff is for those that end with every machine off.
	PowerOff Power = "Off"

	// PowerOn is for those that take a cluster which was stopped back into service.
	PowerOn Power = "On"
)

// Facts are what a plan is made from: objects of the management cluster, with the time at which they were read.
type Facts struct {
	Spec     v1alpha1.TalosOperationSpec
	Cluster  *v1alpha1.TalosCluster
	Machines []v1alpha1.TalosMachine
	Target   v1alpha1.OperationTarget
	Observed time.Time

	// Units are the machines that the operation has begun with; none before it has begun. What a plan makes of machines that change under
	// its hands has to stay what it was.
	Units []v1alpha1.UnitStatus

	// Whole are the stages without machines that the operation has begun with, and CompletedStages those that are over on all their units.
	Whole           []v1alpha1.UnitStatus
	CompletedStages []string

	// TurnBack says that somebody has asked to turn the operation back.
	TurnBack bool

	// CAPICluster is the Cluster of the same name, nil if there is none.
	CAPICluster *clusterv1.Cluster

	// Snapshot is the EtcdSnapshot that spec.etcdRestore names, nil if it names none, or none that is there.
	Snapshot *v1alpha1.EtcdSnapshot

	// Installation is the hub's own IchorInstallation, for operations that are about the hub; nil for others, or if there is none.
	Installation *v1alpha1.IchorInstallation
}

// Approved are the machines of the facts that the hub may touch.
func (f Facts) Approved() []*v1alpha1.TalosMachine {
	return v1alpha1.ApprovedMachines(f.Machines)
}

// Overridden says whether the operation bypasses a gate.
func (f Facts) Overridden(gate string) bool {
	for _, override := range f.Spec.Overrides {
		if override.Gate == gate {
			return true
		}
	}
	return false
}

// Effect is the worst that a machine goes through.
type Effect string

const (
	// EffectNone changes nothing that anybody notices.
	EffectNone Effect = "None"

	// EffectRestartComponents restarts components of machines, which stay where they are.
	EffectRestartComponents Effect = "RestartComponents"

	// EffectReboot drains and reboots machines.
	EffectReboot Effect = "Reboot"

	// EffectStop powers machines off, until people power them on again.
	EffectStop Effect = "Stop"

	// EffectReset wipes machines.
	EffectReset Effect = "Reset"

	// EffectJoin makes machines part of the cluster.
	EffectJoin Effect = "Join"

	// EffectRemove takes machines out of the cluster for good.
	EffectRemove Effect = "Remove"

	// EffectKeyRotation replaces keys: components restart, and tokens of old are void in the end.
	EffectKeyRotation Effect = "KeyRotation"
	// EffectCARotation replaces certificate authorities: credentials that people keep are of no use any more.
	EffectCARotation Effect = "CARotation"
	// EffectRestore puts the whole cluster back to what it was at an earlier time.
	EffectRestore Effect = "Restore"
)

// Plan is what an operation would do.
type Plan struct {
	Target v1alpha1.OperationTarget
	Effect Effect
	Stages []Stage
	Held   []string

	// TurnsBack says that the stages which are left make of the target what it was before; NoWayBack why that is not possible, where somebody
	// has asked for it.
	TurnsBack bool
	NoWayBack string

	Warnings []Warning

	// Overridden are refusals that spec.overrides bypasses.
	Overridden []Refusal

	// Losses are what is gone for good afterwards, for people.
	Losses []string

	// Changes are what becomes of single machines, by TalosMachine, for people.
	Changes map[string]Change
}

// Change is what becomes of one machine.
type Change struct {
	// Effect is what it goes through.
	Effect Effect

	// Diff is what changes in its config, with secrets masked.
	Diff string
}

// DisruptedControlPlanes are the control planes that the plan takes away in stages that ask whether one of them is under replacement, in
// order. Without any, an operation is worker-only work, or exempt, from the rule that an even number of control planes may be such.
func (p Plan) DisruptedControlPlanes(machines []*v1alpha1.TalosMachine) []string {
	return p.disrupted(machines, v1alpha1.ControlPlaneRole, v1alpha1.ControlPlaneTransitioningReason)
}

// KeepsEtcd says whether no stage takes an etcd member away.
func (p Plan) KeepsEtcd() bool {
	return !slices.ContainsFunc(p.Stages, func(stage Stage) bool { return stage.Disruptive && !stage.KeepsEtcd })
}

// disrupted are the machines of a role that the plan takes away in stages that ask a gate, or in all if none is named, in order.
func (p Plan) disrupted(machines []*v1alpha1.TalosMachine, role v1alpha1.MachineRole, gate string) []string {
	roles := map[string]v1alpha1.MachineRole{}
	for _, machine := range machines {
		roles[machine.Name] = machine.Spec.Role
	}
	var names []string
	for _, stage := range p.Stages {
		for _, name := range stage.Machines {
			if stage.Disruptive && (gate == "" || stage.Asks(gate)) && roles[name] == role && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Stage is a part of an operation that is over on all its units before the next begins.
type Stage struct {
	Name string

	// Machines are its units, in order.
	Machines []string

	// Whole stages have no machines: the stage is itself one unit.
	Whole bool

	// Batch says how many go at once.
	Batch Batch

	// Disruptive stages take machines away: gates and the budget of unavailable machines apply.
	Disruptive bool

	// EtcdOnly stages take etcd members away and leave their machines as they are: an alarm about space keeps nobody from what mends it.
	EtcdOnly bool

	// Sick stages are for control planes whose own etcd member may be down: it counts as lost already, and the others have to do without it.
	Sick bool

	// Joins stages make a machine one of the cluster: it is none yet, so etcd has to be well without it, and loses nothing.
	Joins bool

	// Leaves stages take an etcd member out of the cluster for good. Who is left has to be a majority before and afterwards; two may become one.
	// With Sick, others that do not answer count as lost as well.
	Leaves bool

	// Gates are the gates that the stage asks; nil means all of them where it is disruptive. A stage that is not asks those that it names
	// by itself.
	Gates []string

	// TakenBack stages without machines leave something on the target that goes where the operation is deleted before it is over.
	TakenBack bool

	// KeepsEtcd stages disrupt machines and leave their etcd members alone: etcd has to be well, and need not do without a member. An even
	// number of control planes does not hold them, either.
	KeepsEtcd bool

	// Kept stages leave something on machines that a deletion could not take back: from their beginning on an operation is deleted after it is
	// over, or by force.
	Kept bool

	// Unsafe stages must not be left half-way by anybody: from their beginning until the next stage that is safe, the target is this
	// operation's alone, whatever becomes of its lock.
	Unsafe bool

	// MayLose stages go on without a machine that they have in hand once its TalosMachine is deleted: somebody has said that it is lost.
	// Other stages fail, for what is under way there may still end.
	MayLose bool

	// Rewound stages find a target that is, or may be, what it was at an earlier time: what the hub's record there says counts for nothing
	// until it is written anew.
	Rewound bool
}

// Asks says whether a disruptive stage asks a gate.
func (s Stage) Asks(gate string) bool { return s.Gates == nil || slices.Contains(s.Gates, gate) }

// HalfJoined refuses what has to reach every machine of a role, or all where none is named, while one has begun to join and is not done: it may
// have the secrets of the cluster already, and counts as none of its machines. why says what would become of it.
func HalfJoined(f Facts, role v1alpha1.MachineRole, why string) *Refusal {
	for i := range f.Machines {
		m := &f.Machines[i]
		if !m.HalfJoined() || role != "" && m.Spec.Role != role {
			continue
		}
		return &Refusal{
			Gate:    v1alpha1.MachineKnownGate,
			Message: fmt.Sprintf("machine %s was given its machine config, and has not joined yet: %s", m.Name, why),
			Help:    fmt.Sprintf("see it through: ichor node join %s; or wipe it, and: kubectl delete talosmachine -n %s %[1]s", m.Name, m.Namespace),
		}
	}
	return nil
}

// TurnsBack is a Planner of a kind whose operations may be turned back.
type TurnsBack interface {
	// NoWayBack says why an operation cannot be turned back any more; nothing means that it can.
	NoWayBack(op *v1alpha1.TalosOperation) string
}

// Batch says how many units of a stage go at once.
type Batch struct {
	// Parallel is how many go at once, control planes included. It is for stages that disrupt nothing.
	Parallel int

	// Tiered stages do control planes first, one at a time and etcd's leader last, then workers up to the operation's maxUnavailable.
	Tiered bool
}

// Refusal is why an operation must not start.
type Refusal struct {
	// Gate is what refuses; spec.overrides names it.
	Gate string

	// Message says what is wrong, and with what.
	Message string

	// Help says what to do about it.
	Help string

	// Overridable refusals may be bypassed by who has the verb override.
	Overridable bool

	// Passing refusals go away by themselves: nobody starts an operation now, and one that is there already waits.
	Passing bool
}
