// SPDX-License-Identifier: Apache-2.0

// Package plan plans single actions on machines and on the members of etcd. It is a leaf: it links no client of a target.
package plan

import (
	"fmt"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// Stages of the actions.
const (
	RebootStage   = "Reboot"
	ShutdownStage = "Shutdown"
	RestartStage  = "Restart"
	DefragStage   = "Defragment"
	DisarmStage   = "Disarm"
	ForfeitStage  = "Forfeit"
	ResetStage    = "Reset"
	JoinStage     = "JoinWorker"

	// JoinControlPlaneStage is that of a machine that joins etcd as well.
	JoinControlPlaneStage = "JoinControlPlane"

	// ConfirmDeadStage waits whether a machine that was declared dead stays silent.
	ConfirmDeadStage = "ConfirmDead"

	// RemoveStage takes a machine out of etcd and, unless it is dead, wipes it.
	RemoveStage = "Remove"

	// ForgetStage deletes what stands for a machine that has left: its Node, and its TalosMachine.
	ForgetStage = "Forget"
)

// Actions are the actions that this hub knows.
var Actions = []v1alpha1.NodeAction{
	v1alpha1.RebootAction, v1alpha1.ShutdownAction, v1alpha1.RestartServiceAction, v1alpha1.EtcdDefragAction,
	v1alpha1.EtcdForfeitLeadershipAction, v1alpha1.ResetAction, v1alpha1.JoinAction, v1alpha1.RemoveAction,
}

// Planner plans actions on machines.
type Planner struct{}

// Traits implements plan.Planner. Nothing on a machine tells whether it has rebooted for a status that is lost, so nobody repeats it; and
// a reboot may be what brings the Kubernetes API back. Whether a machine has joined can be seen, and it takes nothing away. A removal needs the
// Kubernetes API for its end, and is better ended than left half-way; what is dead is away already, whatever the hour.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	switch node := spec.Node; {
	case node != nil && node.Action == v1alpha1.JoinAction:
		return plan.Traits{Repeatable: true, Windows: plan.WindowsNever, StartVerb: spec.StartSubresource()}
	case node != nil && node.Dead():
		return plan.Traits{Windows: plan.WindowsNever, StartVerb: spec.StartSubresource()}
	case node != nil && node.Action == v1alpha1.RemoveAction:
		return plan.Traits{Windows: plan.WindowsToBegin, StartVerb: spec.StartSubresource()}
	}
	return plan.Traits{RecordOptional: true, StartVerb: spec.StartSubresource()}
}

// AtTarget implements plan.Planner: a machine that has rebooted can reboot again.
func (Planner) AtTarget(*v1alpha1.TalosMachine, v1alpha1.OperationTarget) bool { return false }

// Narrow implements plan.Planner: no action brings a cluster anywhere else.
func (Planner) Narrow(v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{}
}

// order is what one action plans from.
type order struct {
	plan.Facts

	node *v1alpha1.NodeParameters

	// machine is the one that the order names; nil if it names none, or none that is known.
	machine *v1alpha1.TalosMachine

	// controlPlanes is how many there are.
	controlPlanes int
}

// isControlPlane says whether the machine is one.
func (o order) isControlPlane() bool {
	return o.machine != nil && o.machine.Spec.Role == v1alpha1.ControlPlaneRole
}

// action is how one action is planned.
type action struct {
	effect plan.Effect
	stages func(order) []plan.Stage

	// refuse says what speaks against it, where the machine is known.
	refuse func(order) *plan.Refusal

	// warn and lose say what people should know; nil says nothing.
	warn func(order) []plan.Warning
	lose func(order) []string
}

var actions = map[v1alpha1.NodeAction]action{
	v1alpha1.RebootAction:                {effect: plan.EffectReboot, stages: takesAway(RebootStage), refuse: refuseReboot, warn: warnReboot},
	v1alpha1.ShutdownAction:              {effect: plan.EffectStop, stages: takesAway(ShutdownStage), refuse: refuseStop, warn: warnShutdown},
	v1alpha1.RestartServiceAction:        {effect: plan.EffectRestartComponents, stages: leavesThere(RestartStage), refuse: refuseNothing},
	v1alpha1.EtcdDefragAction:            {effect: plan.EffectRestartComponents, stages: defragStages, refuse: refuseDefrag, warn: warnDefrag},
	v1alpha1.EtcdForfeitLeadershipAction: {effect: plan.EffectNone, stages: leavesThere(ForfeitStage), refuse: refuseForfeit, warn: warnForfeit},
	v1alpha1.ResetAction:                 {effect: plan.EffectReset, stages: resetStages, refuse: refuseReset, warn: warnReset, lose: loseByReset},
	v1alpha1.JoinAction:                  {effect: plan.EffectJoin, stages: joinStages, refuse: refuseJoin, warn: warnJoin},
	v1alpha1.RemoveAction:                {effect: plan.EffectRemove, stages: removeStages, refuse: refuseRemove, warn: warnRemove, lose: loseByRemoval},
}

// takesAway is one stage that takes the machine away. A person named it, so a hold does not keep it from them.
func takesAway(stage string) func(order) []plan.Stage {
	return func(o order) []plan.Stage {
		sick := o.node.RebootMode == v1alpha1.RebootModeForce || o.node.Forced()
		return []plan.Stage{{Name: stage, Machines: []string{o.node.Machine}, Batch: plan.Batch{Tiered: true}, Disruptive: true, Sick: sick}}
	}
}

// leavesThere is one stage that leaves the machine where it is.
func leavesThere(stage string) func(order) []plan.Stage {
	return func(o order) []plan.Stage {
		return []plan.Stage{{Name: stage, Machines: []string{o.node.Machine}, Batch: plan.Batch{Parallel: 1}}}
	}
}

// Plan implements plan.Planner.
func (Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	o := order{Facts: facts, node: facts.Spec.Node, machine: find(facts), controlPlanes: plan.ControlPlanes(facts.Approved())}
	act, known := actions[o.node.Action]
	if !known {
		return plan.Plan{Target: facts.Target}, []plan.Refusal{unknownAction(o.node.Action)} // Nobody knows what it would do.
	}
	p := plan.Plan{Target: facts.Target, Effect: act.effect, Stages: act.stages(o)}
	if o.machine == nil && o.node.Machine != "" {
		return p, []plan.Refusal{unknownMachine(facts)}
	}
	if act.lose != nil {
		p.Losses = act.lose(o)
	}
	if refusal := act.refuse(o); refusal != nil {
		return p, []plan.Refusal{*refusal}
	}
	if act.warn != nil {
		p.Warnings = act.warn(o)
	}
	p.Warnings = append(p.Warnings, plan.OverrideWarnings(facts.Spec.Overrides, Planner{}.Traits(facts.Spec))...)
	return p, nil
}

func find(facts plan.Facts) *v1alpha1.TalosMachine {
	switch facts.Spec.Node.Action { //nolint:exhaustive // The others are about machines of the cluster.
	case v1alpha1.JoinAction, v1alpha1.RemoveAction: // One that joins is none yet; and of one that is none there is more to say.
		for i := range facts.Machines {
			if facts.Machines[i].Name == facts.Spec.Node.Machine {
				return &facts.Machines[i]
			}
		}
		return nil
	}
	for _, machine := range facts.Approved() {
		if machine.Name == facts.Spec.Node.Machine {
			return machine
		}
	}
	return nil
}

func unknownAction(name v1alpha1.NodeAction) plan.Refusal {
	known := make([]string, len(Actions))
	for i, action := range Actions {
		known[i] = string(action)
	}
	return plan.Refusal{
		Gate:    v1alpha1.ActionKnownGate,
		Message: fmt.Sprintf("this hub does not know action %q; it knows %s", name, strings.Join(known, ", ")),
		Help:    "upgrade the hub",
	}
}

func unknownMachine(facts plan.Facts) plan.Refusal {
	return plan.Refusal{
		Gate:    v1alpha1.MachineKnownGate,
		Message: fmt.Sprintf("TalosMachine %q is not an approved machine of cluster %s", facts.Spec.Node.Machine, facts.Spec.ClusterName),
		Help:    fmt.Sprintf("ichor machine list --cluster %s", facts.Spec.ClusterName),
	}
}

func refuseNothing(order) *plan.Refusal { return nil }
