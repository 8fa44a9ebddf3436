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

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=etcdsnapshots,verbs=get;list;watch;create;update;patch;delete;record
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=etcdsnapshots/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosclusters;talosmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters/finalizers,verbs=update
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
	facts, err := targets.Load(ctx, r.Client, client.ObjectKey{Namespace: snapshot.Namespace, Name: snapshot.Spec.ClusterName})
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
	before := snapshot.DeepCopy()
	result, err := r.goOn(ctx, snapshot, facts)
	if err != nil {
		return ctrl.Result{}, ignoreRaces(err)
	}
	return result, r.writeStatus(ctx, before, snapshot)
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
func (r *Reconciler) goOn(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, facts targets.Facts) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(snapshot)
	if snapshot.Spec.Contents != nil {
		r.forget(key)
		set(snapshot, metav1.ConditionTrue, v1alpha1.SnapshotReadyReason, "")
		return ctrl.Result{}, nil
	}
	if ended := r.work.collect(key); ended != nil {
		return r.record(ctx, snapshot, *ended)
	}
	if wait := r.retryAt.until(key, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
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
	return ctrl.Result{}, nil
}

// record writes down how an attempt ended.
func (r *Reconciler) record(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, ended done) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(snapshot)
	if ended.err != nil {
		return r.fail(ctx, snapshot, ended.err), nil
	}
	patched := snapshot.DeepCopy()
	patched.Spec.Contents = ended.contents
	if err := r.Client.Patch(ctx, patched, client.MergeFromWithOptions(snapshot, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // Somebody else has taken it, or changed it: what was stored now goes with the next attempt.
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		return ctrl.Result{}, fmt.Errorf("writing the facts of EtcdSnapshot %s: %w", key, err)
	}
	taken.WithLabelValues(string(snapshot.Spec.Reason), "succeeded").Inc()
	log.FromContext(ctx).Info("etcd snapshot is stored", "cluster", snapshot.Spec.ClusterName, "bytes", ended.contents.SizeBytes, "revision", ended.contents.Revision)
	status := snapshot.Status
	*snapshot = *patched
	snapshot.Status = status
	r.forget(key)
	set(snapshot, metav1.ConditionTrue, v1alpha1.SnapshotReadyReason, "")
	return ctrl.Result{}, nil
}

// fail says why an attempt failed, and when the next one begins.
func (r *Reconciler) fail(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot, err error) ctrl.Result {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return ctrl.Result{}
	}
	reason := v1alpha1.InternalErrorReason
	var known *Trouble
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
	if err := r.Client.Status().Patch(ctx, snapshot, client.MergeFrom(base)); err != nil {
		return ignoreRaces(fmt.Errorf("writing status of EtcdSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err))
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
