// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/talos"
)

// doomed is the control plane whose deletion Cluster API was asked for first; nil if there is none.
func (r *Reconciler) doomed(ctx context.Context, s *scope) (*clusterv1.Machine, error) {
	if !s.Adopted() {
		return nil, nil
	}
	members, err := capi.Machines{Client: r.Client, Live: r.APIReader}.Of(ctx, s.clusterKey())
	if err != nil {
		return nil, err
	}
	if deleted := capi.DeletedControlPlanes(members); len(deleted) > 0 {
		return deleted[0], nil
	}
	return nil, nil
}

// deletionUnderWay waits for the deletion of a control plane by Cluster API, which goes before every operation that has not begun: it may
// wait for the lock itself. One that holds the lock already, and died before it could say so, is what the deletion waits for.
func (r *Reconciler) deletionUnderWay(ctx context.Context, s *scope) (*pause, error) {
	machine, err := r.doomed(ctx, s)
	if err != nil || machine == nil {
		return nil, err
	}
	holder, err := r.Locks.Holder(ctx, s.clusterKey())
	if err != nil || holder == lock.Operation(s.op) {
		return nil, err
	}
	s.comeBack(quietWait) // One that never had the lock is gone without a word.
	return controlPlaneDeleted(machine), nil
}

// standAside gives the lock to the deletion of a control plane where a gate has kept the operation waiting for a while: what it waits for
// may be that very deletion. One that is about to go on keeps its turn.
func (r *Reconciler) standAside(ctx context.Context, s *scope) (gives bool, err error) {
	standing := reasonToStand(s.op)
	if standing.Type != v1alpha1.ProgressingCondition || !s.Adopted() {
		return false, nil
	}
	if early := quietWait - r.Clock.Now().Sub(standing.LastTransitionTime.Time); early > 0 {
		s.comeBack(early)
		return false, nil
	}
	return r.giveWay(ctx, s)
}

// giveWay gives the lock to the deletion of a control plane, if there is one, and the operation has nothing in hand and is in no window that
// nobody may enter. Nothing tells it that somebody asks for a deletion, so it comes back to see.
func (r *Reconciler) giveWay(ctx context.Context, s *scope) (gives bool, err error) {
	if !s.Adopted() || s.unfinished() || s.insideWindow() {
		return false, nil
	}
	s.comeBack(quietWait)
	machine, err := r.doomed(ctx, s)
	if err != nil || machine == nil {
		return false, err
	}
	s.why = controlPlaneDeleted(machine)
	return true, r.release(ctx, s)
}

// halfDeleted says that a control plane is being deleted whose etcd member is gone already: its provider takes it out before it asks for
// the deletion. It is half done, and whatever the operation disturbs, the rest is not kept waiting.
func (r *Reconciler) halfDeleted(ctx context.Context, s *scope) (*pause, error) {
	if !holdsLock(s.op) || s.insideWindow() {
		return nil, nil
	}
	machine, err := r.doomed(ctx, s)
	if err != nil || machine == nil {
		return nil, err
	}
	owned := slices.IndexFunc(s.Machines, func(m v1alpha1.TalosMachine) bool {
		return slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == machine.UID })
	})
	view, fresh := r.view(s)
	if owned < 0 || s.Machines[owned].Status.EtcdMemberID == "" || !fresh || !leftEtcd(s.Machines[owned].Status.EtcdMemberID, view) {
		return nil, nil
	}
	return s.transition(fmt.Sprintf("Machine %q, a control plane, is being deleted, and its etcd member is gone already", machine.Name)), nil
}

// leftEtcd says whether all members of etcd that answer agree that one is none of theirs, and any answers.
func leftEtcd(id string, view gate.View) bool {
	answered := false
	for _, member := range view.Etcd {
		if member.Trouble != "" || len(member.Members) == 0 {
			continue
		}
		answered = true
		if slices.ContainsFunc(member.Members, func(m talos.EtcdMember) bool { return fmt.Sprintf("%x", m.ID) == id }) {
			return false
		}
	}
	return answered
}

// bury puts the units that have failed back to the beginning of their stage whose machines Cluster API has deleted meanwhile: nothing of them
// is left that could be in the middle of anything, so nobody has to be kept from the cluster for them. They stay failed.
func (r *Reconciler) bury(ctx context.Context, s *scope) error {
	if s.Cluster == nil || s.executor == nil || !s.Adopted() {
		return nil
	}
	for _, unit := range s.all() {
		if !inHand(unit) || !isFailed(unit) || unit.Step == "" || unit.NodeName == "" || s.Machine(unit.Name) != nil {
			continue
		}
		gone, err := r.certainlyGone(ctx, s, unit)
		if err != nil {
			return err
		}
		if !gone {
			s.comeBack(quietWait) // Its Machine goes without a word.
			continue
		}
		enter(&unit, "", r.Clock.Now())
		unit.PreRebootBootID, unit.UnknownSince = "", metav1.Time{}
		unit.Message = shorten(fmt.Sprintf("TalosMachine %q and its Machine are gone", unit.Name))
		s.put(unit)
		s.event(v1alpha1.FoundEvent, "Run", "%s: %s", unit.Name, unit.Message)
	}
	return nil
}

// certainlyGone says whether nothing is left of a machine in an adopted cluster: no TalosMachine, no Machine that has its Node, and no Node.
// Whoever deletes a TalosMachine alone, or whose machine another one follows by the same name, is in doubt.
func (r *Reconciler) certainlyGone(ctx context.Context, s *scope, unit v1alpha1.UnitStatus) (bool, error) {
	key := client.ObjectKey{Namespace: s.op.Namespace, Name: unit.Name}
	if err := r.APIReader.Get(ctx, key, &v1alpha1.TalosMachine{}); !apierrors.IsNotFound(err) {
		return false, err
	}
	members, err := capi.Machines{Client: r.Client, Live: r.APIReader}.Now(ctx, s.clusterKey())
	if err != nil || slices.ContainsFunc(members, func(m clusterv1.Machine) bool { return m.Status.NodeRef.Name == unit.NodeName }) {
		return false, err
	}
	view, fresh := r.view(s)
	_, left := view.Nodes[unit.NodeName]
	return fresh && view.NodesTrouble == "" && !left, nil
}
