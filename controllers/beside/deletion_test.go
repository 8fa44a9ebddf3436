// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
)

// halfWay makes an operation one whose machine has not come back in time, and may still do so. Others may be in hand.
func halfWay(failed string, inHand ...string) func(*v1alpha1.TalosOperation) {
	return func(op *v1alpha1.TalosOperation) {
		op.Status.FailureReason = "machine " + failed + ": Verifying not over within 15m0s"
		for _, name := range append(inHand, failed) {
			op.Status.Machines = append(op.Status.Machines, v1alpha1.UnitStatus{
				Name: name, Phase: v1alpha1.UnitInProgress, Stage: "Reboot", Step: v1alpha1.VerifyingStep, PreRebootBootID: "old",
			})
		}
		unit := &op.Status.Machines[len(op.Status.Machines)-1]
		unit.FailureTime = metav1.NewTime(now)
		unit.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorTimeout}
	}
}

// Another control plane does not go while one may be in the middle of something. That one itself goes, whenever it was asked for.
func TestADeletionDoesNotTakeOverFromWhoIsHalfWayWithAnother(t *testing.T) {
	w := newWorld(t)
	hub := w.hub("e1")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.operationHolds(halfWay("c1-m2"))
	w.deleteMachine("m1")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.held()).To(Equal([]string{"m1", "m2"}))
	w.g.Expect(w.holder()).To(Equal(owner))

	w.deleteMachine("m2")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.held()).To(Equal([]string{"m1"}))
	w.g.Expect(w.holder()).To(Equal("ichor-controller/machine/default/c1-m2"))
	w.deleted("m2")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.holder()).To(Equal("ichor-controller/machine/default/c1-m1"))
}

func TestADeletionWaitsForAnotherMachineInHand(t *testing.T) {
	w := newWorld(t)
	w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
	w.operationHolds(halfWay("c1-m1", "c1-m3"))
	w.deleteMachine("m1")
	w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
	w.g.Expect(w.held()).To(Equal([]string{"m1", "m2"}))
}

// A rotation or a restore is half-way through the whole cluster, even where nobody holds the lock.
func TestADeletionDoesNotEnterAnUnsafeWindow(t *testing.T) {
	w := newWorld(t, func(_ *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
		talos.Annotations = map[string]string{"ichor.maesh.dev/unsafe": "o1"}
	})
	hub := w.hub("e1")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.deleteMachine("m1")
	for range 2 {
		w.g.Expect(w.reconcile(hub)).To(Succeed())
	}
	w.g.Expect(w.held()).To(Equal([]string{"m1", "m2"}))
	w.g.Expect(w.holder()).To(BeEmpty())
	w.g.Expect(w.recorder.Events).To(HaveLen(1), "once")
	w.g.Expect(<-w.recorder.Events).To(ContainSubstring(`the deletion waits for TalosOperation "default/o1", which is inside a stage that nobody may interrupt`))

	talos := &v1alpha1.TalosCluster{}
	w.g.Expect(w.Get(t.Context(), c1, talos)).To(Succeed())
	talos.Annotations = nil
	w.g.Expect(w.Update(t.Context(), talos)).To(Succeed())
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.held()).To(Equal([]string{"m2"}))
}

// Nobody tells when a holder that has to renew its lock has stopped to.
func TestADeletionLooksAgainForWhoExpires(t *testing.T) {
	w := newWorld(t)
	locks := &lock.Locks{Client: w, Reader: w, Epoch: "e0", Clock: clocktesting.NewFakePassiveClock(now)}
	_, err := locks.Acquire(t.Context(), c1, metav1.OwnerReference{APIVersion: "v1", Kind: "Cluster", Name: "c1", UID: "cluster"}, lock.Holder{Identity: "ichor-controller/cni-helm"}, nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.deleteMachine("m2")
	result, err := w.hub("e1").Reconcile(t.Context(), ctrl.Request{NamespacedName: c1})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(result.RequeueAfter).To(Equal(10 * time.Second))
}

// What cannot be written on one object holds up no other.
func TestADeletionDoesNotWaitForOtherWrites(t *testing.T) {
	w := newWorld(t)
	hub := w.hub("e1")
	w.trouble = map[string]error{"m1": errKilled}
	w.conditionTrouble = errKilled
	w.g.Expect(w.reconcile(hub)).To(MatchError(errKilled))
	w.g.Expect(w.held()).To(Equal([]string{"m2"}))
	w.deleteMachine("m2")
	w.g.Expect(w.reconcile(hub)).To(MatchError(errKilled))
	w.g.Expect(w.held()).To(BeEmpty())
	w.g.Expect(w.holder()).To(Equal("ichor-controller/machine/default/c1-m2"))
}

// Whoever asks the hub to keep out gets the control planes back once the operation has brought its machine to a safe point.
func TestOptingOutWaitsForTheOperation(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*v1alpha1.TalosOperation)
		want   []string
	}{
		"one that settles":          {func(*v1alpha1.TalosOperation) {}, []string{"m1", "m2"}},
		"one that has come to rest": {halfWay("c1-m1"), nil},
		"one that is over":          {func(op *v1alpha1.TalosOperation) { op.Status.CompletionTime = metav1.NewTime(now) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
			w.operationHolds(row.change)
			cluster := &clusterv1.Cluster{}
			w.g.Expect(w.Get(t.Context(), c1, cluster)).To(Succeed())
			cluster.Annotations = map[string]string{"ichor.maesh.dev/opt-out": ""}
			w.g.Expect(w.Update(t.Context(), cluster)).To(Succeed())
			w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
			w.g.Expect(w.held()).To(Equal(row.want))
			w.operationLetsGo()
			w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
			w.g.Expect(w.held()).To(BeEmpty())
		})
	}
}

// A hub that shares a management cluster with others knows its clusters by the label of their TalosClusters, which goes first.
func TestHooksGoWithTheHubUnderAFilter(t *testing.T) {
	blue := func(_ *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
		talos.Labels = map[string]string{"cluster.x-k8s.io/watch-filter": "blue"}
	}
	w := newWorld(t, blue)
	w.filter = "green"
	w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
	w.g.Expect(w.held()).To(BeEmpty(), "it is another's")
	w.filter = "blue"
	w.g.Expect(w.reconcile(w.hub("e2"))).To(Succeed())
	w.g.Expect(w.held()).To(HaveLen(2))
	w.g.Expect(w.Delete(t.Context(), &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}})).To(Succeed())
	w.g.Expect(w.reconcile(w.hub("e2"))).To(Succeed())
	w.g.Expect(w.held()).To(BeEmpty())
}
