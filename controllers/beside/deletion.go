// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation"
	"ichor.maesh.dev/hub/providers/capi"
)

// expiryLook is after how long it is looked again whether a holder that has to renew its lock has stopped to.
const expiryLook = 10 * time.Second

// holdDeletions makes the deletion of every control plane wait for the hub, before anybody asks for one.
func (r *Reconciler) holdDeletions(ctx context.Context, s *scope) error {
	var errs []error
	for i := range s.members {
		machine := &s.members[i]
		if !capi.ControlPlane(machine) || !machine.DeletionTimestamp.IsZero() {
			continue
		}
		errs = append(errs, r.machines().HoldDeletion(ctx, machine))
	}
	return all(errs...)
}

// doomed is a control plane that Cluster API is asked to delete.
type doomed struct {
	machine *clusterv1.Machine

	// name is by which name it holds the lock.
	name client.ObjectKey
}

// deletions lets Cluster API delete the control planes that it is asked to delete: one at a time, each under the lock of the cluster, which
// is held in the machine's name until the machine is gone. They go in the order in which that was asked for, but for one whose own failed
// operation keeps the lock from the others.
func (r *Reconciler) deletions(ctx context.Context, s *scope) error {
	holder, err := r.machineThatHolds(ctx, s)
	if err != nil {
		return err
	}
	queue, err := r.queue(ctx, s, holder)
	if err != nil || len(queue) == 0 {
		return errors.Join(err, r.releaseGone(ctx, s, holder))
	}
	if lock.Machine(queue[0].name) != holder {
		switch within, err := r.unsafeWindow(ctx, s); {
		case err != nil:
			return err
		case within != "":
			r.tell(queue, fmt.Sprintf("TalosOperation %q, which is inside a stage that nobody may interrupt", s.key.Namespace+"/"+within))
			return nil // Its end changes the TalosCluster, which wakes us.
		}
	}
	for _, next := range queue {
		got, err := r.Locks.Acquire(ctx, s.key, s.facts().Owner(), lock.Machine(next.name), r.Operations.MayTakeOverToDelete(next.name))
		switch {
		case err != nil:
			return err
		case got == lock.Machine(next.name):
			r.forget(next.machine)
			return r.machines().ReleaseDeletion(ctx, next.machine)
		case got.Expires():
			s.again = expiryLook // Nobody tells when it has expired.
		}
		r.tell([]doomed{next}, fmt.Sprintf("%s, which holds the lock of cluster %s", got, s.key.Name))
	}
	return nil
}

// queue are the control planes that are being deleted, whoever has the lock already first.
func (r *Reconciler) queue(ctx context.Context, s *scope, holder lock.Holder) ([]doomed, error) {
	var queue []doomed
	for _, machine := range capi.DeletedControlPlanes(s.members) {
		name, err := r.nameOf(ctx, machine)
		if err != nil {
			return nil, err
		}
		at := len(queue)
		if lock.Machine(name) == holder {
			at = 0
		}
		queue = slices.Insert(queue, at, doomed{machine: machine, name: name})
	}
	return queue, nil
}

// unsafeWindow is which operation is inside a window that nobody else may enter, as it is now; empty if none is. Its lock may be free: it
// is given back while the cluster is paused.
func (r *Reconciler) unsafeWindow(ctx context.Context, s *scope) (operation string, err error) {
	cluster := &v1alpha1.TalosCluster{}
	if err := r.Live.Get(ctx, s.key, cluster); err != nil {
		return "", fmt.Errorf("reading TalosCluster %s: %w", s.key, err)
	}
	return cluster.Annotations[v1alpha1.UnsafeAnnotation], nil
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

// tell says once what the deletions of Machines wait for.
func (r *Reconciler) tell(waiting []doomed, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, each := range waiting {
		key := client.ObjectKeyFromObject(each.machine)
		if r.told[key] == what {
			continue
		}
		r.told[key] = what
		r.Recorder.Eventf(each.machine, nil, corev1.EventTypeNormal, v1alpha1.DeletionWaitsEvent, "Delete", "the deletion waits for %s", what)
	}
}

// forget lets go of what was told of a Machine.
func (r *Reconciler) forget(machine *clusterv1.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, client.ObjectKeyFromObject(machine))
}
