// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// asksBack says whether somebody has asked to turn the operation back.
func (s *scope) asksBack() bool {
	return s.op.Annotations[v1alpha1.TurnBackAnnotation] == v1alpha1.TurnBackRequested
}

// kept says whether the operation has begun with a stage that a deletion does not take back.
func (s *scope) kept() bool {
	if s.Cluster == nil || s.executor == nil || s.op.Completed() || statusLost(s.op) {
		return false
	}
	for _, stage := range s.stages {
		begun := slices.ContainsFunc(s.all(), func(u v1alpha1.UnitStatus) bool { return u.Stage == stage.Name || u.CompletedStage == stage.Name })
		if stage.Kept && (begun || slices.Contains(s.op.Status.CompletedStages, stage.Name)) {
			return true
		}
	}
	return false
}

// goOn takes an operation further that is to be deleted, and may only be once it is over.
func (r *Reconciler) goOn(ctx context.Context, s *scope) error {
	for _, phase := range []func(context.Context, *scope) (stop bool, err error){r.retry, r.halt, r.acquire, r.trust} {
		if stop, err := phase(ctx, s); stop || err != nil {
			return err
		}
	}
	return r.run(ctx, s)
}

// setTurningBack says what became of a request to turn back. An operation that nobody has asked has no such condition.
func setTurningBack(s *scope) {
	completed := s.op.Completed()
	switch {
	case !s.asksBack():
	case s.plan.NoWayBack != "" && !wasTurningBack(s.op):
		set(s.op, v1alpha1.TurningBackCondition, metav1.ConditionFalse, v1alpha1.NoWayBackReason, s.plan.NoWayBack)
	case s.plan.TurnsBack && completed:
		set(s.op, v1alpha1.TurningBackCondition, metav1.ConditionFalse, v1alpha1.HasTurnedBackReason, "")
	case s.plan.TurnsBack:
		set(s.op, v1alpha1.TurningBackCondition, metav1.ConditionTrue, v1alpha1.TurningBackReason, "what was changed becomes what it was")
	}
}

func wasTurningBack(op *v1alpha1.TalosOperation) bool {
	return meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.TurningBackCondition)
}

// turnedBack says whether the operation has been turned back.
func turnedBack(op *v1alpha1.TalosOperation) bool {
	condition := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.TurningBackCondition)
	return condition != nil && condition.Reason == v1alpha1.HasTurnedBackReason
}
