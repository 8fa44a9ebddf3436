// SPDX-License-Identifier: Apache-2.0

// Package remediation gives machines back to Cluster API's health checks.
//
// An operation asks them to leave a Machine alone before it takes it in hand, by the annotation cluster.x-k8s.io/skip-remediation with
// the operation as its value. This package removes what operations put there, and nothing else, once the operation is through with the
// machine: however it ended, and whoever ended with it. What it decides by is in the objects, so a restart loses nothing.
package remediation

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/providers/capi"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch

// patience is how long a Machine that an operation is through with waits for Cluster API to see its Node Ready. Cluster API drops a
// connection that went dead after 75 seconds at most, and connects again within 30.
const patience = 2 * time.Minute

// Reconciler gives the Machines of clusters back.
type Reconciler struct {
	// Client reads, and writes the annotations.
	Client client.Client

	// Machines are the Machines of Cluster API.
	Machines capi.Machines

	// Clock tells the time.
	Clock clock.PassiveClock

	// Watched says which clusters are this hub's; nil means all.
	Watched *capi.Filter

	begin func() error // Begins to watch Machines, once.

	mu sync.Mutex
	// idle is since when Machines wait to be given back. Losing it lets them wait a little longer.
	idle map[types.NamespacedName]time.Time
}

// SetupWithManager registers the reconciler and what wakes it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	built, err := ctrl.NewControllerManagedBy(mgr).Named("remediation").
		For(&clusterv1.Cluster{}).
		Watches(&v1alpha1.TalosOperation{}, handler.EnqueueRequestsFromMapFunc(clusterOf)).
		WithOptions(options).
		Build(r)
	if err != nil {
		return err
	}
	r.begin = capi.NewWatch(built, mgr.GetCache()).Begin
	return nil
}

func clusterOf(_ context.Context, object client.Object) []reconcile.Request {
	op, ok := object.(*v1alpha1.TalosOperation)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: op.Namespace, Name: op.Spec.ClusterName}}}
}

// Reconcile gives back the Machines of one cluster that no operation works on any more.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if clears, err := r.Watched.Clears(ctx, r.Machines.Live, req.NamespacedName); err != nil || !clears {
		return ctrl.Result{}, err
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !capi.Adopted(cluster) {
		return ctrl.Result{}, nil
	}
	if err := r.begin(); err != nil {
		return ctrl.Result{}, err
	}
	if capi.Paused(cluster) {
		return ctrl.Result{}, nil // Health checks stand still, and the Machines may be on the move.
	}
	machines, err := r.Machines.Of(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.giveBack(ctx, req.NamespacedName, machines)
}

func (r *Reconciler) giveBack(ctx context.Context, cluster client.ObjectKey, machines []clusterv1.Machine) (ctrl.Result, error) {
	var result ctrl.Result
	for i := range machines {
		machine := &machines[i]
		owner, _ := capi.SkippedFor(machine)
		key, ours := lock.Holder{Identity: owner}.OperationKey()
		if !ours {
			continue
		}
		use, err := r.useOf(ctx, r.Client, key, cluster, machine)
		if err != nil {
			return ctrl.Result{}, err
		}
		switch wait := r.wait(machine, use); {
		case wait == 0:
			if err := r.allow(ctx, machine, key, cluster); err != nil {
				return ctrl.Result{}, err
			}
		case wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter):
			result.RequeueAfter = wait
		}
	}
	return result, nil
}

// allow gives a Machine back, unless it was taken in hand again. The cache may be behind what the operation wrote before it asked.
func (r *Reconciler) allow(ctx context.Context, machine *clusterv1.Machine, operation, cluster client.ObjectKey) error {
	use, err := r.useOf(ctx, r.Machines.Live, operation, cluster, machine)
	if err != nil || use == inWork {
		return err
	}
	if err := r.Machines.AllowRemediation(ctx, machine); err != nil && !apierrors.IsConflict(err) { // The newer one comes by itself.
		return err
	}
	return nil
}

// forever is a wait that an event ends.
const forever time.Duration = -1

// wait is how long a Machine has to wait before it is given back.
func (r *Reconciler) wait(machine *clusterv1.Machine, use use) time.Duration {
	key := client.ObjectKeyFromObject(machine)
	r.mu.Lock()
	defer r.mu.Unlock()
	if use == inWork {
		delete(r.idle, key)
		return forever
	}
	_, ready := capi.NodeReady(machine)
	left := forever
	switch {
	case use == failed, use == done && ready: // A failed machine is for the health checks to judge.
		left = 0
	case use == done:
		since, waits := r.idle[key]
		if !waits {
			since = r.Clock.Now()
			if r.idle == nil {
				r.idle = map[types.NamespacedName]time.Time{}
			}
			r.idle[key] = since
		}
		left = max(since.Add(patience).Sub(r.Clock.Now()), 0)
	}
	if left == 0 {
		delete(r.idle, key)
	}
	return left
}

// useOf says what the operation that asked for a Machine to be left alone does with it.
func (r *Reconciler) useOf(ctx context.Context, reader client.Reader, operation, cluster client.ObjectKey, machine *clusterv1.Machine) (use, error) {
	op := &v1alpha1.TalosOperation{}
	switch err := reader.Get(ctx, operation, op); {
	case apierrors.IsNotFound(err):
		return done, nil
	case err != nil:
		return "", fmt.Errorf("reading TalosOperation %s: %w", operation, err)
	}
	list := &v1alpha1.TalosMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return "", fmt.Errorf("listing TalosMachines of cluster %s: %w", cluster, err)
	}
	name := ""
	for i := range list.Items {
		if list.Items[i].Status.MachineName == machine.Name {
			name = list.Items[i].Name
		}
	}
	return useBy(op, name, machine), nil
}
