// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation"
	"ichor.maesh.dev/hub/providers/capi"
)

// holdDeletions makes the deletion of every control plane wait for the hub, before anybody asks for one.
func (r *Reconciler) holdDeletions(ctx context.Context, s *scope) error {
	for i := range s.members {
		machine := &s.members[i]
		if !capi.ControlPlane(machine) || !machine.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.machines().HoldDeletion(ctx, machine); err != nil {
			return err
		}
	}
	return nil
}

// deletions lets Cluster API delete the control planes that it is asked to delete: one at a time, each under the lock of the cluster, which
// is held in the machine's name until the machine is gone.
func (r *Reconciler) deletions(ctx context.Context, s *scope) error {
	deleted := capi.DeletedControlPlanes(s.members)
	holder, err := r.machineThatHolds(ctx, s)
	if err != nil {
		return err
	}
	if len(deleted) == 0 {
		return r.releaseGone(ctx, s, holder)
	}
	next, want := deleted[0], lock.Holder{}
	for _, machine := range deleted { // Who has the lock already goes on.
		name, err := r.nameOf(ctx, machine)
		if err != nil {
			return err
		}
		if own := lock.Machine(name); want == (lock.Holder{}) || own == holder {
			next, want = machine, own
		}
	}
	got, err := r.Locks.Acquire(ctx, s.key, s.facts().Owner(), want, r.MayTakeOver)
	if err != nil {
		return err
	}
	if got != want {
		r.tell(next, got)
		return nil
	}
	r.forget(next)
	return r.machines().ReleaseDeletion(ctx, next)
}

// machineThatHolds is the machine that holds the lock, as far as the cache knows; its identity is empty if none does.
func (r *Reconciler) machineThatHolds(ctx context.Context, s *scope) (lock.Holder, error) {
	cached := lock.Locks{Reader: r.Client}
	holder, err := cached.Holder(ctx, s.key)
	if _, machine := holder.MachineKey(); err != nil || !machine {
		return lock.Holder{}, err
	}
	return holder, nil
}

// releaseGone gives back the lock of a machine that is gone. Whoever waits for it is woken by that.
func (r *Reconciler) releaseGone(ctx context.Context, s *scope, holder lock.Holder) error {
	key, held := holder.MachineKey()
	if !held {
		return nil
	}
	if gone, err := operation.MachineGone(ctx, r.Live, key); err != nil || !gone {
		return err
	}
	return r.Locks.Release(ctx, s.key, holder, 0)
}

// nameOf is by which name a Machine holds the lock: that of the TalosMachine that goes with it, or its own where none does. Whether the lock is
// free again is told by that name alone.
func (r *Reconciler) nameOf(ctx context.Context, machine *clusterv1.Machine) (client.ObjectKey, error) {
	list := &v1alpha1.TalosMachineList{}
	err := r.Client.List(ctx, list, client.InNamespace(machine.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: machine.Spec.ClusterName})
	if err != nil {
		return client.ObjectKey{}, fmt.Errorf("listing TalosMachines of cluster %s: %w", machine.Spec.ClusterName, err)
	}
	for i := range list.Items {
		if slices.ContainsFunc(list.Items[i].OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == machine.UID }) {
			return client.ObjectKeyFromObject(&list.Items[i]), nil
		}
	}
	return client.ObjectKeyFromObject(machine), nil
}

// tell says once for whom the deletion of a Machine waits.
func (r *Reconciler) tell(machine *clusterv1.Machine, holder lock.Holder) {
	key := client.ObjectKeyFromObject(machine)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[key] == holder {
		return
	}
	r.told[key] = holder
	r.Recorder.Eventf(machine, nil, corev1.EventTypeNormal, v1alpha1.DeletionWaitsEvent, "Delete",
		"the deletion waits for %s, which holds the lock of cluster %s", holder, machine.Spec.ClusterName)
}

// forget lets go of what was told of a Machine.
func (r *Reconciler) forget(machine *clusterv1.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, client.ObjectKeyFromObject(machine))
}
