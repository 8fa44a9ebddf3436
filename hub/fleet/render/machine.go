// SPDX-License-Identifier: Apache-2.0

package render

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Work is what an operation does to a machine now.
type Work struct {
	Operation *pb.Reference
	Step      string

	// Failed says that the step has failed, Moves that the operation takes steps.
	Failed, Moves bool
}

// Same says whether two operations do the same to a machine.
func (w Work) Same(other Work) bool {
	return w.Step == other.Step && w.Failed == other.Failed && w.Moves == other.Moves &&
		w.Operation.GetNamespace() == other.Operation.GetNamespace() && w.Operation.GetName() == other.Operation.GetName()
}

// Works says what the operations of a cluster do to its machines, by name of the machine. Where two have a machine in hand, one of them
// failed, and it is the other's that holds the lock.
func Works(operations []*pb.Operation) map[string]Work {
	works := map[string]Work{}
	for _, op := range operations {
		if Over(op) {
			continue
		}
		for _, unit := range op.GetMachines() {
			_, taken := works[unit.GetName()]
			if unit.GetPhase() == pb.UnitPhase_UNIT_PHASE_COMPLETED || unit.GetStep() == "" || (taken && !op.GetLockHeld()) {
				continue
			}
			works[unit.GetName()] = Work{Operation: op.GetRef(), Step: unit.GetStep(), Failed: unit.GetFailed(), Moves: moves(op)}
		}
	}
	return works
}

// Machine renders a machine, and what an operation does to it.
func Machine(machine *v1alpha1.TalosMachine, work Work) *pb.Machine {
	return &pb.Machine{
		Ref:               Reference(machine.Namespace, machine.Name),
		Cluster:           Reference(machine.Namespace, machine.Spec.ClusterName),
		Node:              machine.Status.NodeName,
		Role:              Role(machine.Spec.Role),
		Address:           machine.Spec.Address,
		Uuid:              machine.Spec.UUID,
		Approved:          machine.Spec.Approval == v1alpha1.Approved,
		Held:              machine.Held(),
		HoldNote:          machine.Annotations[v1alpha1.UpgradeHoldAnnotation],
		TalosVersion:      machine.Status.TalosVersion,
		KubernetesVersion: machine.Status.KubeletVersion,
		SchematicId:       machine.Status.SchematicID,
		Ready:             meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.MachineReadyCondition),
		Conditions:        Conditions(machine.Status.Conditions),
		Operation:         work.Operation,
		Step:              work.Step,
		CreateTime:        Time(machine.CreationTimestamp),
		Attention:         machineAttention(machine, work),
		Labels:            machine.Labels,
		Joining:           machine.Joining(),
		Removing:          machine.Spec.Removal != nil,
	}
}

// machineAttention says whether a machine needs a person. While an operation works on it, it may be away.
func machineAttention(machine *v1alpha1.TalosMachine, work Work) pb.Attention {
	ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.MachineReadyCondition)
	if machine.Joining() { // It waits for somebody, and harms nobody.
		ready = nil
	}
	switch {
	case work.Failed:
		return pb.Attention_ATTENTION_FAILED
	case machine.Spec.Approval != v1alpha1.Approved, meta.IsStatusConditionFalse(machine.Status.Conditions, v1alpha1.IdentityConfirmedCondition):
		return pb.Attention_ATTENTION_PERSON
	case ready == nil || ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.NotYetObservedReason:
		return pb.Attention_ATTENTION_NONE
	case work.Moves:
		return pb.Attention_ATTENTION_WAITING
	}
	return pb.Attention_ATTENTION_SOON
}
