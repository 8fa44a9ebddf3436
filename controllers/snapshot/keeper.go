// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/snapshot/schedule"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
)

// lookAgain is how long a cluster is left alone at most: the clock of the machine may be set.
const lookAgain = time.Hour

// Keeper keeps the schedules of clusters: it asks for snapshots that are due, and deletes those that are too many.
type Keeper struct {
	Client client.Client
	Clock  clock.PassiveClock

	// Watched says which clusters are this hub's; nil means all.
	Watched *capi.Filter
}

// SetupWithManager registers the keeper and what wakes it.
func (k *Keeper) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("etcd-backup").
		For(&v1alpha1.TalosCluster{}).
		Watches(&v1alpha1.EtcdSnapshot{}, handler.EnqueueRequestsFromMapFunc(ClusterOf)).
		WithOptions(options).
		Complete(k)
}

// ClusterOf is the cluster of a snapshot.
func ClusterOf(_ context.Context, object client.Object) []reconcile.Request {
	snapshot, ok := object.(*v1alpha1.EtcdSnapshot)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: snapshot.Namespace, Name: snapshot.Spec.ClusterName}}}
}

// clusterField indexes snapshots by their clusters.
const clusterField = "spec.clusterName"

// Index makes the index that Of needs.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.EtcdSnapshot{}, clusterField, ClusterName)
	if err != nil {
		return fmt.Errorf("indexing snapshots by cluster: %w", err)
	}
	return nil
}

// ClusterName is what snapshots are indexed by.
func ClusterName(object client.Object) []string {
	if snapshot, ok := object.(*v1alpha1.EtcdSnapshot); ok {
		return []string{snapshot.Spec.ClusterName}
	}
	return nil
}

// Of lists the snapshots of a cluster, from a cache that has the index.
func Of(ctx context.Context, reader client.Reader, cluster client.ObjectKey) ([]v1alpha1.EtcdSnapshot, error) {
	list := &v1alpha1.EtcdSnapshotList{}
	if err := reader.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingFields{clusterField: cluster.Name}); err != nil {
		return nil, fmt.Errorf("listing snapshots of cluster %s: %w", cluster, err)
	}
	return list.Items, nil
}

// Reconcile asks for the snapshot of a cluster that is due, and deletes what is too much.
func (k *Keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if watched, err := k.Watched.Watches(ctx, req.NamespacedName); err != nil || !watched {
		return ctrl.Result{}, err
	}
	facts, err := targets.Load(ctx, k.Client, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if facts.Cluster == nil || !facts.Cluster.DeletionTimestamp.IsZero() || facts.Cluster.Spec.EtcdBackup == nil {
		unmeasure(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	snapshots, err := Of(ctx, k.Client, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	measure(facts.Cluster, snapshots)
	if standsStill(facts) {
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	next, err := k.keep(ctx, facts, snapshots)
	return ctrl.Result{RequeueAfter: next}, err
}

// standsStill says whether there is nobody to ask for snapshots: the cluster is paused, perhaps for a move, another hub's, or stopped on purpose.
func standsStill(facts targets.Facts) bool {
	return facts.Cluster.StoppedBy() != "" || capi.Paused(facts.CAPICluster) || facts.CAPICluster != nil && !facts.CAPICluster.DeletionTimestamp.IsZero() ||
		meta.IsStatusConditionFalse(facts.Cluster.Status.Conditions, v1alpha1.OwnedCondition)
}

func (k *Keeper) keep(ctx context.Context, facts targets.Facts, snapshots []v1alpha1.EtcdSnapshot) (time.Duration, error) {
	now, backup := k.Clock.Now(), facts.Cluster.Spec.EtcdBackup
	var errs []error
	for _, excess := range schedule.Excess(now, backup.Keep, snapshots) {
		uid := client.Preconditions{UID: &excess.UID}
		if err := client.IgnoreNotFound(k.Client.Delete(ctx, excess, uid)); err != nil {
			errs = append(errs, fmt.Errorf("deleting EtcdSnapshot %s: %w", client.ObjectKeyFromObject(excess), err))
		}
	}
	s, err := schedule.Of(client.ObjectKeyFromObject(facts.Cluster), backup)
	if err != nil || s == nil {
		return 0, errors.Join(errs...) // Condition EtcdBackedUp says what is wrong with it.
	}
	run := s.At(now, snapshots)
	if !run.Due.IsZero() {
		errs = append(errs, k.ask(ctx, facts, run.Due))
	}
	return min(run.Next.Sub(now), lookAgain), errors.Join(errs...)
}

// ask asks for the snapshot of a run. Its name is that of the run, so whoever asks twice asks for one.
func (k *Keeper) ask(ctx context.Context, facts targets.Facts, due time.Time) error {
	snapshot := request(client.ObjectKeyFromObject(facts.Cluster), schedule.Name(facts.Cluster.Name, due), v1alpha1.SnapshotScheduled)
	snapshot.Spec.ScheduledTime = metav1.NewTime(due)
	if err := k.Client.Create(ctx, snapshot); err != nil {
		return ignoreRaces(fmt.Errorf("asking for EtcdSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err))
	}
	return nil
}

// request is an object that asks for a snapshot.
func request(cluster client.ObjectKey, name string, reason v1alpha1.SnapshotReason) *v1alpha1.EtcdSnapshot {
	return &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
		},
		Spec: v1alpha1.EtcdSnapshotSpec{ClusterName: cluster.Name, Reason: reason},
	}
}
