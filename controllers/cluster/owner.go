// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/target"
)

// ownership is what a probe found in the hub's record on a target.
type ownership struct {
	record  kube.Record
	trouble string
}

// askOwner reads the record on the target. A target that has none is this hub's from now on, and so is one that a person asked it to
// take over from exactly the hub that the record names. Nothing else is ever written over.
func (p prober) askOwner(ctx context.Context, t target.Target, cluster *v1alpha1.TalosCluster) ownership {
	mine, takeOver := cluster.Annotations[v1alpha1.OwnerIDAnnotation], cluster.Annotations[v1alpha1.TakeOverAnnotation]
	// A probe ends with the leadership of its process; the write is conditional, whoever else makes it.
	writer, err := p.kube.Writer(ctx, t, func(ctx context.Context) error { return ctx.Err() })
	if err != nil {
		return ownership{trouble: kube.Trouble(err)}
	}
	record, err := writer.Record(ctx)
	if err != nil {
		return ownership{trouble: kube.Trouble(err)}
	}
	free := record.OwnerID == "" || record.OwnerID == takeOver
	if mine == "" || record.OwnerID == mine || !free {
		return ownership{record: record}
	}
	record.OwnerID = mine
	if err := writer.WriteRecord(ctx, record); err != nil {
		return ownership{trouble: kube.Trouble(err)}
	}
	return ownership{record: record}
}

// identify makes an owner ID for a target that was declared without one, and takes note of a take-over that is done.
func (r *Reconciler) identify(ctx context.Context, facts *targets.Facts, seen probe) error {
	annotations := facts.Cluster.Annotations
	mine := annotations[v1alpha1.OwnerIDAnnotation]
	tookOver := annotations[v1alpha1.TakeOverAnnotation] != "" && mine != "" && seen.owner.record.OwnerID == mine
	if mine != "" && !tookOver {
		return nil
	}
	patched := facts.Cluster.DeepCopy()
	if mine == "" {
		metav1.SetMetaDataAnnotation(&patched.ObjectMeta, v1alpha1.OwnerIDAnnotation, uuid.NewString())
	}
	if tookOver {
		delete(patched.Annotations, v1alpha1.TakeOverAnnotation)
	}
	patch := client.MergeFromWithOptions(facts.Cluster, client.MergeFromWithOptimisticLock{}) // Two IDs would make two hubs of one.
	if err := r.Client.Patch(ctx, patched, patch); err != nil {
		return fmt.Errorf("recording who manages TalosCluster %s: %w", client.ObjectKeyFromObject(patched), err)
	}
	facts.Cluster.ObjectMeta = patched.ObjectMeta
	r.observer.Invalidate(client.ObjectKeyFromObject(patched))
	return nil
}

// setOwned leaves the condition as it is while the record cannot be read: who manages a target does not change with an outage.
func setOwned(cluster *v1alpha1.TalosCluster, seen probe) {
	mine, other := cluster.Annotations[v1alpha1.OwnerIDAnnotation], seen.owner.record.OwnerID
	switch {
	case other == "" && meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.OwnedCondition) != nil:
	case other == "":
		set(cluster, v1alpha1.OwnedCondition, metav1.ConditionUnknown, v1alpha1.NotYetObservedReason, "the hub's record on the cluster has not been read yet")
	case other == mine:
		set(cluster, v1alpha1.OwnedCondition, metav1.ConditionTrue, v1alpha1.OwnedReason, "")
	default:
		set(cluster, v1alpha1.OwnedCondition, metav1.ConditionFalse, v1alpha1.OwnedByAnotherHubReason, fmt.Sprintf(
			"another hub manages the cluster, under owner ID %s; forget it there, then take it over with: kubectl annotate taloscluster %s %s=%[1]s",
			other, cluster.Name, v1alpha1.TakeOverAnnotation))
	}
}
