// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ichor.maesh.dev/hub/controllers/targets"
)

// belong makes a TalosCluster that Git or kubectl brought belong to its Cluster, so that it is found, moved and collected with it.
// Cluster API does the same for what a Cluster names as its infrastructure; the reference is the same, so that nobody undoes it.
func (r *Reconciler) belong(ctx context.Context, facts *targets.Facts) error {
	cluster := facts.CAPICluster
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	owned, err := controllerutil.HasOwnerReference(facts.Cluster.OwnerReferences, cluster, r.Client.Scheme())
	if err != nil {
		return fmt.Errorf("reading the owners of TalosCluster %s: %w", client.ObjectKeyFromObject(facts.Cluster), err)
	}
	if owned && facts.Cluster.Labels[clusterv1.ClusterNameLabel] == cluster.Name {
		return nil
	}
	patched := facts.Cluster.DeepCopy()
	metav1.SetMetaDataLabel(&patched.ObjectMeta, clusterv1.ClusterNameLabel, cluster.Name)
	if err := controllerutil.SetOwnerReference(cluster, patched, r.Client.Scheme()); err != nil {
		return fmt.Errorf("naming the owner of TalosCluster %s: %w", client.ObjectKeyFromObject(patched), err)
	}
	if err := r.Client.Patch(ctx, patched, client.MergeFrom(facts.Cluster)); err != nil {
		return fmt.Errorf("naming the owner of TalosCluster %s: %w", client.ObjectKeyFromObject(patched), err)
	}
	facts.Cluster = patched
	return nil
}
