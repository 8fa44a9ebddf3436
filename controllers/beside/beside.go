// SPDX-License-Identifier: Apache-2.0

// Package beside keeps what the hub has on the objects of Cluster API.
//
// On each Cluster that the hub manages there is one condition of its own. On each control plane of an adopted Cluster there is a hook that
// makes the deletion of its Machine wait for the lock of the cluster, which this package takes in the name of the machine: then nothing else
// works on the cluster, and one control plane goes at a time. What a hub left behind that was killed, or that lets a cluster go, is taken
// back. All that is decided by is in the objects, so a restart loses nothing.
package beside

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch

// Options are what a Reconciler needs.
type Options struct {
	Client client.Client

	// Live reads uncached.
	Live client.Reader

	// Locks are the locks of targets.
	Locks *lock.Locks

	// Operations is who drives operations.
	Operations Operations

	Recorder events.EventRecorder

	// Watched says which clusters are this hub's; nil means all.
	Watched *capi.Filter
}

// Operations is what is asked of who drives operations.
type Operations interface {
	// MayTakeOverToDelete says whether a holder does not need its lock any more, or not as much as the deletion of a machine does.
	MayTakeOverToDelete(machine client.ObjectKey) lock.TakeOver

	// Settles says whether a holder is an operation that may still be at work.
	Settles(ctx context.Context, holder lock.Holder) (bool, error)
}

// Reconciler keeps what the hub has on the objects of Cluster API.
type Reconciler struct {
	Options

	begin func() error // Begins to watch Machines, once.

	mu sync.Mutex
	// told is what the deletion of a Machine waits for, as far as an event has said so.
	told map[types.NamespacedName]string
}

// New returns a Reconciler that watches no Machines until it is set up.
func New(options Options) *Reconciler {
	return &Reconciler{Options: options, begin: func() error { return nil }, told: map[types.NamespacedName]string{}}
}

// SetupWithManager registers the reconciler and what wakes it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	labelled := handler.EnqueueRequestsFromMapFunc(clusterOfLabel)
	built, err := ctrl.NewControllerManagedBy(mgr).Named("beside").
		For(&clusterv1.Cluster{}).
		Watches(&v1alpha1.TalosCluster{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.TalosMachine{}, labelled).
		Watches(&coordinationv1.Lease{}, labelled).
		Watches(&v1alpha1.TalosOperation{}, handler.EnqueueRequestsFromMapFunc(clusterOfOperation)).
		WithOptions(options).
		Build(r)
	if err != nil {
		return err
	}
	r.begin = capi.NewWatch(built, mgr.GetCache()).Begin
	return nil
}

func clusterOfLabel(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// clusterOfOperation wakes for an operation that may hold the lock and need it no more.
func clusterOfOperation(_ context.Context, object client.Object) []reconcile.Request {
	op, ok := object.(*v1alpha1.TalosOperation)
	if !ok || op.Status.FailureReason == "" && !op.Completed() && op.DeletionTimestamp.IsZero() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: op.Namespace, Name: op.Spec.ClusterName}}}
}

// scope carries what one reconcile learns.
type scope struct {
	key     client.ObjectKey
	cluster *clusterv1.Cluster
	talos   *v1alpha1.TalosCluster // Nil means that the hub does not manage the cluster.
	members []clusterv1.Machine    // Set where providers of Cluster API manage the machines.
	again   time.Duration          // Set by deletions that wait for what no event tells of.
}

// Reconcile brings what the hub has on the objects of one Cluster to what it should have.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if clears, err := r.Watched.Clears(ctx, r.Live, req.NamespacedName); err != nil || !clears {
		return ctrl.Result{}, err
	}
	s, err := r.load(ctx, req.NamespacedName)
	if err != nil || s.cluster == nil {
		return ctrl.Result{}, err
	}
	err = r.keep(ctx, s)
	return ctrl.Result{RequeueAfter: s.again}, err
}

// keep does what there is to do, the deletions that somebody waits for first. None of it waits for the rest: what cannot be written on one
// object is no reason to hold up another.
func (r *Reconciler) keep(ctx context.Context, s *scope) error {
	leftovers := r.dropLeftovers(ctx, s)
	switch {
	case !s.cluster.DeletionTimestamp.IsZero():
		return all(leftovers)
	case capi.Paused(s.cluster): // It may be on the move: Cluster API stands still, too.
		return all(leftovers, r.reportPaused(ctx, s))
	}
	if err := r.loadMembers(ctx, s); err != nil {
		return all(leftovers, err)
	}
	if s.talos == nil || capi.OptedOut(s.cluster) {
		return all(leftovers, r.letGo(ctx, s))
	}
	return all(leftovers, r.deletions(ctx, s), r.holdDeletions(ctx, s), r.clusters().Report(ctx, s.cluster, available(s.talos)))
}

// all are several errors, but for those that are races.
func all(errs ...error) error {
	for i := range errs {
		errs[i] = ignoreRaces(errs[i])
	}
	return errors.Join(errs...)
}

// ignoreRaces drops what an event on its way here settles: the cache was behind, or the object is gone.
func ignoreRaces(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (r *Reconciler) load(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{key: key, cluster: &clusterv1.Cluster{}, talos: &v1alpha1.TalosCluster{}}
	switch err := r.Client.Get(ctx, key, s.cluster); {
	case apierrors.IsNotFound(err):
		s.cluster = nil
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	switch err := r.Client.Get(ctx, key, s.talos); {
	case apierrors.IsNotFound(err):
		s.talos = nil
	case err != nil:
		return nil, fmt.Errorf("reading TalosCluster %s: %w", key, err)
	case !s.talos.DeletionTimestamp.IsZero():
		s.talos = nil
	}
	return s, nil
}

// loadMembers reads the Machines, and sees to it that changes of them are noticed.
func (r *Reconciler) loadMembers(ctx context.Context, s *scope) (err error) {
	if !capi.Adopted(s.cluster) {
		return nil
	}
	if err := r.begin(); err != nil {
		return err
	}
	s.members, err = r.machines().Of(ctx, s.key)
	return err
}

func (r *Reconciler) clusters() capi.Clusters { return capi.Clusters{Client: r.Client, Live: r.Live} }

func (r *Reconciler) machines() capi.Machines { return capi.Machines{Client: r.Client, Live: r.Live} }

// facts are what is known of the target.
func (s *scope) facts() targets.Facts { return targets.Facts{Cluster: s.talos, CAPICluster: s.cluster} }
