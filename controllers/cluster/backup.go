// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/snapshot"
	"ichor.maesh.dev/hub/controllers/snapshot/schedule"
	"ichor.maesh.dev/hub/controllers/targets"
)

// snapshotsOf are the snapshots of a cluster that has a storage for them.
func (r *Reconciler) snapshotsOf(ctx context.Context, facts targets.Facts) ([]v1alpha1.EtcdSnapshot, error) {
	if facts.Cluster.Spec.EtcdBackup == nil {
		return nil, nil
	}
	return snapshot.Of(ctx, r.Client, client.ObjectKeyFromObject(facts.Cluster))
}

// setEtcdBackedUp says whether etcd is backed up, and after how long that may change by itself; 0 if it does not.
func setEtcdBackedUp(cluster *v1alpha1.TalosCluster, snapshots []v1alpha1.EtcdSnapshot, now time.Time) time.Duration {
	condition, changes := schedule.Health(cluster, snapshots, now)
	condition.Message, condition.ObservedGeneration = shorten(condition.Message), cluster.Generation
	meta.SetStatusCondition(&cluster.Status.Conditions, condition)
	if changes.IsZero() {
		return 0
	}
	return changes.Sub(now)
}
