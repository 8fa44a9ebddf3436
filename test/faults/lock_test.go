// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// createReboot creates an operation as Git or kubectl would: nobody checks whether another one is unfinished.
func (w *world) createReboot(name, node string) *v1alpha1.TalosOperation {
	w.t.Helper()
	op := &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: harness.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: w.name},
		},
		Spec: v1alpha1.TalosOperationSpec{
			ClusterName: w.name, Kind: v1alpha1.NodeKind,
			Node: &v1alpha1.NodeParameters{Machine: w.machine(node), Action: v1alpha1.RebootAction},
		},
	}
	w.Expect(hub.Client.Create(w.ctx, op)).To(Succeed())
	return op
}

// The lock names an operation that is no more: it is free.
func TestCaseE1HolderIsGone(t *testing.T) {
	t.Parallel()
	w := begin(t, "e1", 1, 1)
	now := metav1.NowMicro()
	w.Expect(hub.Client.Create(w.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: harness.Namespace, Name: lock.LeaseName(w.name), Labels: map[string]string{clusterv1.ClusterNameLabel: w.name},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("ichor-controller/op/default/e1-gone"), AcquireTime: &now, RenewTime: &now},
	})).To(Succeed())
	w.completes(w.reboot("worker-1"))
}

// Whoever waits for the lock says who has it, and starts when it is released.
func TestCaseE2E8WaitingForTheLock(t *testing.T) {
	t.Parallel()
	w := begin(t, "e2", 1, 2)
	remove := w.budget()
	first := w.reboot("worker-1")
	w.evictionRefused()
	second := w.createReboot("e2-second", "worker-2")
	w.until(second, harness.Paused(v1alpha1.ClusterLockHeldReason, "default/"+first.Name))
	remove()
	done := w.until(first, harness.Completed())
	w.completes(second)
	started := w.until(second, harness.Completed()).Status.StartTime
	w.Expect(started.Sub(done.Status.CompletionTime.Time)).To(BeNumerically("<=", 5*time.Second)) // End-to-end tests measure the second.
}

// Operations that somebody else creates go one after the other, in the order in which they were created.
func TestCaseE5Queue(t *testing.T) {
	t.Parallel()
	w := begin(t, "e5", 1, 3)
	remove := w.budget() // The first keeps the lock until the others stand in the queue.
	first := w.createReboot("e5-m", "worker-1")
	w.evictionRefused()
	var queue []*v1alpha1.TalosOperation
	for _, row := range []struct{ name, node string }{{"e5-z", "worker-3"}, {"e5-y", "worker-2"}, {"e5-a", "cp-1"}} { // By name it would be the other way round.
		if len(queue) > 0 {
			w.secondAfter(queue[len(queue)-1])
		}
		queue = append(queue, w.createReboot(row.name, row.node))
		w.until(queue[len(queue)-1], harness.Paused(v1alpha1.ClusterLockHeldReason, first.Name))
	}
	remove()
	for _, op := range append(queue, first) {
		w.completes(op)
	}
	w.Expect(w.rolling().Order).To(Equal([]string{"worker-1", "worker-3", "worker-2", "cp-1"}))
}

// secondAfter waits until what is created next is younger than an operation: times of creation have whole seconds.
func (w *world) secondAfter(op *v1alpha1.TalosOperation) {
	w.t.Helper()
	w.Eventually(time.Now).WithContext(w.ctx).Should(BeTemporally(">=", op.CreationTimestamp.Add(time.Second)))
}

// closed is a window that is not open in any month that a test may run in.
func closed() []v1alpha1.MaintenanceWindow {
	far := time.Now().UTC().AddDate(0, 6, 0).Month()
	return []v1alpha1.MaintenanceWindow{{Schedule: fmt.Sprintf("0 0 1 %d *", far), DurationSeconds: 3600}}
}

func (w *world) setWindows(windows []v1alpha1.MaintenanceWindow) {
	w.t.Helper()
	cluster, err := hub.Cluster(w.ctx, w.name)
	w.Expect(err).NotTo(HaveOccurred())
	patched := cluster.DeepCopy()
	patched.Spec.MaintenanceWindows = windows
	w.Expect(hub.Client.Patch(w.ctx, patched, client.MergeFrom(cluster))).To(Succeed())
}

// The window closes in the middle of the work: the machine in hand is finished, the next one is not begun.
func TestCaseE9WindowCloses(t *testing.T) {
	t.Parallel()
	w := begin(t, "e9", 1, 2)
	id := w.order(fault.BootStuck, "worker-1")
	op := w.upgrade()
	w.event(invariant.DownEvent, "worker-1")
	w.setWindows(closed())
	hub.Clear(id)
	w.until(op, harness.Paused(v1alpha1.WaitingForWindowReason, "opens at"),
		harness.OperationCondition(v1alpha1.LockHeldCondition, metav1.ConditionFalse, ""))
	w.Expect(w.rolling().Reboots).To(Equal(map[string]int{"cp-1": 1, "worker-1": 1}))
	w.Expect(w.cordoned()).To(BeEmpty())
	w.Expect(w.cluster.Node("worker-1").State().Running.Version).To(Equal(to))
	w.Expect(w.cluster.Node("worker-2").State().Running.Version).To(Equal(from))
	w.setWindows(nil)
	w.completes(op)
}

// A node is unreachable when the operation begins: it says which, and the node can be left out by name.
func TestCaseE11UnreachableAtTheStart(t *testing.T) {
	t.Parallel()
	w := begin(t, "e11", 1, 2)
	w.order(fault.Unreachable, "worker-2")
	op := w.upgrade()
	w.until(op, harness.Stopped("e11-worker-2"))
	machine, err := hub.Service.Machine(w.ctx, harness.Namespace, w.name, "worker-2")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(hub.Service.SetHold(w.ctx, machine, true, "broken network card")).To(BeTrue())
	seen := w.until(op, harness.Completed())
	w.Expect(seen.Status.Held).To(ConsistOf("e11-worker-2"))
	w.onlyTouched("cp-1", "worker-1")
}
