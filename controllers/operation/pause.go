// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/operation/window"
	"ichor.maesh.dev/hub/providers/capi"
)

// pause is a row of the pause table: why an operation does not move, who changes that, and with which command.
type pause struct {
	reason  string
	message string

	// releases says that the lock goes once the operation has settled. Otherwise a held lock stays.
	releases bool

	// leaves says that nothing on the target is touched any more, not even to settle: what status says of it may be wrong, or the
	// target is not ours.
	leaves bool
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
		return lostStatus(s)
	case s.op.Status.FailureReason != "" && len(s.failed()) > 0:
		return stepFailed(s)
	case s.executor == nil:
		return &pause{reason: v1alpha1.NoExecutorReason, releases: true, message: explain(
			fmt.Sprintf("this hub does not know operations of kind %q", s.op.Spec.Kind),
			"a newer one may: upgrade the hub, or delete it with: ichor operation delete "+s.op.Name)}
	case s.op.Status.FailureReason != "":
		return refused(s)
	}
	return outsideWindow(s, r.Clock.Now())
}

// asked finds the rows that somebody asked for.
func asked(s *scope) *pause {
	switch {
	case clusterPaused(s.CAPICluster):
		return &pause{reason: v1alpha1.ClusterPausedReason, releases: true, message: fmt.Sprintf(
			"Cluster %q is paused; the operation goes on when it is unpaused", s.op.Spec.ClusterName)}
	case capi.OptedOut(s.CAPICluster):
		return &pause{reason: v1alpha1.ClusterPausedReason, releases: true, message: fmt.Sprintf(
			"Cluster %q is not the hub's to work on (annotation %s); the operation goes on when the annotation is gone", s.op.Spec.ClusterName, v1alpha1.OptOutAnnotation)}
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
	if !s.needsWindow() {
		return nil
	}
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

// needsWindow says whether a window has to be open for what the operation does next.
func (s *scope) needsWindow() bool {
	switch s.traits.Windows {
	case plan.WindowsNever:
		return false
	case plan.WindowsToBegin:
		return !s.tookAway()
	case plan.WindowsThroughout:
	}
	return true
}

// tookAway says whether the operation has begun to take a machine away, whatever became of that.
func (s *scope) tookAway() bool {
	return slices.ContainsFunc(s.op.Status.Machines, func(unit v1alpha1.UnitStatus) bool {
		return slices.ContainsFunc(unit.Steps, func(step v1alpha1.StepRecord) bool { return s.disruptive(step.Stage) })
	})
}

func stepFailed(s *scope) *pause {
	return &pause{reason: v1alpha1.StepFailedReason, message: explain(
		s.op.Status.FailureReason, "nothing is repeated or rolled back. Fix the cause, then: ichor operation resume "+s.op.Name)}
}

func refused(s *scope) *pause {
	return &pause{reason: v1alpha1.RefusedReason, releases: true, leaves: true, message: explain(
		s.op.Status.FailureReason, "change that, then: ichor operation resume "+s.op.Name)}
}

// lostReason is why an operation whose status was lost has failed.
const lostReason = "its status was lost, or is older than what was begun on the cluster"

// lostStatus says what becomes of an operation whose status was lost. Only kinds that find done what is done may run again.
func lostStatus(s *scope) *pause {
	why := fmt.Sprintf("the operation began at %s, and %s", s.op.Annotations[v1alpha1.StartedAtAnnotation], lostReason)
	help := fmt.Sprintf("check the machines, then create it anew, and: ichor operation delete %s", s.op.Name)
	if s.traits.Repeatable {
		help = "check the machines, then run it again with: ichor operation resume " + s.op.Name
	}
	return &pause{reason: v1alpha1.StatusLostReason, releases: true, leaves: true, message: explain(why, help)}
}

// lockHeld says who has the lock, and what frees it.
func (r *Reconciler) lockHeld(ctx context.Context, holder lock.Holder) *pause {
	return &pause{reason: v1alpha1.ClusterLockHeldReason, message: explain(
		fmt.Sprintf("the lock of the cluster is held by %s", holder), r.frees(ctx, holder))}
}

// frees says what makes a holder give the lock back.
func (r *Reconciler) frees(ctx context.Context, holder lock.Holder) string {
	key, ok := holder.OperationKey()
	op := &v1alpha1.TalosOperation{}
	if !ok || r.Client.Get(ctx, key, op) != nil {
		return "this operation starts when it lets go"
	}
	unsafe := r.unsafe(op)
	switch {
	case op.Status.FailureReason != "" && unsafe != "":
		return fmt.Sprintf("it has failed and %s; retry it with: ichor operation resume %s", unsafe, op.Name)
	case op.Paused():
		return fmt.Sprintf("it is paused; this operation starts after: ichor operation resume %s", op.Name)
	case reasonToStand(op).Reason != "" && holdsLock(op):
		return fmt.Sprintf("it stands (%s); see: ichor operation get %s", reasonToStand(op).Reason, op.Name)
	}
	return "this operation starts when it finishes"
}

// unsafeWindow says that the cluster is inside a window which nobody else may enter, although nobody holds its lock.
func unsafeWindow(cluster *v1alpha1.TalosCluster, operation string) *pause {
	return &pause{reason: v1alpha1.ClusterLockHeldReason, message: explain(
		fmt.Sprintf("TalosOperation %q is inside a stage of cluster %s that nobody else may interrupt", operation, cluster.Name),
		"this operation starts when it is past that; see: ichor operation get "+operation)}
}

// controlPlaneDeleted says which control plane has to be gone before an operation starts.
func controlPlaneDeleted(machine *clusterv1.Machine) *pause {
	return &pause{reason: v1alpha1.ClusterLockHeldReason, message: explain(
		fmt.Sprintf("Machine %q, a control plane, is being deleted and goes first", machine.Name),
		fmt.Sprintf("this operation starts when it is gone; see: kubectl describe machine %s -n %s", machine.Name, machine.Namespace))}
}

func comesFirst(other *v1alpha1.TalosOperation) *pause {
	why := "was created earlier and goes first"
	if halfWay(other) {
		why = "has machines in hand and goes first"
	}
	return &pause{reason: v1alpha1.ClusterLockHeldReason, message: explain(
		fmt.Sprintf("%s %s", lock.Operation(other), why), "this operation starts when it finishes")}
}

// statusLost says that an operation had begun and nothing of it is left in status.
func statusLost(op *v1alpha1.TalosOperation) bool {
	return op.Annotations[v1alpha1.StartedAtAnnotation] != "" && op.Status.StartTime.IsZero()
}
