// SPDX-License-Identifier: Apache-2.0

// Package installation writes down what the hub itself is, in its IchorInstallation: which version leads, and whether an operation can upgrade it.
package installation

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/installation"
)

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=ichorinstallations,verbs=get;list;watch;create;record
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=ichorinstallations/status,verbs=get;update;patch

// lookAgain is when the Deployment is looked at again. It is not watched: a hub that may not read it, or has none, does its work all the same.
const lookAgain = time.Minute

// Reconciler keeps the status of the hub's IchorInstallation, and makes one where there is none.
type Reconciler struct {
	Client client.Client

	// Live reads the Deployment past every cache.
	Live client.Reader

	// Key is the IchorInstallation of this hub.
	Key client.ObjectKey

	// Version is the version of this hub.
	Version string

	// Standalone says that the hub brings its own management API.
	Standalone bool
}

// SetupWithManager registers the reconciler. It begins without being woken, since there may be nothing yet to wake it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	begin := make(chan event.GenericEvent, 1)
	begin <- event.GenericEvent{Object: &v1alpha1.IchorInstallation{ObjectMeta: metav1.ObjectMeta{Namespace: r.Key.Namespace, Name: r.Key.Name}}}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.IchorInstallation{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
			return client.ObjectKeyFromObject(object) == r.Key
		}))).
		WatchesRawSource(source.Channel(begin, &handler.EnqueueRequestForObject{})).
		WithOptions(options).
		Complete(r)
}

// Reconcile writes down what the hub is.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	object := &v1alpha1.IchorInstallation{}
	switch err := r.Client.Get(ctx, r.Key, object); {
	case apierrors.IsNotFound(err):
		object.Namespace, object.Name = r.Key.Namespace, r.Key.Name
		if err := r.Client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, fmt.Errorf("creating IchorInstallation %s: %w", r.Key, err)
		}
		return ctrl.Result{}, nil // It wakes the next look.
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading IchorInstallation %s: %w", r.Key, err)
	}
	before := object.Status.DeepCopy()
	r.observe(ctx, object)
	if !apiequality.Semantic.DeepEqual(*before, object.Status) {
		if err := r.Client.Status().Update(ctx, object); err != nil {
			if apierrors.IsConflict(err) {
				return ctrl.Result{RequeueAfter: time.Second}, nil // Somebody else has written, which the cache does not know yet.
			}
			return ctrl.Result{}, fmt.Errorf("writing the status of IchorInstallation %s: %w", r.Key, err)
		}
	}
	if r.Standalone {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: lookAgain}, nil
}

// observe fills in the status.
func (r *Reconciler) observe(ctx context.Context, object *v1alpha1.IchorInstallation) {
	status := &object.Status
	status.Version, status.Mode, status.Image = r.Version, v1alpha1.KubernetesInstallation, ""
	if r.Standalone {
		status.Mode = v1alpha1.StandaloneInstallation
	}
	obstacle := r.inTheWay(ctx, status)
	if obstacle == nil {
		set(object, v1alpha1.UpgradableCondition, metav1.ConditionTrue, v1alpha1.UpgradableReason, "")
	} else {
		set(object, v1alpha1.UpgradableCondition, metav1.ConditionFalse, obstacle.Reason, obstacle.Message)
	}
	switch desired := object.Spec.Version; desired {
	case "":
		set(object, v1alpha1.UpToDateCondition, metav1.ConditionTrue, v1alpha1.NoVersionDesiredReason, "")
	case r.Version:
		set(object, v1alpha1.UpToDateCondition, metav1.ConditionTrue, v1alpha1.UpToDateReason, "")
	default:
		set(object, v1alpha1.UpToDateCondition, metav1.ConditionFalse, v1alpha1.VersionDiffersReason,
			fmt.Sprintf("the hub runs %s, and %s is desired: ichor upgrade ichor %[2]s", r.Version, desired))
	}
	status.ObservedGeneration = object.Generation
}

// inTheWay says why an operation cannot upgrade the hub.
func (r *Reconciler) inTheWay(ctx context.Context, status *v1alpha1.IchorInstallationStatus) *installation.Obstacle {
	if r.Standalone {
		return &installation.Obstacle{
			Reason:  v1alpha1.HubStandaloneReason,
			Message: "the hub runs standalone: stop it, replace the binary by that of the new version, and start it again with the same --data-dir",
		}
	}
	deployment := &appsv1.Deployment{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Key.Namespace, Name: installation.DeploymentName}, deployment)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return installation.InTheWay(nil, r.Key.Namespace)
	case err != nil:
		return &installation.Obstacle{Reason: v1alpha1.HubDeploymentMissingReason, Message: fmt.Sprintf(
			"Deployment %s in namespace %s cannot be read: upgrade the hub in the way in which it was installed", installation.DeploymentName, r.Key.Namespace)}
	}
	if described := installation.Described(deployment); described != nil {
		status.Image = described.Image
	}
	return installation.InTheWay(deployment, r.Key.Namespace)
}

func set(object *v1alpha1.IchorInstallation, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: object.Generation,
	})
}
