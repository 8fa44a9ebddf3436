// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation"
	"ichor.maesh.dev/hub/providers/capi"
)

// available is the hub's condition on a Cluster: what condition Available of the TalosCluster says.
func available(cluster *v1alpha1.TalosCluster) metav1.Condition {
	found := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.AvailableCondition)
	if found == nil {
		return metav1.Condition{Type: v1alpha1.TalosAvailableCondition, Status: metav1.ConditionUnknown, Reason: v1alpha1.NotYetObservedReason}
	}
	return metav1.Condition{Type: v1alpha1.TalosAvailableCondition, Status: found.Status, Reason: found.Reason, Message: found.Message}
}

// reportPaused says that nobody looks at a cluster which is paused: what the condition has said before may be wrong by now.
func (r *Reconciler) reportPaused(ctx context.Context, s *scope) error {
	if s.talos == nil || capi.OptedOut(s.cluster) {
		return nil
	}
	return r.clusters().Report(ctx, s.cluster, metav1.Condition{
		Type: v1alpha1.TalosAvailableCondition, Status: metav1.ConditionUnknown, Reason: clusterv1.PausedReason, Message: "the Cluster is paused",
	})
}

// letGo takes back all that the hub has on a cluster that it does not manage, or not any more. Where it was asked to keep out, an operation
// may have to bring its machine in hand to the end first, and no other control plane may go meanwhile.
func (r *Reconciler) letGo(ctx context.Context, s *scope) error {
	if s.talos != nil {
		holder, err := r.Locks.Holder(ctx, s.key)
		if err != nil {
			return err
		}
		if settles, err := r.Operations.Settles(ctx, holder); err != nil || settles {
			return err // The Lease wakes us when it is given back.
		}
	}
	var errs []error
	for i := range s.members {
		errs = append(errs, r.machines().ReleaseDeletion(ctx, &s.members[i]))
	}
	return all(append(errs, r.clusters().Withdraw(ctx, s.cluster, v1alpha1.TalosAvailableCondition))...)
}

// dropLeftovers takes back what operations put on the Cluster and the TalosCluster that do not hold the lock. Each takes back its own before
// it gives the lock back, so these are gone in a way that let them do nothing any more.
func (r *Reconciler) dropLeftovers(ctx context.Context, s *scope) error {
	if owner, held := capi.UpgradeHeldFor(s.cluster); held {
		if key, ours := (lock.Holder{Identity: owner}).OperationKey(); ours {
			if holds, err := r.holds(ctx, s.key, key); err != nil || holds {
				return err
			}
			if err := r.clusters().ReleaseUpgrade(ctx, s.key, owner); err != nil {
				return err
			}
		}
	}
	if s.talos == nil {
		return nil
	}
	key, shielded := operation.ShieldedBy(s.talos)
	if !shielded {
		return nil
	}
	if holds, err := r.holds(ctx, s.key, key); err != nil || holds {
		return err
	}
	if begins, err := r.mayBegin(ctx, s, key); err != nil || begins {
		return err
	}
	return unblockMove(ctx, r.Client, s.talos)
}

// mayBegin says whether an operation without the lock may take it, and keeps its TalosCluster from being moved for that. In a paused Cluster
// none does.
func (r *Reconciler) mayBegin(ctx context.Context, s *scope, key client.ObjectKey) (bool, error) {
	if capi.Paused(s.cluster) || capi.OptedOut(s.cluster) {
		return false, nil
	}
	op := &v1alpha1.TalosOperation{}
	if err := r.Client.Get(ctx, key, op); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return !op.Completed() && op.DeletionTimestamp.IsZero() && op.Status.FailureReason == "", nil
}

// holds says whether an operation holds the lock of a cluster, as it is now.
func (r *Reconciler) holds(ctx context.Context, cluster, op client.ObjectKey) (bool, error) {
	holder, err := r.Locks.Holder(ctx, cluster)
	if err != nil {
		return false, err
	}
	key, ok := holder.OperationKey()
	return ok && key == op, nil
}

// unblockMove takes the block off a TalosCluster, if that is still as it was read.
func unblockMove(ctx context.Context, c client.Client, cluster *v1alpha1.TalosCluster) error {
	patched := cluster.DeepCopy()
	delete(patched.Annotations, v1alpha1.BlockMoveAnnotation)
	patch := client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, patched, patch); err != nil {
		return fmt.Errorf("letting TalosCluster %s be moved: %w", client.ObjectKeyFromObject(cluster), err)
	}
	return nil
}
