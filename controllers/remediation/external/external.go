// SPDX-License-Identifier: Apache-2.0

// Package external helps machines that health checks of Cluster API have found to be unhealthy: it reboots them before their owner replaces
// them.
//
// A TalosRemediation becomes one TalosOperation, whose name follows from an identity that is written down first: who is killed, or moved, makes
// no second one. To make it takes rights that the hub does not have by itself (ClusterRole ichor-hub-remediation). What does not help in time is
// left to the owner of the Machine, in the way in which a health check without a template leaves it, and its operation goes: it must not keep
// the lock from the deletion that it has asked for.
package external

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
)

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosremediations,verbs=list;watch;patch
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosremediations/status,verbs=patch
// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=talosoperations,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

// kept is how long an operation that helped is there to be looked at.
const kept = 7 * 24 * time.Hour

// Reconciler helps machines.
type Reconciler struct {
	// Client reads and writes.
	Client client.Client

	// Live reads uncached.
	Live client.Reader

	// Clock tells the time.
	Clock clock.PassiveClock

	// Watched says which clusters are this hub's; nil means all.
	Watched *capi.Filter
}

// SetupWithManager registers the reconciler and what wakes it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	ofCluster := handler.EnqueueRequestsFromMapFunc(r.ofCluster)
	return ctrl.NewControllerManagedBy(mgr).Named("external-remediation").
		For(&v1alpha1.TalosRemediation{}).
		Watches(&v1alpha1.TalosOperation{}, ofCluster).
		Watches(&clusterv1.Cluster{}, ofCluster).
		Watches(&v1alpha1.TalosCluster{}, ofCluster).
		Watches(&v1alpha1.TalosMachine{}, ofCluster).
		WithOptions(options).
		Complete(r)
}

// ofCluster wakes the remediations of a cluster.
func (r *Reconciler) ofCluster(ctx context.Context, object client.Object) []reconcile.Request {
	name := object.GetName()
	switch of := object.(type) {
	case *v1alpha1.TalosOperation:
		name = of.Spec.ClusterName
	case *v1alpha1.TalosMachine:
		name = of.Spec.ClusterName
	}
	list := &v1alpha1.TalosRemediationList{}
	err := r.Client.List(ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: name})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Remediations that wait are not woken")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// scope carries what one reconcile learns.
type scope struct {
	remediation *v1alpha1.TalosRemediation
	member      *clusterv1.Machine // The Machine to be helped.
	targets.Facts
	machine *v1alpha1.TalosMachine   // Nil if the hub does not know the machine.
	op      *v1alpha1.TalosOperation // Nil if there is none, yet or any more.
}

// verdict is what becomes of a remediation.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string

	// reboot asks for the operation.
	reboot bool

	// again is when to look again without an event.
	again time.Duration
}

// Reconcile brings one remediation as far as it goes.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope{remediation: &v1alpha1.TalosRemediation{}}
	if err := r.Client.Get(ctx, req.NamespacedName, s.remediation); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.remediation.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // The Machine is healthy, or gone. An operation under way ends by itself.
	}
	if known, err := r.load(ctx, s); err != nil || !known {
		return ctrl.Result{}, err
	}
	if s.remediation.Annotations[v1alpha1.OperationIDAnnotation] == "" {
		return ctrl.Result{}, ignoreRaces(r.identify(ctx, s.remediation)) // That wakes us.
	}
	if err := r.loadOperation(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	found := s.judge(r.Clock.Now())
	if found.reboot {
		switch err := r.reboot(ctx, s); {
		case apierrors.IsForbidden(err):
			found = verdict{status: metav1.ConditionFalse, reason: v1alpha1.RemediationForbiddenReason, message: fmt.Sprintf(
				"the hub may not reboot machines in namespace %q: bind ClusterRole ichor-hub-remediation to it there", s.remediation.Namespace)}
		case err != nil:
			return ctrl.Result{}, err
		}
	}
	if found.status == metav1.ConditionFalse {
		if err := r.leaveToOwner(ctx, s, found.message); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: found.again}, r.write(ctx, s, found)
}

// load reads what the remediation is about; known is false if there is nothing to help, or if another hub does.
func (r *Reconciler) load(ctx context.Context, s *scope) (known bool, err error) {
	owner := slices.IndexFunc(s.remediation.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Machine" })
	if owner < 0 {
		return false, nil
	}
	s.member = &clusterv1.Machine{}
	key := client.ObjectKey{Namespace: s.remediation.Namespace, Name: s.remediation.OwnerReferences[owner].Name}
	if err := r.Client.Get(ctx, key, s.member); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	cluster := client.ObjectKey{Namespace: s.member.Namespace, Name: s.member.Spec.ClusterName}
	if watched, err := r.Watched.Watches(ctx, cluster); err != nil || !watched {
		return false, err
	}
	if s.Facts, err = targets.Load(ctx, r.Client, cluster); err != nil {
		return false, err
	}
	if s.Members, err = (capi.Machines{Client: r.Client, Live: r.Live}).Of(ctx, cluster); err != nil {
		return false, err
	}
	s.machine = s.helped()
	return true, nil
}

// helped is the TalosMachine that the Machine is, or nil: the one that belongs to it, or else the one that is found to be it. A move takes the
// owner along, and leaves status behind.
func (s *scope) helped() *v1alpha1.TalosMachine {
	belongs := func(machine *v1alpha1.TalosMachine) bool {
		return slices.ContainsFunc(machine.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.member.UID })
	}
	found := func(machine *v1alpha1.TalosMachine) bool {
		member := s.Member(machine)
		return member != nil && member.Name == s.member.Name
	}
	for _, is := range []func(*v1alpha1.TalosMachine) bool{belongs, found} {
		for i := range s.Machines {
			if is(&s.Machines[i]) {
				return &s.Machines[i]
			}
		}
	}
	return nil
}

// loadOperation reads the operation, uncached: this process may have made it right before.
func (r *Reconciler) loadOperation(ctx context.Context, s *scope) error {
	op := &v1alpha1.TalosOperation{}
	switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.member.Namespace, Name: operationName(s.remediation)}, op); {
	case err == nil:
		s.op = op
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading TalosOperation %s: %w", operationName(s.remediation), err)
	}
	return nil
}

// identify gives a remediation the identity that its operation is named by. UIDs change in moves.
func (r *Reconciler) identify(ctx context.Context, remediation *v1alpha1.TalosRemediation) error {
	patched := remediation.DeepCopy()
	metav1.SetMetaDataAnnotation(&patched.ObjectMeta, v1alpha1.OperationIDAnnotation, uuid.NewString())
	patch := client.MergeFromWithOptions(remediation, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, patched, patch); err != nil {
		return fmt.Errorf("giving TalosRemediation %s its identity: %w", client.ObjectKeyFromObject(remediation), err)
	}
	return nil
}

// ignoreRaces drops what the next event settles: the cache was behind, or the object is gone.
func ignoreRaces(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// operationName follows from the identity of the remediation, so that two for the same machine differ.
func operationName(remediation *v1alpha1.TalosRemediation) string {
	const prefix, characters = "remedy-", 8
	id, name := remediation.Annotations[v1alpha1.OperationIDAnnotation], remediation.Name
	id = id[:min(characters, len(id))]
	return prefix + name[:min(len(name), validation.DNS1123SubdomainMaxLength-len(prefix)-characters-1)] + "-" + id
}

// judge says what becomes of the remediation. It is final when the machine is left to its owner.
func (s *scope) judge(now time.Time) verdict {
	if before := meta.FindStatusCondition(s.remediation.Status.Conditions, v1alpha1.RemediatedCondition); before != nil && before.Status == metav1.ConditionFalse {
		return verdict{status: before.Status, reason: before.Reason, message: before.Message}
	}
	left := s.remediation.CreationTimestamp.Add(s.remediation.Spec.Timeout()).Sub(now)
	switch {
	case capi.Paused(s.CAPICluster):
		return verdict{status: metav1.ConditionUnknown, reason: v1alpha1.RemediationPausedReason, message: "the Cluster is paused"}
	case capi.OptedOut(s.CAPICluster):
		return verdict{status: metav1.ConditionFalse, reason: v1alpha1.RemediationNotManagedReason, message: fmt.Sprintf(
			"the Cluster is kept from the hub (annotation %s)", v1alpha1.OptOutAnnotation)}
	case s.Cluster == nil || s.machine == nil || s.machine.Spec.Approval != v1alpha1.Approved:
		return s.notManaged(left)
	case left <= 0:
		return verdict{status: metav1.ConditionFalse, reason: v1alpha1.RemediationTimedOutReason, message: fmt.Sprintf("the machine was not healthy within %s", s.remediation.Spec.Timeout())}
	case s.op == nil && s.remediation.Status.OperationName == "":
		return verdict{status: metav1.ConditionUnknown, reason: v1alpha1.RemediatingReason, reboot: true, again: left, message: "the machine is to be rebooted"}
	case s.op == nil || !s.op.DeletionTimestamp.IsZero():
		return verdict{status: metav1.ConditionFalse, reason: v1alpha1.RemediationFailedReason, message: "the operation that should have rebooted the machine was deleted"}
	case s.op.Status.FailureReason != "":
		return verdict{status: metav1.ConditionFalse, reason: v1alpha1.RemediationFailedReason, message: s.op.Status.FailureReason}
	case s.op.Completed():
		return verdict{status: metav1.ConditionTrue, reason: v1alpha1.RemediatedReason, again: left, message: "the machine was rebooted"}
	}
	return verdict{
		status: metav1.ConditionUnknown, reason: v1alpha1.RemediatingReason, again: left,
		message: fmt.Sprintf("see: ichor operation get %s -n %s", s.op.Name, s.op.Namespace),
	}
}

// notManaged leaves a machine to its owner that is none of the hub's, once that is certain: while the hub has not found the machines of the
// cluster yet, or its objects are still on their way here, it may be one.
func (s *scope) notManaged(left time.Duration) verdict {
	found := verdict{
		status: metav1.ConditionFalse, reason: v1alpha1.RemediationNotManagedReason, message: fmt.Sprintf("the hub does not manage Machine %q", s.member.Name),
	}
	if known := s.Cluster != nil && s.Cluster.Annotations[v1alpha1.MembersApprovedAtAnnotation] != ""; !known && left > 0 {
		found.status, found.again = metav1.ConditionUnknown, left
		found.message += " yet"
	}
	return found
}

// mode is how the machine is rebooted. One whose Node is not Ready cannot be drained, since nobody there ends its pods; and a member of etcd
// that is not well is not waited for: the others have to be.
func (s *scope) mode() v1alpha1.RebootMode {
	_, ready := capi.NodeReady(s.member)
	sick := s.machine.Spec.Role == v1alpha1.ControlPlaneRole && meta.IsStatusConditionFalse(s.Cluster.Status.Conditions, v1alpha1.EtcdHealthyCondition)
	if !ready || sick {
		return v1alpha1.RebootModeForce
	}
	return ""
}

// reboot makes the operation. It belongs to its cluster, and stays when the remediation goes, which Cluster API deletes as soon as the Node is
// Ready.
func (r *Reconciler) reboot(ctx context.Context, s *scope) error {
	op := &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.remediation.Namespace, Name: operationName(s.remediation),
			Labels:          map[string]string{clusterv1.ClusterNameLabel: s.Cluster.Name},
			Annotations:     map[string]string{v1alpha1.CreatedByAnnotation: "TalosRemediation " + s.remediation.Name},
			OwnerReferences: []metav1.OwnerReference{s.Owner()},
		},
		Spec: v1alpha1.TalosOperationSpec{
			ClusterName: s.Cluster.Name, Kind: v1alpha1.NodeKind, TTLSecondsAfterFinished: ptr.To(int32(kept / time.Second)),
			Node: &v1alpha1.NodeParameters{Machine: s.machine.Name, Action: v1alpha1.RebootAction, RebootMode: s.mode()},
		},
	}
	switch err := r.Client.Create(ctx, op); {
	case apierrors.IsForbidden(err):
		return err
	case err != nil && !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating TalosOperation %s to help Machine %s: %w", op.Name, s.member.Name, err)
	}
	s.op = op
	return nil
}

// leaveToOwner has the owner of a Machine replace it, and takes back an operation that is not over: it settles first, and while it waits for
// a machine that does not answer it would keep the lock from whoever deletes that.
func (r *Reconciler) leaveToOwner(ctx context.Context, s *scope, why string) error {
	if s.op != nil && s.op.DeletionTimestamp.IsZero() && !s.op.Completed() {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, s.op, client.Preconditions{UID: &s.op.UID})); err != nil {
			return fmt.Errorf("deleting TalosOperation %s, which has not helped: %w", s.op.Name, err)
		}
	}
	return capi.Machines{Client: r.Client, Live: r.Live}.LeaveToOwner(ctx, s.member, why)
}

// write writes what became of the remediation.
func (r *Reconciler) write(ctx context.Context, s *scope, found verdict) error {
	before := s.remediation.DeepCopy()
	status := &s.remediation.Status
	status.ObservedGeneration = s.remediation.Generation
	if s.op != nil {
		status.OperationName = s.op.Name
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.RemediatedCondition, Status: found.status, Reason: found.reason, Message: found.message, ObservedGeneration: s.remediation.Generation,
	})
	if apiequality.Semantic.DeepEqual(before.Status, *status) {
		return nil
	}
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, s.remediation, client.MergeFrom(before))); err != nil {
		return fmt.Errorf("writing status of TalosRemediation %s: %w", client.ObjectKeyFromObject(s.remediation), err)
	}
	return nil
}
