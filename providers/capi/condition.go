// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conditionOwner owns the hub's condition on Clusters, and no other field of them.
const conditionOwner client.FieldOwner = "ichor-hub-condition"

// Report writes the hub's condition on a Cluster, where it says something else by now. All other conditions are left to whose they are: the
// hub applies its own alone.
func (c Clusters) Report(ctx context.Context, cluster *clusterv1.Cluster, condition metav1.Condition) error {
	condition.ObservedGeneration = cluster.Generation
	conditions := []metav1.Condition{}
	if found := meta.FindStatusCondition(cluster.Status.Conditions, condition.Type); found != nil {
		conditions = append(conditions, *found)
	}
	if !meta.SetStatusCondition(&conditions, condition) {
		return nil
	}
	return c.applyConditions(ctx, cluster, conditions)
}

// Withdraw takes the hub's condition off a Cluster.
func (c Clusters) Withdraw(ctx context.Context, cluster *clusterv1.Cluster, kind string) error {
	if meta.FindStatusCondition(cluster.Status.Conditions, kind) == nil {
		return nil
	}
	return c.applyConditions(ctx, cluster, nil) // What an owner does not apply any more goes.
}

// applyConditions makes conditions all that the hub has in the status of a Cluster.
func (c Clusters) applyConditions(ctx context.Context, cluster *clusterv1.Cluster, conditions []metav1.Condition) error {
	wanted := &unstructured.Unstructured{}
	wanted.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(clusterv1.ClusterKind))
	wanted.SetNamespace(cluster.Namespace)
	wanted.SetName(cluster.Name)
	wanted.SetUID(cluster.UID) // Another one of that name is not meant.
	list := make([]any, 0, len(conditions))
	for i := range conditions {
		condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i])
		if err != nil {
			return fmt.Errorf("encoding condition %s: %w", conditions[i].Type, err)
		}
		list = append(list, condition)
	}
	if len(list) > 0 {
		wanted.Object["status"] = map[string]any{"conditions": list}
	}
	err := c.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), conditionOwner, client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the hub's condition on Cluster %s: %w", client.ObjectKeyFromObject(cluster), err)
	}
	return nil
}
