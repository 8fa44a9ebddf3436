// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// markPower writes down on the TalosCluster that a planned shutdown has begun to take machines away, or that the cluster is being started.
func (s *scope) markPower(annotations map[string]string, now time.Time) {
	switch s.traits.Power {
	case plan.PowerOff:
		ours := annotations[v1alpha1.StoppedByAnnotation] == s.key.String() && annotations[v1alpha1.PowerAnnotation] == string(v1alpha1.ClusterStopping)
		if !ours && s.disruptive(s.op.Status.Stage) {
			setPower(annotations, v1alpha1.ClusterStopping, s.key.String(), now)
		}
	case plan.PowerOn:
		annotations[v1alpha1.PowerAnnotation] = string(v1alpha1.ClusterStarting)
	case plan.PowerStays:
	}
}

// completePower writes down what a planned shutdown has made of the cluster. It does so before status says that the operation is over: from
// then on others may take the lock, and must know.
func (r *Reconciler) completePower(ctx context.Context, s *scope) error {
	if s.traits.Power == plan.PowerStays {
		return nil
	}
	return r.annotateCluster(ctx, s, func(annotations map[string]string) {
		stopped := annotations[v1alpha1.PowerAnnotation] == string(v1alpha1.ClusterIsStopped) && annotations[v1alpha1.StoppedByAnnotation] == s.key.String()
		switch {
		case s.traits.Power == plan.PowerOn:
			clearPower(annotations)
		case !stopped:
			setPower(annotations, v1alpha1.ClusterIsStopped, s.key.String(), r.Clock.Now())
		}
	})
}

// settlePower writes down what an operation that is not over leaves behind when it lets go of the cluster. Once a machine was told to power
// off, only a start that went through to its end says that the cluster runs.
func (s *scope) settlePower(annotations map[string]string, now time.Time) {
	if s.op.Completed() {
		return
	}
	power, ours := v1alpha1.ClusterPower(annotations[v1alpha1.PowerAnnotation]), annotations[v1alpha1.BlockMoveAnnotation] == shieldOf(s.op)
	deleted := !s.op.DeletionTimestamp.IsZero() && !s.moves()
	switch {
	case power == v1alpha1.ClusterStarting && ours && s.traits.Power == plan.PowerOn:
		annotations[v1alpha1.PowerAnnotation] = string(v1alpha1.ClusterIsStopped)
	case power != v1alpha1.ClusterStopping || annotations[v1alpha1.StoppedByAnnotation] != s.key.String() || !deleted:
	case s.tookAway() || statusLost(s.op):
		setPower(annotations, v1alpha1.ClusterIsStopped, s.key.String(), now)
	default:
		clearPower(annotations)
	}
}

func setPower(annotations map[string]string, power v1alpha1.ClusterPower, by string, at time.Time) {
	annotations[v1alpha1.PowerAnnotation] = string(power)
	annotations[v1alpha1.StoppedByAnnotation] = by
	annotations[v1alpha1.StoppedAtAnnotation] = at.UTC().Format(time.RFC3339)
}

func clearPower(annotations map[string]string) {
	for _, key := range []string{v1alpha1.PowerAnnotation, v1alpha1.StoppedByAnnotation, v1alpha1.StoppedAtAnnotation} {
		delete(annotations, key)
	}
}

// takesBack says whether something that the operation left on the target has to go with it.
func (s *scope) takesBack() bool {
	return !s.op.Completed() && slices.ContainsFunc(s.stages, s.leftBehind)
}

// leftBehind says whether a stage is over that is taken back with the operation.
func (s *scope) leftBehind(stage plan.Stage) bool {
	return stage.TakenBack && stage.Whole && s.unit(stage.Name).CompletedStage == stage.Name
}

// reopen puts the stages back in hand whose effect goes with the operation. Settling takes that back, and parks them for good.
func (s *scope) reopen() {
	for _, stage := range s.stages {
		if s.leftBehind(stage) {
			unit := s.unit(stage.Name)
			unit.Phase, unit.CompletedStage = v1alpha1.UnitInProgress, ""
			s.put(unit)
		}
	}
}
