// SPDX-License-Identifier: Apache-2.0

// Package plan plans single actions on one machine. It is a leaf: it links no client of a target.
package plan

import (
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// RebootStage is the one stage of a reboot.
const RebootStage = "Reboot"

// Planner plans actions on one machine.
type Planner struct{}

// Traits implements plan.Planner. Nothing on a machine tells whether it has rebooted for a status that is lost, so nobody repeats it; and
// a reboot may be what brings the Kubernetes API back.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	return plan.Traits{RecordOptional: true, StartVerb: spec.StartSubresource()}
}

// AtTarget implements plan.Planner: a machine that has rebooted can reboot again.
func (Planner) AtTarget(*v1alpha1.TalosMachine, v1alpha1.OperationTarget) bool { return false }

// Narrow implements plan.Planner: a reboot brings a cluster nowhere else.
func (Planner) Narrow(v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{}
}

// Plan implements plan.Planner. A person named the machine, so a hold does not keep it from them.
func (Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	p := plan.Plan{
		Target: facts.Target,
		Effect: plan.EffectReboot,
		Stages: []plan.Stage{{Name: RebootStage, Machines: []string{facts.Spec.Node.Machine}, Batch: plan.Batch{Tiered: true}, Disruptive: true}},
	}
	machine := find(facts)
	if r := refusal(facts, machine); r != nil && r.Gate == v1alpha1.ActionKnownGate {
		return plan.Plan{Target: facts.Target}, []plan.Refusal{*r} // Nobody knows what it would do.
	} else if r != nil {
		return p, []plan.Refusal{*r}
	}
	if machine.Spec.Role == v1alpha1.ControlPlaneRole && plan.ControlPlanes(facts.Approved()) == 1 {
		p.Warnings = append(p.Warnings, plan.Outage)
	}
	p.Warnings = append(p.Warnings, plan.OverrideWarnings(facts.Spec.Overrides, Planner{}.Traits(facts.Spec))...)
	return p, nil
}

func find(facts plan.Facts) *v1alpha1.TalosMachine {
	for _, machine := range facts.Approved() {
		if machine.Name == facts.Spec.Node.Machine {
			return machine
		}
	}
	return nil
}

func refusal(facts plan.Facts, machine *v1alpha1.TalosMachine) *plan.Refusal {
	switch {
	case facts.Spec.Node.Action != v1alpha1.RebootAction:
		return &plan.Refusal{
			Gate:    v1alpha1.ActionKnownGate,
			Message: fmt.Sprintf("this hub does not know action %q; it knows %q", facts.Spec.Node.Action, v1alpha1.RebootAction),
			Help:    "upgrade the hub",
		}
	case machine == nil:
		return &plan.Refusal{
			Gate:    v1alpha1.MachineKnownGate,
			Message: fmt.Sprintf("TalosMachine %q is not an approved machine of cluster %s", facts.Spec.Node.Machine, facts.Spec.ClusterName),
			Help:    fmt.Sprintf("ichor machine list --cluster %s", facts.Spec.ClusterName),
		}
	case machine.Spec.Role == v1alpha1.ControlPlaneRole && plan.ControlPlanes(facts.Approved()) == 2:
		return &plan.Refusal{
			Gate:    v1alpha1.QuorumGate,
			Message: "two control planes: etcd loses its quorum while either of them reboots",
			Help:    "add a third control plane, or remove one",
		}
	}
	return nil
}
