// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// budget keeps every pod of the example deployment.
func (w *world) budget() (remove func()) {
	w.t.Helper()
	budgets := w.kube().PolicyV1().PodDisruptionBudgets("default")
	_, err := budgets.Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromString("100%")), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	return func() {
		w.t.Helper()
		w.Expect(budgets.Delete(w.ctx, "web", metav1.DeleteOptions{})).To(Succeed())
	}
}

// A disruption budget allows nothing: the drain gives up in time and names the pod, its own cordon goes, and a retry drains again but
// does not install again.
func TestCaseC1D1D2BudgetThatAllowsNothing(t *testing.T) {
	t.Parallel()
	w := begin(t, "c1", 1, 2)
	remove := w.budget()
	op := w.upgrade()
	w.fails(op, "machine c1-worker-1", "web-", "disruption budget web")
	w.onlyTouched("cp-1", "worker-1")
	w.Eventually(w.cordoned).WithContext(w.ctx).Should(BeEmpty())
	w.Expect(w.nodes()["worker-1"].unschedulable).To(BeFalse())
	remove()
	w.resumes(op)
	w.Expect(w.count(invariant.InstallMethod, "worker-1")).To(Equal(1))
}

// While the drain waits for a budget, the machine's line says for what.
func TestCaseD1SaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := begin(t, "d1", 1, 2)
	remove := w.budget()
	op := w.reboot("worker-1")
	w.until(op, harness.UnitSays("d1-worker-1", "web-"))
	remove()
	w.completes(op)
}

// A cordon of an administrator stays, with and without an annotation of whatever made it.
func TestCaseD3ForeignCordon(t *testing.T) {
	for name, annotation := range map[string]string{"d3": "", "d3-noted": "kured.dev/cordoned=yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 1, 2)
			id := w.order(fault.ForeignCordon, "worker-1", fault.ParamAnnotation, annotation)
			op := w.reboot("worker-1")
			w.completes(op)
			node := w.nodes()["worker-1"]
			w.Expect(node.unschedulable).To(BeTrue())
			if annotation != "" {
				w.Expect(node.annotations).To(HaveKeyWithValue("kured.dev/cordoned", "yes"))
			}
			hub.Clear(id)
		})
	}
}

// Somebody cordons a worker: it counts against the budget of those that may be away, and the operation says so.
func TestCaseD3CordonedWorkerCounts(t *testing.T) {
	t.Parallel()
	w := begin(t, "d3-counts", 1, 2)
	id := w.order(fault.ForeignCordon, "worker-2")
	op := w.reboot("worker-1")
	w.until(op, harness.WaitingAt(v1alpha1.WorkersAvailableGate, "d3-counts-worker-2"))
	w.onlyTouched()
	hub.Clear(id)
	w.completes(op)
}

// An operation is deleted while it drains: it takes its cordon off, gives the lock back and is gone.
func TestCaseD4DeletedWhileDraining(t *testing.T) {
	t.Parallel()
	w := begin(t, "d4", 1, 2)
	remove := w.budget()
	op := w.reboot("worker-1")
	w.evictionRefused()
	w.Expect(hub.Service.Delete(w.ctx, op, false, "")).To(BeFalse(), "it settles first")
	w.Expect(hub.WaitForGone(w.ctx, op)).To(Succeed())
	w.Expect(w.nodes()["worker-1"].unschedulable).To(BeFalse())
	w.Expect(w.rolling().Reboots).To(BeEmpty())
	remove()
	w.completes(w.reboot("worker-2"))
}

// A drain fails: the cordon goes at once, while the lock stays with the operation that failed.
func TestCaseD6CordonGoesBeforeTheLock(t *testing.T) {
	t.Parallel()
	w := begin(t, "d6", 1, 2)
	w.order(fault.KubernetesRefused, "")
	op := w.reboot("worker-1")
	failed := w.fails(op)
	w.Expect(w.cordoned()).To(BeEmpty())
	w.Expect(w.nodes()["worker-1"].unschedulable).To(BeFalse())
	w.Expect(failed.Status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.LockHeldCondition), HaveField("Status", metav1.ConditionTrue))))
}

// A single node is not drained: its pods have nowhere to go.
func TestCaseD7SingleNode(t *testing.T) {
	t.Parallel()
	w := beginWith(t, sim.ClusterSpec{Name: "d7", ControlPlanes: 1, PodsPerWorker: 2})
	w.budget()
	w.completes(w.upgrade())
	w.Expect(w.count("kube POST pods/*", "")).To(BeZero(), "evictions")
	w.Expect(w.count("kube PATCH nodes/cp-1", "")).To(BeZero(), "cordons")
}

// Pods that have to serve until the machine goes down are left where they are.
func TestCaseD8PodsThatStay(t *testing.T) {
	t.Parallel()
	w := begin(t, "d8", 1, 1)
	pods := w.kube().CoreV1().Pods("default")
	list, err := pods.List(w.ctx, metav1.ListOptions{LabelSelector: "app=web"})
	w.Expect(err).NotTo(HaveOccurred())
	stays := &list.Items[0]
	stays.Labels[clusterv1.PodDrainLabel] = "skip"
	_, err = pods.Update(w.ctx, stays, metav1.UpdateOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	w.completes(w.reboot("worker-1"))
	w.Expect(pods.Get(w.ctx, stays.Name, metav1.GetOptions{})).To(HaveField("UID", stays.UID))
	w.Expect(w.count("kube POST pods/*", "")).To(BeNumerically(">", 0), "the others were evicted")
}

// Whatever reboots a machine drains it first.
func TestCaseD10EveryRebootDrains(t *testing.T) {
	t.Parallel()
	w := begin(t, "d10", 1, 2)
	w.completes(w.reboot("worker-1"))
	afterReboot := w.count("kube POST pods/*", "")
	w.Expect(afterReboot).To(BeNumerically(">", 0))
	w.completes(w.upgrade())
	w.Expect(w.count("kube POST pods/*", "")).To(BeNumerically(">", afterReboot))
}

// The role may not evict pods: no time makes that better, so the drain fails at once.
func TestCaseD12EvictionForbidden(t *testing.T) {
	t.Parallel()
	w := begin(t, "d12", 1, 2)
	id := w.order(fault.KubernetesRefused, "")
	begun := time.Now()
	op := w.reboot("worker-1")
	failed := w.fails(op, "machine d12-worker-1", "evicting pod")
	w.Expect(failed.Status.FailureReason).To(ContainSubstring("forbidden"))
	w.Expect(time.Since(begun)).To(BeNumerically("<", deadline))
	w.onlyTouched("worker-1")
	w.Expect(w.nodes()["worker-1"].unschedulable).To(BeFalse())
	hub.Clear(id)
	w.resumes(op)
}

// A pod does not end, for a finalizer or a kubelet that hangs: the drain gives up in time and names it.
func TestPodThatNeverEnds(t *testing.T) {
	t.Parallel()
	w := begin(t, "stuck", 1, 2)
	id := w.order(fault.PodStuck, "worker-1")
	pods, err := w.kube().CoreV1().Pods("").List(w.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=worker-1"})
	w.Expect(err).NotTo(HaveOccurred())
	var names []types.GomegaMatcher
	for _, pod := range pods.Items {
		names = append(names, ContainSubstring(fmt.Sprintf("pod %q in namespace %q", pod.Name, pod.Namespace)))
	}
	w.Expect(names).NotTo(BeEmpty())
	op := w.reboot("worker-1")
	failed := w.fails(op, "machine stuck-worker-1")
	w.Expect(failed.Status.FailureReason).To(Or(names...))
	w.Expect(w.rolling().Reboots).To(BeEmpty())
	w.Expect(w.nodes()["worker-1"].unschedulable).To(BeFalse())
	hub.Clear(id)
	w.resumes(op)
}

// A node that nobody can reach holds up its own cluster, and no other.
func TestCaseD15OtherClustersGoOn(t *testing.T) {
	t.Parallel()
	bad := begin(t, "d15-bad", 1, 2)
	good := begin(t, "d15-good", 1, 1)
	id := bad.order(fault.Unreachable, "worker-1", fault.ParamMode, "blackhole")
	waits := bad.upgrade()
	bad.until(waits, harness.Stopped("d15-bad-worker-1"))
	good.completes(good.upgrade())
	hub.Clear(id)
	bad.completes(waits)
}
