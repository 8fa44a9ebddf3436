// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/capi"
)

// anchor keeps the target where it is from the moment on at which the operation may begin, and lets it go where it may not any more. clusterctl
// looks for that before it pauses a Cluster, and waits only for what it has found then: a block that is made when the operation has the lock
// may come too late.
func (r *Reconciler) anchor(ctx context.Context, s *scope) error {
	if !s.changesAnchor(s.Cluster.Annotations) {
		return nil
	}
	return r.annotateCluster(ctx, s, func(annotations map[string]string) {
		switch {
		case !s.changesAnchor(annotations):
		case s.anchored():
			annotations[v1alpha1.BlockMoveAnnotation] = shieldOf(s.op)
		default:
			delete(annotations, v1alpha1.BlockMoveAnnotation)
		}
	})
}

// changesAnchor says whether the target is not kept and should be, or kept for an operation that neither has the lock nor may take it.
func (s *scope) changesAnchor(annotations map[string]string) bool {
	owner, blocked := annotations[v1alpha1.BlockMoveAnnotation]
	return !blocked && s.anchored() || blocked && owner == shieldOf(s.op) && !s.anchored() && !holdsLock(s.op)
}

// anchored says whether the operation may begin, or go on, without anybody asking for that: then its target must not be moved.
func (s *scope) anchored() bool {
	return s.executor != nil && !s.op.Completed() && s.op.DeletionTimestamp.IsZero() && s.op.Status.FailureReason == "" &&
		!clusterPaused(s.CAPICluster) && !capi.OptedOut(s.CAPICluster)
}

// shield keeps the target where it is for as long as the operation holds the lock: a move would leave its status, and the lock, behind. And
// it keeps a topology of Cluster API from another version meanwhile, which would have machines replaced. Before anything begins under it, it
// looks whether the Cluster is paused by now: who moves it has either waited for the block, or paused it before that.
func (r *Reconciler) shield(ctx context.Context, s *scope) (stop bool, err error) {
	memory, wanted := r.remember(s.key), "stage "+s.op.Status.Stage
	if memory.shielded == wanted {
		return false, nil
	}
	if memory.shielded == "" && s.Adopted() {
		if err := r.capiClusters().HoldUpgrade(ctx, s.clusterKey(), lock.Operation(s.op).Identity); err != nil {
			return true, err
		}
	}
	if err := r.block(ctx, s); err != nil {
		return true, err
	}
	if memory.shielded == "" {
		if stop, err := r.pausedMeanwhile(ctx, s); stop || err != nil {
			return true, err
		}
	}
	memory.shielded = wanted
	return false, nil
}

// pausedMeanwhile says whether the Cluster is paused, as it is now. The event of that is on its way, and has the operation settle.
func (r *Reconciler) pausedMeanwhile(ctx context.Context, s *scope) (bool, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.APIReader.Get(ctx, s.clusterKey(), cluster); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !clusterPaused(cluster) {
		return false, nil
	}
	s.CAPICluster = cluster
	s.why = asked(s)
	return true, nil
}

// block says on the TalosCluster that the operation is at work.
func (r *Reconciler) block(ctx context.Context, s *scope) error {
	return r.annotateCluster(ctx, s, func(annotations map[string]string) {
		annotations[v1alpha1.BlockMoveAnnotation] = shieldOf(s.op)
		if s.inUnsafeStage() {
			annotations[v1alpha1.UnsafeAnnotation] = s.op.Name
		} else if annotations[v1alpha1.UnsafeAnnotation] == s.op.Name {
			delete(annotations, v1alpha1.UnsafeAnnotation)
		}
		s.markPower(annotations, r.Clock.Now())
	})
}

// unshield takes back what shield did, and nothing that anybody else put there. What keeps the target from being moved goes last, and stays
// where the operation may take the lock again.
func (r *Reconciler) unshield(ctx context.Context, s *scope) error {
	if s.CAPICluster == nil || s.Adopted() { // Nobody reads about the target for the sake of an operation that is over.
		if err := r.capiClusters().ReleaseUpgrade(ctx, s.clusterKey(), lock.Operation(s.op).Identity); err != nil {
			return err
		}
	}
	return r.annotateCluster(ctx, s, func(annotations map[string]string) {
		s.settlePower(annotations, r.Clock.Now())
		if annotations[v1alpha1.BlockMoveAnnotation] == shieldOf(s.op) && !s.anchored() {
			delete(annotations, v1alpha1.BlockMoveAnnotation)
		}
		if annotations[v1alpha1.UnsafeAnnotation] == s.op.Name && s.pastUnsafeStage() {
			delete(annotations, v1alpha1.UnsafeAnnotation)
		}
	})
}

func (r *Reconciler) capiClusters() capi.Clusters {
	return capi.Clusters{Client: r.Client, Live: r.APIReader}
}

// shieldOf is the value that says whose block it is.
func shieldOf(op *v1alpha1.TalosOperation) string { return shieldPrefix + op.Name }

// shieldPrefix precedes the name of an operation.
const shieldPrefix = "talosoperation/"

// ShieldedBy is the operation that keeps a TalosCluster from being moved; ok is false if none does.
func ShieldedBy(cluster *v1alpha1.TalosCluster) (operation client.ObjectKey, ok bool) {
	name, ok := strings.CutPrefix(cluster.Annotations[v1alpha1.BlockMoveAnnotation], shieldPrefix)
	return client.ObjectKey{Namespace: cluster.Namespace, Name: name}, ok
}

// inUnsafeStage says whether the operation has begun with a stage that nobody else may interrupt, and not reached a safe one since.
func (s *scope) inUnsafeStage() bool {
	if s.op.Completed() || s.forced() {
		return false
	}
	return s.stage(s.op.Status.Stage).Unsafe
}

// pastUnsafeStage says whether the window is certainly over. A status that was lost says nothing of it.
func (s *scope) pastUnsafeStage() bool {
	return s.op.Completed() || s.forced() || (s.op.Status.Stage != "" && !s.insideWindow())
}

// insideWindow says whether the operation is in a stage that nobody may leave half-way, and has begun with a unit of it or of the like
// before it. Until then nothing has happened that others would have to be kept from.
func (s *scope) insideWindow() bool {
	return s.inUnsafeStage() && slices.ContainsFunc(s.all(), func(unit v1alpha1.UnitStatus) bool {
		return slices.ContainsFunc(unit.Steps, func(step v1alpha1.StepRecord) bool { return s.stage(step.Stage).Unsafe })
	})
}

// stage is a stage of the plan; the zero value is none.
func (s *scope) stage(name string) plan.Stage {
	for _, stage := range s.stages {
		if stage.Name == name {
			return stage
		}
	}
	return plan.Stage{}
}

// moves says whether "clusterctl move" deletes the operation here because it goes on elsewhere. The value of the annotation is empty.
func (s *scope) moves() bool {
	_, moves := s.op.Annotations[v1alpha1.DeleteForMoveAnnotation]
	return moves
}

// forced says whether somebody asked for the operation to go whatever its machines are in.
func (s *scope) forced() bool {
	return !s.op.DeletionTimestamp.IsZero() && s.op.Annotations[v1alpha1.ForceDeleteAnnotation] == v1alpha1.ForceDeleteRequested
}

// annotateCluster changes annotations of the TalosCluster as it is now, if there is one and anything changes. Somebody else may write the same
// annotation at the same moment, and keeps what is theirs.
func (r *Reconciler) annotateCluster(ctx context.Context, s *scope, change func(map[string]string)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return r.annotateClusterOnce(ctx, s.clusterKey(), change) })
}

func (r *Reconciler) annotateClusterOnce(ctx context.Context, key client.ObjectKey, change func(map[string]string)) error {
	cluster := &v1alpha1.TalosCluster{}
	if err := r.APIReader.Get(ctx, key, cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := cluster.DeepCopy()
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	change(cluster.Annotations)
	if maps.Equal(cluster.Annotations, before.Annotations) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, cluster, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("annotating TalosCluster %s: %w", key, err))
	}
	return nil
}
