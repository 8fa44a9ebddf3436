// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/kube"
)

func (f *fleet) cluster() *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
}

func (f *fleet) lock(ctx context.Context) func() (*coordinationv1.Lease, error) {
	return func() (*coordinationv1.Lease, error) {
		lease := &coordinationv1.Lease{}
		err := admin.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "c-ichor-lock"}, lease)
		return lease, err
	}
}

func retry(ctx context.Context, op *v1alpha1.TalosOperation) {
	GinkgoHelper()
	change(ctx, op, func(o *v1alpha1.TalosOperation) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/retry", "true")
	})
}

func isGone(ctx context.Context, object client.Object) func() bool {
	return func() bool { return admin.Get(ctx, client.ObjectKeyFromObject(object), object) != nil }
}

var _ = Describe("The lock of an operation that failed", func() {
	It("goes to the next one where no machine is half-way, and comes back for the retry (E1)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.talos.ExitWith(f.addresses["cp1"], 3)
		f.startHub()
		failed := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, failed)).Should(bePaused("StepFailed", ContainSubstring("exit code 3")))

		next := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, next)).Should(beCompleted())
		Eventually(now(ctx, failed)).Should(And(
			bePaused("StepFailed", ContainSubstring("ichor operation resume up")), haveCondition("LockHeld", metav1.ConditionFalse, Not(BeEmpty()), BeEmpty()),
		))
		f.talos.ExitWith(f.addresses["cp1"], 0)
		retry(ctx, failed)
		Eventually(now(ctx, failed)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1", "Reboot cp1", "Reboot w1", "Reboot w2"}))
		Expect(f.kube.Record()).To(And(HaveField("Stage", "Upgrade"), HaveField("Sequence", BeNumerically(">", 4))))
	})

	It("stays where a system is installed and not booted, and who waits is told what helps", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.kube.FailNext("Drain", "cp1", fmt.Errorf("draining: %w", errForbidden))
		f.startHub()
		failed := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, failed)).Should(bePaused("StepFailed", ContainSubstring("Draining failed")))
		next := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, next)).Should(bePaused("ClusterLockHeld", And(
			ContainSubstring("/up"), ContainSubstring("c-cp1 has a new system installed"), HaveSuffix("retry it with: ichor operation resume up"),
		)))
		Consistently(func() []string { return f.calls("Reboot") }, 300*time.Millisecond).Should(BeEmpty())
		retry(ctx, failed)
		Eventually(now(ctx, next)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1", "Reboot w2", "Reboot w1"}))
	})

	It("stays while another of its machines is in hand", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 3)
		rebooted := f.talos.Rebooted
		spec := upgrade()
		spec.MaxUnavailable = ptr.To(twoAtOnce)
		f.talos.ExitWith(f.addresses["w2"], 3)
		drain := f.kube.HangBefore("Drain", "w1")
		f.talos.Rebooted = rebooted
		f.startHub()
		failed := f.create(ctx, "up", spec)
		Eventually(drain.Reached).Should(BeClosed())
		Eventually(now(ctx, failed)).Should(haveCondition("Paused", metav1.ConditionTrue, "StepFailed", Not(BeEmpty())))
		next := f.create(ctx, "re", reboot("c-w3"))
		Eventually(now(ctx, next)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		Consistently(func() []string { return f.calls("Reboot") }, 300*time.Millisecond).Should(Equal([]string{"Reboot cp1"}))
		drain.Release()
		Eventually(now(ctx, next)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1", "Reboot w3"}), "the machine in hand is finished first")
	})

	It("is free where its holder is gone, or another one of the same name (E1)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: "c-ichor-lock", Annotations: map[string]string{"ichor.maesh.dev/operation-id": "an earlier one"},
		}}
		lease.Spec.HolderIdentity = ptr.To("ichor-controller/op/" + f.namespace + "/re")
		Expect(admin.Create(ctx, lease)).To(Succeed())
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(beCompleted())

		change(ctx, lease, func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity = ptr.To("ichor-controller/machine/" + f.namespace + "/c-gone")
		})
		second := f.create(ctx, "re2", reboot("c-w1"))
		Eventually(now(ctx, second)).Should(beCompleted())
		change(ctx, lease, func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity = ptr.To("ichor-controller/machine/" + f.namespace + "/c-cp1")
		})
		third := f.create(ctx, "re3", reboot("c-w1"))
		Eventually(now(ctx, third)).Should(bePaused("ClusterLockHeld", ContainSubstring(fmt.Sprintf("TalosMachine %q", f.namespace+"/c-cp1"))))
	})

	It("is not waited for by the operation that a dead process took it for, whoever has come before that since", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		first, second := f.create(ctx, "a", reboot("c-w1")), f.create(ctx, "b", reboot("c-w2"))
		change(ctx, second, func(o *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/operation-id", "id-of-b")
		})
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: "c-ichor-lock", Annotations: map[string]string{"ichor.maesh.dev/operation-id": "id-of-b"},
		}}
		lease.Spec.HolderIdentity = ptr.To("ichor-controller/op/" + f.namespace + "/b")
		Expect(admin.Create(ctx, lease)).To(Succeed())
		f.startHub()
		Eventually(now(ctx, second)).Should(beCompleted())
		Eventually(now(ctx, first)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w2", "Reboot w1"}))
	})
})

var _ = Describe("A machine that fell back and stays cordoned", func() {
	fallen := func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		GinkgoHelper()
		f.talos.FallBack(f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("c-w1")))
		Expect(f.kube.Get("w1")).To(HaveField("CordonedBy", f.namespace+"/up"))
		return op
	}
	blocked := func(ctx context.Context, f *fleet) *v1alpha1.TalosOperation {
		GinkgoHelper()
		next := f.create(ctx, "re", reboot("c-w2"))
		Eventually(now(ctx, next)).Should(haveCondition("Progressing", metav1.ConditionFalse, "WorkersAvailable", ContainSubstring("c-w1 (cordoned by TalosOperation")))
		return next
	}

	It("keeps nobody waiting for ever: the lock goes back to the operation that can mend it", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		failed := fallen(ctx, f)
		next := blocked(ctx, f)
		retry(ctx, failed)
		Eventually(now(ctx, failed)).Should(beCompleted())
		Eventually(now(ctx, next)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1", "Reboot w1", "Reboot w2", "Reboot w2"}))
	})

	It("is in use again once the operation is deleted, whoever has the lock (D4)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		failed := fallen(ctx, f)
		next := blocked(ctx, f)
		Expect(admin.Delete(ctx, failed)).To(Succeed())
		Eventually(isGone(ctx, failed)).Should(BeTrue())
		Expect(f.kube.Get("w1")).To(And(HaveField("Unschedulable", false), HaveField("CordonedBy", "")))
		Eventually(now(ctx, next)).Should(beCompleted())
	})

	It("is in use again when its operation is deleted or paused before the retry begins", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		failed := fallen(ctx, f)
		f.kube.Change("w2", func(n *kube.Node) { n.Unschedulable = true })
		retry(ctx, failed)
		Eventually(now(ctx, failed)).Should(haveCondition("Progressing", metav1.ConditionFalse, "WorkersAvailable", ContainSubstring("c-w2 (cordoned)")))
		change(ctx, failed, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(func() kube.Node { return f.kube.Get("w1") }).Should(And(HaveField("Unschedulable", false), HaveField("CordonedBy", "")))
		Expect(admin.Delete(ctx, failed)).To(Succeed())
		Eventually(isGone(ctx, failed)).Should(BeTrue())
	})
})

var _ = Describe("An installation of which nobody knows how far it came", func() {
	It("keeps the lock, and is repeated by a retry where it is", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.InstallingStep: 500 * time.Millisecond}
		f.talos.HangAfter("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("c-cp1: Installing failed")))
		next := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, next)).Should(bePaused("ClusterLockHeld", ContainSubstring("c-cp1 may have a new system installed")))
		retry(ctx, op)
		Eventually(now(ctx, next)).Should(beCompleted())
		Expect(f.calls("InstallImage", "Reboot")).To(Equal([]string{
			"InstallImage cp1", "InstallImage cp1", "Reboot cp1", "InstallImage w1", "Reboot w1", "Reboot w1",
		}))
	})
})

var _ = Describe("A lock that a dead process took", func() {
	It("is given back by an operation that is paused before it knows", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		spec := reboot("c-w1")
		spec.Paused = ptr.To(true)
		paused := f.create(ctx, "a", spec)
		change(ctx, paused, func(o *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/operation-id", "id-of-a")
		})
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: "c-ichor-lock", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c"},
			Annotations: map[string]string{"ichor.maesh.dev/operation-id": "id-of-a"},
		}}
		lease.Spec.HolderIdentity = ptr.To("ichor-controller/op/" + f.namespace + "/a")
		Expect(admin.Create(ctx, lease)).To(Succeed())
		f.startHub()
		Eventually(now(ctx, f.create(ctx, "b", reboot("c-w2")))).Should(beCompleted())
		Expect(now(ctx, paused)()).To(bePaused("OperatorPaused", Not(BeEmpty())))
	})
})

var _ = Describe("Deleting an operation", func() {
	It("waits where it failed inside an unsafe step, says so, and ends with the retry", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.kube.FailNext("Drain", "cp1", fmt.Errorf("draining: %w", errForbidden))
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", Not(BeEmpty())))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "DeletionBlocked", And(
			HavePrefix("c-cp1 has a new system installed"), ContainSubstring("ichor operation resume up"), ContainSubstring("ichor.maesh.dev/force-delete=true"),
		)))
		Expect(f.movable(ctx)).To(BeFalse())
		retry(ctx, op)
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1"}), "the machine in hand completes, and no other begins")
		Expect(f.lock(ctx)()).To(HaveField("Spec.HolderIdentity", BeNil()))
		Expect(f.movable(ctx)).To(BeTrue())
	})

	It("takes back a lock that went to another one meanwhile, settles and ends", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.ExitWith(f.addresses["cp1"], 3)
		f.startHub()
		failed := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, failed)).Should(bePaused("StepFailed", ContainSubstring("exit code 3")))
		next := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, next)).Should(beCompleted())
		Eventually(now(ctx, failed)).Should(haveCondition("LockHeld", metav1.ConditionFalse, Not(BeEmpty()), BeEmpty()))

		Expect(admin.Delete(ctx, failed)).To(Succeed())
		Eventually(isGone(ctx, failed)).Should(BeTrue())
		Expect(f.lock(ctx)()).To(HaveField("Spec.HolderIdentity", BeNil()))
	})

	It("by force leaves its machines as they are, and frees the cluster", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		rebooted := f.talos.Rebooted
		f.talos.Rebooted = func(address string, now talosMachine) {
			rebooted(address, now)
			f.talos.Silence(address, true)
		}
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(func() []string { return f.calls("Reboot") }).Should(HaveLen(1))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionTrue, "Settling", Not(BeEmpty())))
		change(ctx, op, func(o *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/force-delete", "true")
		})
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.lock(ctx)()).To(HaveField("Spec.HolderIdentity", BeNil()))
		Expect(f.movable(ctx)).To(BeTrue())
		Expect(f.kube.Get("w1")).To(HaveField("CordonedBy", f.namespace+"/re"))
		Eventually(f.events(ctx, op)).Should(ContainElement(HavePrefix("Warning ForceDeleted: deleted by force, and its machines are left as they are: c-w1: Rebooting")))
	})
})

var _ = Describe("A target with an operation on it", func() {
	It("is not moved, whoever asks, and can be afterwards", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		Expect(f.movable(ctx)).To(BeFalse())
		install.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Eventually(func() bool { return f.movable(ctx) }).Should(BeTrue())
	})

	It("keeps a block that somebody else made", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(beCompleted())
		change(ctx, f.cluster(), func(c *v1alpha1.TalosCluster) { c.Annotations[v1alpha1.BlockMoveAnnotation] = "" })
		Consistently(func() bool { return f.movable(ctx) }, 300*time.Millisecond).Should(BeFalse())
	})

	It("is nobody else's inside a stage that must not be interrupted, even without its lock", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.executors[v1alpha1.TalosKind] = unsafeStages{f.executors[v1alpha1.TalosKind]}
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		cluster := f.cluster()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		Expect(cluster.Annotations).To(HaveKeyWithValue("ichor.maesh.dev/unsafe", "up"))

		// The lock goes with a pause of the Cluster, and the window stays.
		pauseCluster(ctx, f, true)
		install.Release()
		Eventually(now(ctx, op)).Should(haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		pauseCluster(ctx, f, false)
		next := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, next)).Should(bePaused("ClusterLockHeld", ContainSubstring(`TalosOperation "up" is inside a stage of cluster c`)))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, next)).Should(beCompleted())
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		Expect(cluster.Annotations).NotTo(HaveKey("ichor.maesh.dev/unsafe"))
	})
})

// unsafeStages make every disruptive stage of a kind one that must not be interrupted.
type unsafeStages struct{ kind.Executor }

func (u unsafeStages) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	p, refusals := u.Executor.Plan(facts)
	for i := range p.Stages {
		p.Stages[i].Unsafe = p.Stages[i].Disruptive
	}
	return p, refusals
}
