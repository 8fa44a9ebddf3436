// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation/window"
)

// pause is a row of the pause table: why an operation does not move, who changes that, and with which command.
type pause struct {
	reason  string
	message string

	// releases says that the lock goes once the operation has settled. Otherwise a held lock stays.
	releases bool
}

// halted finds the first row of the pause table that applies, but for those that only matter when the lock is taken.
func (r *Reconciler) halted(s *scope) *pause {
	switch {
	case s.Cluster == nil:
		return &pause{reason: v1alpha1.TargetMissingReason, message: fmt.Sprintf(
			"there is no TalosCluster %q in namespace %q; import it with: ichor cluster import %[1]s", s.op.Spec.ClusterName, s.op.Namespace)}
	case asked(s) != nil:
		return asked(s)
	case statusLost(s.op):
		return &pause{reason: v1alpha1.StatusLostReason, message: fmt.Sprintf(
			"the operation began at %s and its status is gone; check the machines, delete it and start again", s.op.Annotations[v1alpha1.StartedAtAnnotation])}
	case s.op.Status.FailureReason != "" && len(s.failed()) > 0:
		return stepFailed(s)
	case s.op.Status.FailureReason != "":
		return refused(s)
	case s.executor == nil:
		return &pause{reason: v1alpha1.NoExecutorReason, message: fmt.Sprintf(
			"this hub does not know operations of kind %q; a newer one may", s.op.Spec.Kind)}
	}
	return outsideWindow(s, r.Clock.Now())
}

// asked finds the rows that somebody asked for.
func asked(s *scope) *pause {
	switch {
	case clusterPaused(s.CAPICluster):
		return &pause{reason: v1alpha1.ClusterPausedReason, releases: true, message: fmt.Sprintf(
			"Cluster %q is paused; the operation goes on when it is unpaused", s.op.Spec.ClusterName)}
	case s.op.Paused():
		return &pause{reason: v1alpha1.OperatorPausedReason, message: fmt.Sprintf(
			"spec.paused is true; resume with: ichor operation resume %s", s.op.Name)}
	}
	return nil
}

// heldBack finds what keeps a retry from beginning: all that holds an operation which has not failed.
func (r *Reconciler) heldBack(s *scope) *pause {
	if s.Cluster == nil {
		return nil
	}
	if why := asked(s); why != nil {
		return why
	}
	return outsideWindow(s, r.Clock.Now())
}

// outsideWindow waits for a maintenance window. A machine in hand is finished first, and the lock is free until the next one.
func outsideWindow(s *scope, now time.Time) *pause {
	state, err := window.At(s.Cluster.Spec.MaintenanceWindows, now)
	switch {
	case err != nil:
		return &pause{reason: v1alpha1.WaitingForWindowReason, releases: true, message: shorten(fmt.Sprintf(
			"%s: no window of TalosCluster %s opens until that is mended", err, s.Cluster.Name))}
	case !state.Changes.IsZero():
		s.comeBack(state.Changes.Sub(now))
	}
	if state.Open {
		return nil
	}
	return &pause{reason: v1alpha1.WaitingForWindowReason, releases: true, message: fmt.Sprintf(
		"the next maintenance window of TalosCluster %s opens at %s", s.Cluster.Name, state.Changes.UTC().Format(time.RFC3339))}
}

func stepFailed(s *scope) *pause {
	return &pause{reason: v1alpha1.StepFailedReason, message: shorten(fmt.Sprintf(
		"%s; nothing is repeated or rolled back. Fix the cause, then: ichor operation resume %s", s.op.Status.FailureReason, s.op.Name))}
}

func refused(s *scope) *pause {
	return &pause{reason: v1alpha1.RefusedReason, message: shorten(fmt.Sprintf(
		"%s; change that, then: ichor operation resume %s", s.op.Status.FailureReason, s.op.Name))}
}

func lockHeld(holder lock.Holder) *pause {
	return &pause{reason: v1alpha1.ClusterLockHeldReason, message: fmt.Sprintf(
		"the lock of the cluster is held by %s; this operation starts when it finishes", holder)}
}

func comesFirst(other *v1alpha1.TalosOperation) *pause {
	return &pause{reason: v1alpha1.ClusterLockHeldReason, message: fmt.Sprintf(
		"%s was created earlier and goes first; this operation starts when it finishes", lock.Operation(other))}
}

// statusLost says that an operation had begun and nothing of it is left in status.
func statusLost(op *v1alpha1.TalosOperation) bool {
	return op.Annotations[v1alpha1.StartedAtAnnotation] != "" && op.Status.StartTime.IsZero()
}
