// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/capi"
)

// use is what an operation does with a machine that it asked to be left alone.
type use string

const (
	// inWork machines are in hand, or about to be.
	inWork use = "in work"

	// down machines are off on purpose: they are given back when they are up again.
	down use = "down"

	// failed machines wait for a person.
	failed use = "failed"

	// done machines have been through it, or were put back.
	done use = "done"
)

// useBy is what an operation does with a machine, by the name of its TalosMachine and by its Machine.
func useBy(op *v1alpha1.TalosOperation, name string, machine *clusterv1.Machine) use {
	unit := op.Machine(name)
	switch {
	case unit != nil && !unit.FailureTime.IsZero():
		return failed
	case unit != nil && unit.Phase == v1alpha1.UnitCompleted, op.Completed():
		if leavesDown(op) && !backSince(machine, op.Status.CompletionTime) {
			return down
		}
		return done
	case unit != nil && unit.Stage != unit.CompletedStage:
		return inWork // Settling as well.
	case mayClaim(op):
		return inWork // The annotation comes before the claim.
	}
	return done
}

// mayClaim says whether the next write of an operation may be a claim. Without the lock, or after a failure, another one comes first.
func mayClaim(op *v1alpha1.TalosOperation) bool {
	return meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.LockHeldCondition) && op.Status.FailureReason == "" && !op.Paused()
}

// backSince says whether a Node became Ready after a time. One that was switched off looks Ready for a while.
func backSince(machine *clusterv1.Machine, completed metav1.Time) bool {
	since, ready := capi.NodeReady(machine)
	return ready && !completed.IsZero() && since.After(completed.Time)
}

// leavesDown says whether an operation ends with its machines switched off.
func leavesDown(op *v1alpha1.TalosOperation) bool {
	if op.Spec.Node != nil {
		return op.Spec.Node.Action == v1alpha1.ShutdownAction
	}
	return op.Spec.Shutdown != nil && op.Spec.Shutdown.Action == v1alpha1.ClusterStop
}
