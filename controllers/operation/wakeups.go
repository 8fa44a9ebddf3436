// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// ahead finds the operation that the lock of the cluster is for, if that is another one: of those that could go on, the oldest, and one
// that has machines half-way before one that has none.
func (r *Reconciler) ahead(ctx context.Context, s *scope) (*v1alpha1.TalosOperation, error) {
	list, err := r.ofCluster(ctx, s.clusterKey())
	if err != nil {
		return nil, err
	}
	var first *v1alpha1.TalosOperation
	for i := range list {
		other := &list[i]
		if other.Name != s.op.Name && r.wantsLock(other) && before(other, s.op) && (first == nil || before(other, first)) {
			first = other
		}
	}
	return first, nil
}

// startable says whether nothing but the lock keeps an operation from starting.
func (r *Reconciler) startable(op *v1alpha1.TalosOperation) bool {
	return !op.Completed() && op.DeletionTimestamp.IsZero() && !op.Paused() && op.Status.FailureReason == "" &&
		!statusLost(op) && !wasTransitioning(op) && r.Executors[op.Spec.Kind] != nil
}

// wantsLock says whether an operation could make use of the lock: to go on, or to settle before it is deleted.
func (r *Reconciler) wantsLock(op *v1alpha1.TalosOperation) bool {
	settles := !op.DeletionTimestamp.IsZero() && halfWay(op) && !statusLost(op) && r.unsafeFailure(op) == "" && r.Executors[op.Spec.Kind] != nil
	return settles || r.startable(op)
}

// halfWay says whether an operation has begun with machines and not ended with them.
func halfWay(op *v1alpha1.TalosOperation) bool { return slices.ContainsFunc(units(op), inHand) }

func before(a, b *v1alpha1.TalosOperation) bool {
	if halfWay(a) != halfWay(b) {
		return halfWay(a)
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

func (r *Reconciler) ofCluster(ctx context.Context, cluster client.ObjectKey) ([]v1alpha1.TalosOperation, error) {
	list := &v1alpha1.TalosOperationList{}
	err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingFields{clusterNameField: cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("listing TalosOperations of cluster %s: %w", cluster, err)
	}
	return list.Items, nil
}

// unfinished are requests for the operations of a cluster that are not over, but for one.
func (r *Reconciler) unfinished(ctx context.Context, cluster client.ObjectKey, but string) []reconcile.Request {
	list, err := r.ofCluster(ctx, cluster)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Operations that wait are not woken")
		return nil
	}
	var requests []reconcile.Request
	for i := range list {
		if !list[i].Completed() && list[i].Name != but {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: list[i].Namespace, Name: list[i].Name}})
		}
	}
	return requests
}

// operationsOfLease wakes those that wait for a lock.
func (r *Reconciler) operationsOfLease(ctx context.Context, lease client.Object) []reconcile.Request {
	return r.unfinished(ctx, client.ObjectKey{Namespace: lease.GetNamespace(), Name: lease.GetLabels()[clusterv1.ClusterNameLabel]}, "")
}

// operationsOfCluster wakes those that wait for their target, or for its pause to end.
func (r *Reconciler) operationsOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.unfinished(ctx, client.ObjectKeyFromObject(cluster), "")
}

// operationsOfMachine wakes those that a machine's hold, label or approval may concern.
func (r *Reconciler) operationsOfMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	return r.unfinished(ctx, client.ObjectKey{Namespace: machine.GetNamespace(), Name: machine.GetLabels()[clusterv1.ClusterNameLabel]}, "")
}

// operationsOfHub wakes those that upgrade the hub.
func (r *Reconciler) operationsOfHub(ctx context.Context, installation client.Object) []reconcile.Request {
	if client.ObjectKeyFromObject(installation) != r.Installation {
		return nil
	}
	list := &v1alpha1.TalosOperationList{}
	if err := r.Client.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Operations that wait for the hub are not woken")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if op := &list.Items[i]; op.Spec.Kind == v1alpha1.IchorKind && !op.Completed() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(op)})
		}
	}
	return requests
}

// siblings wakes those that stand in the queue behind an operation.
func (r *Reconciler) siblings(ctx context.Context, object client.Object) []reconcile.Request {
	op, ok := object.(*v1alpha1.TalosOperation)
	if !ok {
		return nil
	}
	return r.unfinished(ctx, client.ObjectKey{Namespace: op.Namespace, Name: op.Spec.ClusterName}, op.Name)
}
