// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// steady keeps operations from control planes while one seems to be under replacement. Whoever replaces it needs the lock more.
func (r *Reconciler) steady(ctx context.Context, s *scope) (stop bool, err error) {
	if s.why, err = r.transitioning(ctx, s); s.why == nil || err != nil {
		return err != nil, err
	}
	return true, r.stand(ctx, s)
}

// transitioning says what speaks for a replacement. A control plane that this operation has taken away proves nothing: its own etcd
// member may be missing, or a learner, until it is back.
func (r *Reconciler) transitioning(ctx context.Context, s *scope) (*pause, error) {
	if r.controlPlaneAway(s) {
		return nil, nil
	}
	if why, err := r.halfDeleted(ctx, s); why != nil || err != nil {
		return why, err
	}
	if !s.disturbsControlPlanes() {
		return nil, nil
	}
	machines, err := r.countable(ctx, s)
	if err != nil {
		return nil, err
	}
	if message := gate.EvenControlPlanes(machines); message != "" && !s.plan.KeepsEtcd() && !r.acceptsEven(s, machines) {
		return s.transition(message), nil
	}
	if !holdsLock(s.op) && !wasTransitioning(s.op) {
		return nil, nil // It looks once it has the lock.
	}
	view, fresh := r.view(s)
	if !fresh && wasTransitioning(s.op) {
		return &pause{reason: v1alpha1.ControlPlaneTransitioningReason, releases: true, message: pausedCondition(s.op)}, nil
	}
	if message := gate.MembersInTransition(machines, view.Etcd); fresh && message != "" {
		return s.transition(message), nil
	}
	return nil, nil
}

func (s *scope) transition(message string) *pause {
	return &pause{reason: v1alpha1.ControlPlaneTransitioningReason, releases: true, message: explain(
		message, "the operation goes on when that is over; see: ichor machine list --cluster "+s.op.Spec.ClusterName)}
}

// acceptsEven says whether an override lets an even number of control planes pass. Two can never lose one.
func (r *Reconciler) acceptsEven(s *scope, machines []*v1alpha1.TalosMachine) bool {
	return plan.ControlPlanes(machines) > 2 && s.planFacts(r.Clock.Now()).Overridden(v1alpha1.ControlPlaneTransitioningReason)
}

// countable are the machines as they are now, where it matters: a cache may not have heard of the one that was just approved.
func (r *Reconciler) countable(ctx context.Context, s *scope) ([]*v1alpha1.TalosMachine, error) {
	if !holdsLock(s.op) {
		return s.Approved(), nil
	}
	list := &v1alpha1.TalosMachineList{}
	err := r.APIReader.List(ctx, list, client.InNamespace(s.op.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.op.Spec.ClusterName})
	if err != nil {
		return nil, fmt.Errorf("listing TalosMachines of cluster %s: %w", s.op.Spec.ClusterName, err)
	}
	return v1alpha1.ApprovedMachines(list.Items), nil
}

// disturbsControlPlanes says whether the operation is going to take a control plane away. Work on workers alone concerns nobody who
// counts control planes.
func (s *scope) disturbsControlPlanes() bool {
	return slices.ContainsFunc(s.plan.DisruptedControlPlanes(s.Approved()), func(name string) bool {
		return s.unit(name).Phase != v1alpha1.UnitCompleted
	})
}

// controlPlaneAway says whether the operation has a control plane in hand that it cannot take back any more.
func (r *Reconciler) controlPlaneAway(s *scope) bool {
	return slices.ContainsFunc(s.all(), func(u v1alpha1.UnitStatus) bool {
		machine := s.Machine(u.Name)
		return machine != nil && machine.Spec.Role == v1alpha1.ControlPlaneRole && u.Phase != v1alpha1.UnitCompleted &&
			(u.PreRebootBootID != "" || s.executor.Unsafe(kind.Unit{Status: u, Machine: machine}) != "")
	})
}

func wasTransitioning(op *v1alpha1.TalosOperation) bool {
	paused := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition)
	return paused != nil && paused.Reason == v1alpha1.ControlPlaneTransitioningReason
}

func pausedCondition(op *v1alpha1.TalosOperation) string {
	return meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition).Message
}
