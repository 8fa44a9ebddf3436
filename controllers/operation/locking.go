// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation/kind"
)

// acquire takes the lock, or waits for whoever has it or comes first.
func (r *Reconciler) acquire(ctx context.Context, s *scope) (stop bool, err error) {
	if holdsLock(s.op) {
		for _, gives := range []func(context.Context, *scope) (bool, error){r.yield, r.standAside} {
			if given, err := gives(ctx, s); given || err != nil {
				return true, err
			}
		}
		ready, err := r.enter(ctx, s)
		return !ready, err
	}
	if s.why, err = r.behind(ctx, s); s.why != nil || err != nil {
		return true, err
	}
	if ready, err := r.enter(ctx, s); err != nil || !ready {
		return true, err
	}
	if s.op.Status.Target == nil {
		if stop, err := r.begin(ctx, s); stop || err != nil {
			return true, err
		}
	}
	setLock(s.op, metav1.ConditionTrue, v1alpha1.LockHeldReason)
	s.event(v1alpha1.LockTakenEvent, "Lock", "took the lock of cluster %s", s.op.Spec.ClusterName)
	return true, nil // Status first: it wakes us.
}

// behind says who comes before an operation that does not have the lock; nil if nobody does.
func (r *Reconciler) behind(ctx context.Context, s *scope) (*pause, error) {
	switch unsafe := s.Cluster.Annotations[v1alpha1.UnsafeAnnotation]; {
	case unsafe == s.op.Name:
		return nil, nil // Inside its own window nobody does.
	case unsafe != "":
		return unsafeWindow(s.Cluster, unsafe), nil
	}
	if why, err := r.deletionUnderWay(ctx, s); why != nil || err != nil {
		return why, err
	}
	first, err := r.ahead(ctx, s)
	if err != nil || first == nil {
		return nil, err
	}
	return r.queued(ctx, s, first)
}

// yield gives the lock to an operation that has machines half-way and is able to go on with them. This one has none in hand, and might
// wait for those very machines.
func (r *Reconciler) yield(ctx context.Context, s *scope) (yields bool, err error) {
	if s.unfinished() {
		return false, nil
	}
	first, err := r.ahead(ctx, s)
	if err != nil || first == nil || !halfWay(first) {
		return false, err
	}
	now := &v1alpha1.TalosOperation{} // The cache may not have heard yet that it is over.
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(first), now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !r.wantsLock(now) || !halfWay(now) {
		return false, nil
	}
	s.why = comesFirst(now)
	return true, r.release(ctx, s)
}

// begin captures the target, as it is now and not as a cache remembers it. If that is refused, the lock goes back.
func (r *Reconciler) begin(ctx context.Context, s *scope) (stop bool, err error) {
	if err := r.loadFrom(ctx, s, r.APIReader); err != nil || s.Cluster == nil {
		return true, errors.Join(err, r.release(ctx, s))
	}
	if refusals := s.objections(); len(refusals) > 0 {
		r.refuse(s, refusals[0])
		return true, r.release(ctx, s)
	}
	for _, bypassed := range s.plan.Overridden {
		s.event(v1alpha1.GateOverriddenEvent, "Judge", "gate %s is overridden: %s", bypassed.Gate, bypassed.Message)
	}
	s.op.Status.Target = ptr.To(s.target())
	s.op.Status.OperationID = lock.OperationID(s.op)
	s.op.Status.StartTime = metav1.NewTime(r.Clock.Now())
	return false, nil
}

// queued says what an operation waits for that is not the first in the queue: for whoever has the lock, or else for the first. A lock that
// a process took for this very operation, and died over before it could say so, is not waited for: nobody else would ever get it.
func (r *Reconciler) queued(ctx context.Context, s *scope, first *v1alpha1.TalosOperation) (*pause, error) {
	holder, err := r.Locks.Holder(ctx, s.clusterKey())
	switch {
	case err != nil || holder == lock.Operation(s.op):
		return nil, err
	case holder.Identity == "":
		return comesFirst(first), nil
	}
	return r.lockHeld(ctx, holder), nil
}

// errFenced means that another process acts for an operation that this one had entered. This one must not touch it any more, and ends.
var errFenced = errors.New("another hub process acts for the operation")

// enter makes sure that the lock names this operation and carries the epoch of this process. It takes a lock that was lost again, but
// never from another process that acts for the same operation: that one is younger.
func (r *Reconciler) enter(ctx context.Context, s *scope) (ready bool, err error) {
	memory := r.remember(s.key)
	if memory.entered && holdsLock(s.op) {
		if held, epoch, err := r.lockSeen(ctx, s, r.Client); err == nil && held && epoch == r.Locks.Epoch {
			return true, nil
		}
		switch held, epoch, err := r.lockSeen(ctx, s, r.APIReader); { // The cache may be behind our own write.
		case err != nil:
			return false, err
		case held && epoch != r.Locks.Epoch:
			r.Fenced(errFenced)
			return false, errFenced
		}
	}
	holder, err := r.Locks.Acquire(ctx, s.clusterKey(), s.Owner(), lock.Operation(s.op), r.takeOver(s))
	if err != nil {
		return false, err
	}
	if holder != lock.Operation(s.op) {
		s.why, memory.entered = r.lockHeld(ctx, holder), false
		setLock(s.op, metav1.ConditionFalse, v1alpha1.LockNotHeldReason)
		if holder.Expires() {
			s.comeBack(quietWait) // Nobody tells when it has expired.
		}
		return false, nil
	}
	memory.entered, memory.trusted, memory.shielded = true, false, ""
	r.observer.Invalidate(s.key)
	return true, nil
}

// lockSeen is what a reader knows of the lock: whether the operation holds it, and for which process.
func (r *Reconciler) lockSeen(ctx context.Context, s *scope, reader client.Reader) (held bool, epoch string, err error) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: s.op.Namespace, Name: lock.LeaseName(s.op.Spec.ClusterName)}
	if err := reader.Get(ctx, key, lease); err != nil {
		return false, "", client.IgnoreNotFound(err)
	}
	return lock.HolderOf(lease) == lock.Operation(s.op), lease.Annotations[v1alpha1.LockEpochAnnotation], nil
}

// release gives the lock back, and lets the target be moved.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	if err := r.unshield(ctx, s); err != nil {
		return err
	}
	if err := r.Locks.Release(ctx, s.clusterKey(), lock.Operation(s.op), s.op.Status.Sequence); err != nil {
		return err
	}
	memory := r.remember(s.key)
	memory.entered, memory.trusted, memory.shielded = false, false, ""
	if holdsLock(s.op) {
		s.event(v1alpha1.LockReleasedEvent, "Unlock", "gave back the lock of cluster %s", s.op.Spec.ClusterName)
		setLock(s.op, metav1.ConditionFalse, v1alpha1.LockReleasedReason)
	}
	return nil
}

// takeOver says that the lock was taken over, where it was.
func (r *Reconciler) takeOver(s *scope) lock.TakeOver {
	return func(ctx context.Context, holder lock.Holder) (bool, error) {
		free, err := r.MayTakeOver(ctx, holder)
		if free && err == nil && r.hasFailed(ctx, holder) { // Who is over gives the lock back anyway.
			s.event(v1alpha1.LockTakenOverEvent, "Lock", "took the lock of cluster %s over from %s, which does not need it any more", s.op.Spec.ClusterName, holder)
		}
		return free, err
	}
}

// releaseUnknown gives back a lock that a process took for the operation, and died over before status could say so.
func (r *Reconciler) releaseUnknown(ctx context.Context, s *scope) error {
	held, _, err := r.lockSeen(ctx, s, r.Client)
	if err != nil || !held {
		return err
	}
	return r.release(ctx, s)
}

// hasFailed says whether a holder is an operation that has failed.
func (r *Reconciler) hasFailed(ctx context.Context, holder lock.Holder) bool {
	key, ok := holder.OperationKey()
	op := &v1alpha1.TalosOperation{}
	return ok && r.Client.Get(ctx, key, op) == nil && op.Status.FailureReason != ""
}

// MayTakeOver frees the lock of an operation that is gone, over, or paused by a failed step from which others are safe, and that of a
// machine which is gone. It asks the holder alone: how long ago that gave a sign of life says nothing about its machines.
func (r *Reconciler) MayTakeOver(ctx context.Context, holder lock.Holder) (bool, error) {
	if key, ok := holder.MachineKey(); ok {
		return MachineGone(ctx, r.APIReader, key)
	}
	key, ok := holder.OperationKey()
	if !ok {
		return false, nil
	}
	return r.mayTakeOverFrom(ctx, key, holder, func(v1alpha1.UnitStatus) bool { return true })
}

// MayTakeOverToDelete is MayTakeOver for the deletion of a machine: an operation that has failed half-way with that very machine does not
// keep its lock from it. Whatever the machine is in the middle of, it goes, and the lock is its own until it is gone.
func (r *Reconciler) MayTakeOverToDelete(machine client.ObjectKey) lock.TakeOver {
	return func(ctx context.Context, holder lock.Holder) (bool, error) {
		key, ok := holder.OperationKey()
		if !ok || key.Namespace != machine.Namespace {
			return r.MayTakeOver(ctx, holder)
		}
		return r.mayTakeOverFrom(ctx, key, holder, func(unit v1alpha1.UnitStatus) bool { return unit.Name != machine.Name })
	}
}

// Settles says whether a holder is an operation that may still be at work: it is there, not over, and has not come to rest by a failure.
func (r *Reconciler) Settles(ctx context.Context, holder lock.Holder) (bool, error) {
	key, ok := holder.OperationKey()
	if !ok {
		return false, nil
	}
	nobody := func(v1alpha1.UnitStatus) bool { return false }
	free, err := r.mayTakeOverFrom(ctx, key, holder, nobody)
	return !free && err == nil, err
}

// mayTakeOverFrom is MayTakeOver for the lock of an operation, which is kept for the sake of those of its units alone that concern who asks.
func (r *Reconciler) mayTakeOverFrom(ctx context.Context, key client.ObjectKey, holder lock.Holder, concerned func(v1alpha1.UnitStatus) bool) (bool, error) {
	op := &v1alpha1.TalosOperation{}
	if err := r.APIReader.Get(ctx, key, op); err != nil {
		return client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
	}
	return op.Completed() || lock.OperationID(op) != holder.OperationID || (op.Status.FailureReason != "" && r.atRest(op, concerned)), nil
}

// atRest says whether nothing goes on with any machine of an operation that has failed, and none that concerns who asks is inside an unsafe
// step.
func (r *Reconciler) atRest(op *v1alpha1.TalosOperation, concerned func(v1alpha1.UnitStatus) bool) bool {
	for _, unit := range units(op) {
		if inHand(unit) && !isFailed(unit) {
			return false
		}
	}
	return r.Executors[op.Spec.Kind] != nil && r.unsafeOf(op, concerned) == ""
}

// unsafe says which unit of an operation keeps everybody else from its cluster, and why; nothing if none does.
func (r *Reconciler) unsafe(op *v1alpha1.TalosOperation) string {
	return r.unsafeOf(op, func(v1alpha1.UnitStatus) bool { return true })
}

// unsafeFailure is unsafe for the units that have failed.
func (r *Reconciler) unsafeFailure(op *v1alpha1.TalosOperation) string {
	return r.unsafeOf(op, isFailed)
}

func (r *Reconciler) unsafeOf(op *v1alpha1.TalosOperation, concerned func(v1alpha1.UnitStatus) bool) string {
	executor := r.Executors[op.Spec.Kind]
	if executor == nil {
		return ""
	}
	for _, unit := range units(op) {
		if why := executor.Unsafe(kind.Unit{Status: unit}); inHand(unit) && concerned(unit) && why != "" {
			return unit.Name + " " + why
		}
	}
	return ""
}

// MachineGone says whether there is neither a TalosMachine nor a Machine of Cluster API by the name of a holder.
func MachineGone(ctx context.Context, live client.Reader, key client.ObjectKey) (bool, error) {
	for _, machine := range []client.Object{&v1alpha1.TalosMachine{}, &clusterv1.Machine{}} {
		switch err := live.Get(ctx, key, machine); {
		case err == nil:
			return false, nil
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return false, fmt.Errorf("reading the machine %s that holds the lock: %w", key, err)
		}
	}
	return true, nil
}
