// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/providers/kube"
)

// Rest is a cluster on which nothing goes on any more.
type Rest struct {
	// Management reads the management API.
	Management client.Reader

	// Target is the cluster's own Kubernetes API.
	Target kubernetes.Interface

	// Cluster is the TalosCluster.
	Cluster client.ObjectKey
}

// Leftovers says what the hub has left behind: a lock, an annotation that blocks moves, a cordon, or a record on the target that does not
// fit what the operations know.
func (r Rest) Leftovers(ctx context.Context) ([]string, error) {
	var found []string
	for _, check := range []func(context.Context) ([]string, error){r.locks, r.annotations, r.cordons, r.record} {
		some, err := check(ctx)
		if err != nil {
			return found, fmt.Errorf("looking for what is left on cluster %s: %w", r.Cluster.Name, err)
		}
		found = append(found, some...)
	}
	return found, nil
}

func (r Rest) locks(ctx context.Context) ([]string, error) {
	lease := &coordinationv1.Lease{}
	err := r.Management.Get(ctx, client.ObjectKey{Namespace: r.Cluster.Namespace, Name: lock.LeaseName(r.Cluster.Name)}, lease)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if holder := lock.HolderOf(lease); holder.Identity != "" {
		return []string{fmt.Sprintf("%s: the lock is held by %s", r.Cluster.Name, holder)}, nil
	}
	return nil, nil
}

func (r Rest) annotations(ctx context.Context) ([]string, error) {
	cluster := &v1alpha1.TalosCluster{}
	if err := r.Management.Get(ctx, r.Cluster, cluster); err != nil {
		return nil, err
	}
	var found []string
	for _, name := range []string{v1alpha1.BlockMoveAnnotation, v1alpha1.UnsafeAnnotation} {
		if value, ok := cluster.Annotations[name]; ok {
			found = append(found, fmt.Sprintf("%s: annotation %s=%s is left on the TalosCluster", r.Cluster.Name, name, value))
		}
	}
	return found, nil
}

func (r Rest) cordons(ctx context.Context) ([]string, error) {
	nodes, err := r.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, node := range nodes.Items {
		if owner, ok := node.Annotations[v1alpha1.CordonedByAnnotation]; ok {
			found = append(found, fmt.Sprintf("%s: Node %s keeps the cordon of operation %s", r.Cluster.Name, node.Name, owner))
		}
	}
	return found, nil
}

// record compares the record on the target with what the operations know. It is written before what it announces, and status before it.
func (r Rest) record(ctx context.Context) ([]string, error) {
	cluster, operations := &v1alpha1.TalosCluster{}, &v1alpha1.TalosOperationList{}
	object, err := r.Target.CoreV1().ConfigMaps(kube.RecordNamespace).Get(ctx, kube.RecordName, metav1.GetOptions{})
	err = errors.Join(err, r.Management.Get(ctx, r.Cluster, cluster), r.Management.List(ctx, operations, client.InNamespace(r.Cluster.Namespace)))
	if err != nil {
		return nil, err
	}
	var found []string
	if have, want := object.Data["ownerID"], cluster.Annotations[v1alpha1.OwnerIDAnnotation]; have == "" || have != want {
		found = append(found, fmt.Sprintf("%s: the record names owner %q, and the TalosCluster %q", r.Cluster.Name, have, want))
	}
	operations.Items = slices.DeleteFunc(operations.Items, func(op v1alpha1.TalosOperation) bool { return op.Spec.ClusterName != r.Cluster.Name })
	return append(found, r.sequence(object, operations.Items)...), nil
}

func (r Rest) sequence(object *corev1.ConfigMap, operations []v1alpha1.TalosOperation) []string {
	var found []string
	recorded, err := strconv.ParseInt(object.Data["sequence"], 10, 64)
	if err != nil {
		return []string{fmt.Sprintf("%s: the record has sequence %q", r.Cluster.Name, object.Data["sequence"])}
	}
	for i := range operations {
		op := &operations[i]
		switch named := lock.OperationID(op) == object.Data["operationID"]; {
		case named && op.Status.Sequence < recorded:
			found = append(found, fmt.Sprintf("%s: the record has sequence %d, and operation %s only %d", r.Cluster.Name, recorded, op.Name, op.Status.Sequence))
		case op.Completed() && op.Spec.Kind == v1alpha1.TalosKind && op.Status.Sequence > recorded:
			found = append(found, fmt.Sprintf("%s: operation %s is over and has sequence %d, and the record %d", r.Cluster.Name, op.Name, op.Status.Sequence, recorded))
		}
	}
	return found
}
