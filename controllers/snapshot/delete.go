// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
)

// delete deletes what is stored of a snapshot that somebody deletes, and lets it go. Where the snapshot goes because something else does,
// the cluster, the namespace, the whole for a move, what is stored stays: nobody has asked for that.
func (r *Reconciler) delete(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, facts targets.Facts) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(snapshot)
	if !controllerutil.ContainsFinalizer(snapshot, v1alpha1.EtcdSnapshotFinalizer) {
		r.forget(key)
		return ctrl.Result{}, nil
	}
	gone, err := r.goneWith(ctx, snapshot, facts)
	if err != nil {
		return ctrl.Result{}, err
	}
	if gone {
		return ctrl.Result{}, r.release(ctx, snapshot)
	}
	// A restore reads the object as well as what is stored: it is in use even where what is stored stays.
	switch user, err := r.restoredBy(ctx, snapshot); {
	case err != nil:
		return ctrl.Result{}, err
	case user != "":
		return r.keepFor(ctx, snapshot, user)
	case snapshot.Retained():
		return ctrl.Result{}, r.release(ctx, snapshot)
	}
	if !r.deleting(snapshot) {
		return ctrl.Result{}, ignoreRaces(r.beginDelete(ctx, snapshot))
	}
	if ended := r.work.collect(key); ended != nil && ended.cleaned {
		if ended.err == nil {
			return ctrl.Result{}, r.release(ctx, snapshot)
		}
		return r.failDelete(ctx, snapshot, ended.err)
	}
	if wait := r.retryAt.until(key, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	asked, at := snapshot.DeepCopy(), placeOf(snapshot, facts)
	r.work.start(key, func(ctx context.Context) done { return done{err: r.camera().clean(ctx, asked, at, ""), cleaned: true} })
	return ctrl.Result{}, nil
}

// restoredBy names an operation that restores the snapshot and is not over; nothing if there is none. Once it has wiped an etcd there is nothing
// else to go on with.
func (r *Reconciler) restoredBy(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) (string, error) {
	list := &v1alpha1.TalosOperationList{}
	if err := r.APIReader.List(ctx, list, client.InNamespace(snapshot.Namespace)); err != nil {
		return "", fmt.Errorf("listing operations that restore EtcdSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err)
	}
	for i := range list.Items {
		op := &list.Items[i]
		if restore := op.Spec.EtcdRestore; restore != nil && restore.SnapshotName == snapshot.Name && !op.Completed() {
			return op.Name, nil
		}
	}
	return "", nil
}

// keepFor keeps a snapshot until an operation is over.
func (r *Reconciler) keepFor(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, operation string) (ctrl.Result, error) {
	before, then := snapshot.DeepCopy(), "what is stored is deleted when that is over"
	if snapshot.Retained() {
		then = "it goes when that is over, and what is stored stays"
	}
	set(snapshot, metav1.ConditionFalse, v1alpha1.SnapshotDeletingReason, "TalosOperation "+operation+" restores it: "+then)
	return ctrl.Result{RequeueAfter: keepPause}, ignoreRaces(r.writeStatus(ctx, before, snapshot))
}

// keepPause is the pause between two looks at an operation that a snapshot is kept for.
const keepPause = 10 * time.Second

// failDelete says why what is stored is still there, and what to do about it.
func (r *Reconciler) failDelete(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, err error) (ctrl.Result, error) {
	before := snapshot.DeepCopy()
	snapshot.Status.Attempts++
	help := "; to leave it there: ichor snapshot delete " + snapshot.Name + " --retain"
	set(snapshot, metav1.ConditionFalse, v1alpha1.SnapshotDeletingReason, clip("what is stored cannot be deleted: "+err.Error(), messageLimit-len(help))+help)
	result := r.later(snapshot)
	return result, ignoreRaces(r.writeStatus(ctx, before, snapshot))
}

// deleting says whether it is known already that a snapshot is being deleted.
func (r *Reconciler) deleting(snapshot *v1alpha1.EtcdSnapshot) bool {
	for _, c := range snapshot.Status.Conditions {
		if c.Type == v1alpha1.SnapshotReadyCondition {
			return c.Reason == v1alpha1.SnapshotDeletingReason
		}
	}
	return false
}

// beginDelete ends an attempt to take the snapshot, and says that it is not one to restore from any more. What the attempt stores meanwhile
// is deleted when it has ended.
func (r *Reconciler) beginDelete(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	r.work.cancel(client.ObjectKeyFromObject(snapshot))
	r.retryAt.forget(client.ObjectKeyFromObject(snapshot))
	before := snapshot.DeepCopy()
	snapshot.Status.Attempts = 0
	set(snapshot, metav1.ConditionFalse, v1alpha1.SnapshotDeletingReason, "what is stored is being deleted")
	return r.writeStatus(ctx, before, snapshot)
}

// goneWith says whether a snapshot goes because something else does: its cluster, its namespace, or the whole for a move.
func (r *Reconciler) goneWith(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, facts targets.Facts) (bool, error) {
	_, moved := snapshot.Annotations[v1alpha1.DeleteForMoveAnnotation]
	gone := facts.Cluster == nil || !facts.Cluster.DeletionTimestamp.IsZero() || facts.CAPICluster != nil && !facts.CAPICluster.DeletionTimestamp.IsZero() ||
		orphaned(snapshot, facts)
	if moved || gone {
		return true, nil
	}
	namespace := &corev1.Namespace{}
	switch err := r.APIReader.Get(ctx, client.ObjectKey{Name: snapshot.Namespace}, namespace); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading namespace %s: %w", snapshot.Namespace, err)
	}
	return !namespace.DeletionTimestamp.IsZero(), nil
}

// orphaned says whether the Cluster that a snapshot belongs to is gone, or is another one of the same name.
func orphaned(snapshot *v1alpha1.EtcdSnapshot, facts targets.Facts) bool {
	for _, owner := range snapshot.OwnerReferences {
		if owner.Kind == clusterKind {
			return facts.CAPICluster == nil || facts.CAPICluster.UID != owner.UID
		}
	}
	return false
}

const clusterKind = "Cluster"

func (r *Reconciler) release(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) error {
	r.forget(client.ObjectKeyFromObject(snapshot))
	patched := snapshot.DeepCopy()
	controllerutil.RemoveFinalizer(patched, v1alpha1.EtcdSnapshotFinalizer)
	if err := r.Client.Patch(ctx, patched, client.MergeFromWithOptions(snapshot, client.MergeFromWithOptimisticLock{})); err != nil {
		return ignoreRaces(fmt.Errorf("letting EtcdSnapshot %s go: %w", client.ObjectKeyFromObject(snapshot), err))
	}
	return nil
}

// place is where something is stored.
type place struct{ bucketURL, credentials, directory string }

// placeOf is where a snapshot is stored, or would have been; nothing if nothing ever was.
func placeOf(snapshot *v1alpha1.EtcdSnapshot, facts targets.Facts) place {
	if contents := snapshot.Spec.Contents; contents != nil {
		return place{contents.Location.BucketURL, contents.Location.CredentialsSecretName, path.Dir(contents.Location.Key) + "/"}
	}
	if backup := facts.Cluster.Spec.EtcdBackup; backup != nil {
		return place{backup.BucketURL, backup.CredentialsSecretName, directory(snapshot)}
	}
	return place{}
}

// clean deletes all that is stored of a snapshot but one object, which may be none.
func (c camera) clean(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, at place, but string) error {
	if at == (place{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	bucket, err := c.open(ctx, snapshot.Namespace, at.bucketURL, at.credentials)
	if err != nil {
		return err
	}
	defer bucket.Close() //nolint:errcheck // Nothing was written.
	return bucket.Delete(ctx, at.directory, but)
}
