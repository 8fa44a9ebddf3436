// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// letGo takes back all that the hub has on a cluster that it does not manage, or not any more.
func (r *Reconciler) letGo(ctx context.Context, s *scope) error {
	for i := range s.members {
		if err := r.machines().ReleaseDeletion(ctx, &s.members[i]); err != nil {
			return err
		}
	}
	return r.clusters().Withdraw(ctx, s.cluster, v1alpha1.TalosAvailableCondition)
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
	return r.unblockMove(ctx, s.talos)
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
func (r *Reconciler) unblockMove(ctx context.Context, cluster *v1alpha1.TalosCluster) error {
	patched := cluster.DeepCopy()
	delete(patched.Annotations, v1alpha1.BlockMoveAnnotation)
	patch := client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, patched, patch); err != nil {
		return fmt.Errorf("letting TalosCluster %s be moved: %w", client.ObjectKeyFromObject(cluster), err)
	}
	return nil
}
