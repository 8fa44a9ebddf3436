// SPDX-License-Identifier: Apache-2.0

// Package snapshot takes snapshots of the etcd of targets, on request and by their schedules, and deletes those that are too many.
//
// An EtcdSnapshot without contents asks for a snapshot. The hub streams it from a member to the storage, reads it back, and writes its
// facts into the spec; that write is what makes it a snapshot. Whatever a crash left in the storage before goes with the next attempt.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/talos"
)

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=etcdsnapshots,verbs=get;list;watch;create;patch;delete;record
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=etcdsnapshots/status,verbs=patch
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosclusters;talosmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets;namespaces,verbs=get

const (
	// retryFirst and retryMost bound the pause after an attempt that failed.
	retryFirst = 10 * time.Second
	retryMost  = 10 * time.Minute
)

// Options are what the controllers of snapshots need.
type Options struct {
	Client client.Client
	// APIReader reads uncached.
	APIReader client.Reader
	Talos     talos.Provider
	Storage   Storage
	Clock     clock.WithDelayedExecution

	// StallTimeout is how long a stream may bring nothing; zero takes a minute.
	StallTimeout time.Duration

	// Watched says of which clusters snapshots are this hub's; nil means all.
	Watched *capi.Filter
}

// Reconciler takes snapshots.
type Reconciler struct {
	Options

	work  *work
	wakes chan event.GenericEvent
	// retryAt is when the next attempt may begin. Losing it lets one begin earlier.
	retryAt times
}

// New returns a Reconciler whose work ends with ctx.
func New(ctx context.Context, options Options) *Reconciler {
	if options.StallTimeout == 0 {
		options.StallTimeout = stallTimeout
	}
	r := &Reconciler{Options: options, wakes: make(chan event.GenericEvent, 1024)}
	r.work = newWork(ctx, atOnce, func(key types.NamespacedName) {
		snapshot := &v1alpha1.EtcdSnapshot{}
		snapshot.Namespace, snapshot.Name = key.Namespace, key.Name
		select {
		case r.wakes <- event.GenericEvent{Object: snapshot}:
		case <-ctx.Done():
		}
	})
	return r
}

// SetupWithManager registers the reconciler and what wakes it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EtcdSnapshot{}).
		WatchesRawSource(source.Channel(r.wakes, &handler.EnqueueRequestForObject{})).
		WithOptions(options).
		Complete(r)
}

func (r *Reconciler) camera() camera {
	return camera{secrets: r.APIReader, talos: r.Talos, storage: r.Storage, clock: r.Clock, stall: r.StallTimeout}
}

// Reconcile brings one snapshot further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	snapshot := &v1alpha1.EtcdSnapshot{}
	if err := r.Client.Get(ctx, req.NamespacedName, snapshot); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster := client.ObjectKey{Namespace: snapshot.Namespace, Name: snapshot.Spec.ClusterName}
	if watched, err := r.Watched.Watches(ctx, cluster); err != nil || !watched {
		return ctrl.Result{}, err
	}
	facts, err := targets.Load(ctx, r.Client, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if capi.Paused(facts.CAPICluster) {
		return ctrl.Result{RequeueAfter: retryMost}, nil // It may be on the move.
	}
	if !snapshot.DeletionTimestamp.IsZero() {
		return r.delete(ctx, snapshot, facts)
	}
	if changed, err := r.belong(ctx, snapshot, facts); changed || err != nil {
		return ctrl.Result{}, ignoreRaces(err)
	}
	if ended := r.work.collect(req.NamespacedName); ended != nil && !ended.tidied {
		return r.record(ctx, req.NamespacedName, *ended)
	}
	before := snapshot.DeepCopy()
	result := r.goOn(snapshot, facts)
	return result, ignoreRaces(r.writeStatus(ctx, before, snapshot))
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.work.stop(key)
	r.retryAt.forget(key)
}

// belong makes a snapshot be found, moved and collected with its Cluster, and keeps it until what is stored of it is deleted.
func (r *Reconciler) belong(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, facts targets.Facts) (changed bool, err error) {
	patched := snapshot.DeepCopy()
	controllerutil.AddFinalizer(patched, v1alpha1.EtcdSnapshotFinalizer)
	metav1.SetMetaDataLabel(&patched.ObjectMeta, clusterv1.ClusterNameLabel, snapshot.Spec.ClusterName)
	if cluster := facts.CAPICluster; cluster != nil && cluster.DeletionTimestamp.IsZero() {
		if err := controllerutil.SetOwnerReference(cluster, patched, r.Client.Scheme()); err != nil {
			return false, fmt.Errorf("naming the owner of EtcdSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err)
		}
	}
	if apiequality.Semantic.DeepEqual(snapshot.ObjectMeta, patched.ObjectMeta) {
		return false, nil
	}
	if err := r.Client.Patch(ctx, patched, client.MergeFromWithOptions(snapshot, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("naming the owner of EtcdSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err)
	}
	return true, nil
}

// goOn takes the snapshot, or goes on with that.
func (r *Reconciler) goOn(snapshot *v1alpha1.EtcdSnapshot, facts targets.Facts) ctrl.Result {
	key := client.ObjectKeyFromObject(snapshot)
	if snapshot.Spec.Contents != nil {
		r.retryAt.forget(key)
		set(snapshot, metav1.ConditionTrue, v1alpha1.SnapshotReadyReason, "")
		return ctrl.Result{}
	}
	if wait := r.retryAt.until(key, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}
	}
	asked := snapshot.DeepCopy()
	waits := r.work.start(key, func(ctx context.Context) done {
		contents, err := r.camera().take(ctx, facts, asked)
		return done{contents: contents, err: err}
	})
	switch {
	case snapshot.Status.Attempts > 0: // It says what the last attempt failed of.
	case waits:
		set(snapshot, metav1.ConditionUnknown, v1alpha1.SnapshotWaitingReason, "other snapshots are taken first")
	default:
		set(snapshot, metav1.ConditionUnknown, v1alpha1.SnapshotTakingReason, "it is being taken")
	}
	return ctrl.Result{}
}

// record writes down how an attempt ended, on what is there now: the cache may be behind our own last write, and another hub may have been
// faster. What could not be written is written once more.
func (r *Reconciler) record(ctx context.Context, key client.ObjectKey, ended done) (ctrl.Result, error) {
	snapshot := &v1alpha1.EtcdSnapshot{}
	err := r.APIReader.Get(ctx, key, snapshot)
	switch {
	case apierrors.IsNotFound(err), err == nil && !snapshot.DeletionTimestamp.IsZero():
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil // What was stored goes with it.
	case err != nil:
		r.work.restore(key, ended)
		return ctrl.Result{}, fmt.Errorf("reading EtcdSnapshot %s: %w", key, err)
	}
	before := snapshot.DeepCopy()
	result := ctrl.Result{}
	switch {
	case snapshot.Spec.Contents != nil: // Another hub's attempt came first.
	case ended.err != nil:
		result = r.fail(ctx, snapshot, ended.err)
	default:
		err = r.commit(ctx, snapshot, ended.contents)
	}
	if err == nil && snapshot.Spec.Contents != nil {
		r.forget(key)
		r.tidy(snapshot)
		set(snapshot, metav1.ConditionTrue, v1alpha1.SnapshotReadyReason, "")
	}
	if err == nil {
		err = r.writeStatus(ctx, before, snapshot)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		r.work.restore(key, ended)
		return ctrl.Result{}, err
	}
	return result, nil
}

// tidy deletes what attempts have left in the storage beside the snapshot. Where that fails, it goes with the snapshot.
func (r *Reconciler) tidy(snapshot *v1alpha1.EtcdSnapshot) {
	committed := snapshot.DeepCopy()
	r.work.start(client.ObjectKeyFromObject(snapshot), func(ctx context.Context) done {
		at := placeOf(committed, targets.Facts{})
		return done{tidied: true, err: r.camera().clean(ctx, committed, at, committed.Spec.Contents.Location.Key)}
	})
}

// commit writes the facts into the spec. That is what makes it a snapshot.
func (r *Reconciler) commit(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, contents *v1alpha1.SnapshotContents) error {
	base := snapshot.DeepCopy()
	snapshot.Spec.Contents = contents
	if err := r.Client.Patch(ctx, snapshot, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the facts of EtcdSnapshot %s: %w", client.ObjectKeyFromObject(base), err)
	}
	taken.WithLabelValues(string(snapshot.Spec.Reason), "succeeded").Inc()
	log.FromContext(ctx).Info("etcd snapshot is stored", "cluster", snapshot.Spec.ClusterName, "bytes", contents.SizeBytes, "revision", contents.Revision)
	return nil
}

// fail says why an attempt failed, and when the next one begins.
func (r *Reconciler) fail(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, err error) ctrl.Result {
	reason := v1alpha1.InternalErrorReason
	var known *AttemptError
	if errors.As(err, &known) {
		reason = known.Reason
	}
	taken.WithLabelValues(string(snapshot.Spec.Reason), "failed").Inc()
	log.FromContext(ctx).Info("etcd snapshot is not stored", "cluster", snapshot.Spec.ClusterName, "reason", reason, "trouble", shorten(err.Error()))
	snapshot.Status.Attempts++
	set(snapshot, metav1.ConditionFalse, reason, err.Error())
	return r.later(snapshot)
}

// later waits longer after every attempt.
func (r *Reconciler) later(snapshot *v1alpha1.EtcdSnapshot) ctrl.Result {
	wait := min(retryFirst<<min(snapshot.Status.Attempts-1, 10), retryMost)
	r.retryAt.set(client.ObjectKeyFromObject(snapshot), r.Clock.Now().Add(wait))
	return ctrl.Result{RequeueAfter: wait}
}

func (r *Reconciler) writeStatus(ctx context.Context, before, snapshot *v1alpha1.EtcdSnapshot) error {
	snapshot.Status.ObservedGeneration = snapshot.Generation
	if apiequality.Semantic.DeepEqual(before.Status, snapshot.Status) {
		return nil
	}
	base := snapshot.DeepCopy()
	base.Status = before.Status
	// Of two hubs for a moment, the one that knows less must not have the last word.
	if err := r.Client.Status().Patch(ctx, snapshot, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing status of EtcdSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err)
	}
	return nil
}

// set sets the one condition of a snapshot.
func set(snapshot *v1alpha1.EtcdSnapshot, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&snapshot.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SnapshotReadyCondition, Status: status, Reason: reason, Message: shorten(message), ObservedGeneration: snapshot.Generation,
	})
}

// ignoreRaces drops what the next event settles.
func ignoreRaces(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
