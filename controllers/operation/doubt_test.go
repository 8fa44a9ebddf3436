// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// soon is long enough for a hub to do what it must not.
const soon = 1500 * time.Millisecond

var _ = Describe("A reboot that nobody may make", func() {
	It("is not made where another hub has taken the target a moment ago", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.startHub()
		write := f.kube.HangBefore("WriteRecord", "Reboot")
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(write.Reached).Should(BeClosed())
		f.kube.SetRecord(kube.Record{OwnerID: "another-hub", OperationID: "x", Sequence: 9})
		write.Release()
		Eventually(now(ctx, op)).Should(HaveField("Status.FailureReason", Not(BeEmpty())))
		Expect(f.calls("Reboot")).To(BeEmpty())
		Expect(f.kube.Calls()).NotTo(ContainElement("Cordon w1"))
	})

	It("is not made a second time because the API was silent when an older status was to be compared", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		drain := f.kube.HangBefore("Drain", "w1")
		first := f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(drain.Reached).Should(BeClosed())
		backup, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		uncordon := f.kube.HangBefore("Uncordon", "w1")
		drain.Release()
		Eventually(uncordon.Reached).Should(BeClosed())
		first.kill()
		older, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		older.Status = backup.Status
		Expect(admin.Status().Update(ctx, older)).To(Succeed())
		f.kube.Silence(true)
		f.startHub()
		Consistently(func() []string { return f.calls("Reboot") }, soon).Should(HaveLen(1))
		f.kube.Silence(false)
		Eventually(now(ctx, op)).Should(bePaused("StatusLost", Not(BeEmpty())))
		Expect(f.calls("Reboot")).To(HaveLen(1))
	})

	It("is not made a second time because an older status was put back while the hub looked on", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		drain := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(drain.Reached).Should(BeClosed())
		backup, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		uncordon := f.kube.HangBefore("Uncordon", "w1")
		drain.Release()
		Eventually(uncordon.Reached).Should(BeClosed())
		older, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		older.Status = backup.Status
		Expect(admin.Status().Update(ctx, older)).To(Succeed())
		uncordon.Release()
		Eventually(now(ctx, op)).Should(bePaused("StatusLost", Not(BeEmpty())))
		Expect(f.calls("Reboot")).To(HaveLen(1))
	})

	It("is not made a second time from a backup of before its first step", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.kube.Change("w2", func(n *kube.Node) { n.Ready = false })
		first := f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "WorkersAvailable", Not(BeEmpty())))
		backup, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		f.kube.Change("w2", func(n *kube.Node) { n.Ready = true })
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Annotations", HaveKey("ichor.maesh.dev/completed-at"))))
		first.kill()
		change(ctx, op, func(o *v1alpha1.TalosOperation) { delete(o.Annotations, "ichor.maesh.dev/completed-at") })
		op.Status = backup.Status
		Expect(admin.Status().Update(ctx, op)).To(Succeed())
		f.startHub()
		Eventually(now(ctx, op)).Should(bePaused("StatusLost", Not(BeEmpty())))
		Expect(f.calls("Reboot")).To(HaveLen(1))
	})

	It("drains no Node of another machine that has the name by now", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.talos.Change(f.addresses["w1"], func(m *talos.Machine, _ *talos.Etcd) { m.NodeName = "w9" })
		f.kube.Change("w1", func(n *kube.Node) { n.UUID, n.BootID = "uuid-other", "other" })
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "MachineKnown", ContainSubstring(`machine c-w1 is Node "w9" by now`)))
		Expect(append(f.kube.Calls(), f.calls("Reboot")...)).To(BeEmpty())
	})

	It("is asked for once more after an answer that got lost, and is counted once", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.talos.FailNext("Reboot", f.addresses["w1"], status.Error(codes.Internal, "stream terminated by RST_STREAM"))
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(beCompleted())
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.Sequence).To(BeNumerically("<=", 3), "waiting for the next attempt writes nothing")
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
	})

	It("costs no time of its step while a gate is closed", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.RebootingStep: 11 * time.Second}
		f.talos.FailNext("Reboot", f.addresses["cp2"], status.Error(codes.Unavailable, "reset"))
		f.startHub()
		op := f.create(ctx, "re", reboot("c-cp2"))
		Eventually(now(ctx, op)).Should(WithTransform(func(o *v1alpha1.TalosOperation) *v1alpha1.CallOutcome {
			if unit := o.Machine("c-cp2"); unit != nil && unit.Step == v1alpha1.RebootingStep {
				return unit.Outcome
			}
			return nil
		}, Not(BeNil())))
		f.talos.Silence(f.addresses["cp3"], true)
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "EtcdHealthy", Not(BeEmpty())))
		Consistently(now(ctx, op), 12*time.Second, time.Second).Should(HaveField("Status.FailureReason", BeEmpty()))
		f.talos.Silence(f.addresses["cp3"], false)
		Eventually(now(ctx, op)).Should(beCompleted())
	})
})

var _ = Describe("An installation whose end nobody saw", func() {
	It("is not undone by what a later attempt answers: the lock stays", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		done := f.talos.HangAfter("InstallImage", f.addresses["cp1"])
		first := f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(done.Reached).Should(BeClosed())
		first.kill()
		f.talos.ExitWith(f.addresses["cp1"], 4)
		f.startHub()
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("exit code 4")))
		other := f.create(ctx, "other", reboot("c-w1"))
		Eventually(now(ctx, other)).Should(bePaused("ClusterLockHeld", ContainSubstring("c-cp1 may have a new system installed")))
		Consistently(func() []string { return f.calls("Reboot") }, soon).Should(BeEmpty())
	})

	It("is not repeated on a machine that has booted it since", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		done := f.talos.HangAfter("InstallImage", f.addresses["cp1"])
		first := f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(done.Reached).Should(BeClosed())
		first.kill()
		f.talos.Change(f.addresses["cp1"], func(m *talos.Machine, _ *talos.Etcd) { m.Version, m.BootID = newVersion, "after-a-power-cut" })
		f.kube.Change("cp1", func(n *kube.Node) { n.BootID = "after-a-power-cut" })
		f.startHub()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("InstallImage", "Reboot")).To(Equal([]string{"InstallImage cp1", "InstallImage w1", "Reboot w1"}))
	})

	It("is nobody else's when its machine is gone", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.talos.Rebooted = func(address string, _ talos.Machine) { f.talos.Silence(address, true) }
		f.startHub()
		op := f.create(ctx, "re", reboot("c-cp2"))
		Eventually(func() []string { return f.calls("Reboot") }).Should(HaveLen(1))
		Expect(admin.Delete(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-cp2"}})).To(Succeed())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("is gone")))
		other := f.create(ctx, "other", reboot("c-w1"))
		Eventually(now(ctx, other)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		Consistently(func() []string { return f.calls("Reboot") }, soon).Should(HaveLen(1))
	})

	It("keeps a hub that does not know the kind from deleting the operation", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		first := f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		first.kill()
		known := f.executors[v1alpha1.TalosKind]
		delete(f.executors, v1alpha1.TalosKind)
		second := f.startHub()
		Eventually(now(ctx, op)).Should(bePaused("NoExecutor", Not(BeEmpty())))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "DeletionBlocked", ContainSubstring("does not know the kind")))
		second.kill()
		f.executors[v1alpha1.TalosKind] = known
		f.startHub()
		Eventually(isGone(ctx, op)).Should(BeTrue())
	})
})

var _ = Describe("What is left behind", func() {
	It("by a machine that was mended by hand after it fell back is no cordon", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.FallBack(f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("instead of")))
		f.talos.Change(f.addresses["w1"], func(m *talos.Machine, _ *talos.Etcd) { m.Version = newVersion })
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.kube.Get("w1")).To(And(HaveField("Unschedulable", false), HaveField("CordonedBy", "")))
	})

	It("by a pause of the Cluster, after a failure from which others are safe, is neither lock nor block", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.ExitWith(f.addresses["cp1"], 4)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", Not(BeEmpty())))
		pauseCluster(ctx, f, true)
		Eventually(now(ctx, op)).Should(And(bePaused("ClusterPaused", Not(BeEmpty())), haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty())))
		Expect(f.movable(ctx)).To(BeTrue())
	})

	It("of a machine that was gone and came back is one unit", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.kube.Change("w2", func(n *kube.Node) { n.Ready = false })
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "WorkersAvailable", Not(BeEmpty())))
		gone := &v1alpha1.TalosMachine{}
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "c-w1"}, gone)).To(Succeed())
		Expect(admin.Delete(ctx, gone)).To(Succeed())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("is gone")))
		f.kube.Change("w2", func(n *kube.Node) { n.Ready = true })
		back := gone.DeepCopy()
		back.ResourceVersion, back.UID = "", ""
		Expect(admin.Create(ctx, back)).To(Succeed())
		back.Status = gone.Status
		Expect(admin.Status().Update(ctx, back)).To(Succeed())
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Status.Units", BeEmpty()), HaveField("Status.Machines", HaveLen(1))))
	})

	It("by a lost status inside a stage that must not be interrupted is the claim of the stage", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.executors[v1alpha1.TalosKind] = unsafeStages{f.executors[v1alpha1.TalosKind]}
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		first := f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		first.kill()
		lost, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		lost.Status = v1alpha1.TalosOperationStatus{}
		Expect(admin.Status().Update(ctx, lost)).To(Succeed())
		f.startHub()
		Eventually(now(ctx, op)).Should(bePaused("StatusLost", Not(BeEmpty())))
		Consistently(func() map[string]string {
			cluster := f.cluster()
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			return cluster.Annotations
		}, soon).Should(HaveKeyWithValue("ichor.maesh.dev/unsafe", "up"))
	})

	It("by an operation inside its window is not waited for by itself, whoever is older", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.executors[v1alpha1.TalosKind] = unsafeStages{f.executors[v1alpha1.TalosKind]}
		spec := reboot("c-w1")
		spec.Paused = ptr.To(true)
		older := f.create(ctx, "aa", spec)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		pauseCluster(ctx, f, true)
		install.Release()
		Eventually(now(ctx, op)).Should(haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()))
		change(ctx, older, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		pauseCluster(ctx, f, false)
		Eventually(now(ctx, op)).Should(beCompleted())
		Eventually(now(ctx, older)).Should(beCompleted())
	})
})
