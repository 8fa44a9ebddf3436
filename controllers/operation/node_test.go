// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

var _ = Describe("A machine that is shut down", func() {
	It("is left as it was by a pause before it is told (D2), and by a deletion (D4)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 2)
		stop := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "off", on("c-w1", v1alpha1.ShutdownAction, nil)())
		Eventually(stop.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(bePaused("OperatorPaused", Not(BeEmpty())))
		stop.Release()
		Eventually(func() bool { return f.kube.Get("w1").Unschedulable }).Should(BeFalse())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.calls("Shutdown")).To(BeEmpty())
		Expect(f.kube.Get("w1")).To(And(HaveField("Unschedulable", false), HaveField("CordonedBy", "")))
	})

	It("and boots again fails the operation, which keeps nobody out: the machine is there", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 2)
		f.talos.PoweredOff = func(address string) {
			f.talos.PowerOn(address)
			f.kube.Change(f.talos.Facts(address).NodeName, func(n *kube.Node) { n.Ready = true })
		}
		f.startHub()
		op := f.create(ctx, "off", on("c-w1", v1alpha1.ShutdownAction, nil)())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("is back by itself")))
		other := f.create(ctx, "next", reboot("c-cp2"))
		Eventually(now(ctx, other)).Should(beCompleted())
	})

	It("and hangs is asked once, and said to hang", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 2)
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.ShuttingDownStep: 400 * time.Millisecond}
		f.talos.Hang(f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "off", on("c-w1", v1alpha1.ShutdownAction, nil)())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring(`it answers, in stage "shutting down"`)))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(HaveField("Status.LastRetry.IsZero()", false))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring(`it answers, in stage "shutting down"`)))
		Expect(f.calls("Shutdown")).To(Equal([]string{"Shutdown w1"}))
	})
})

var _ = Describe("A control plane that is reset", func() {
	It("keeps everybody else out from the leave of its member until it is wiped", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		stop := f.talos.HangBefore("Reset", f.addresses["cp2"])
		f.startHub()
		op := f.create(ctx, "wipe", on("c-cp2", v1alpha1.ResetAction, nil)())
		Eventually(stop.Reached).Should(BeClosed())
		Expect(f.calls("LeaveEtcd")).To(Equal([]string{"LeaveEtcd cp2"}))
		other := f.create(ctx, "next", reboot("c-w1"))
		Eventually(now(ctx, other)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		stop.Release()
		Eventually(now(ctx, op)).Should(HaveField("Status.Machines", ContainElement(And(HaveField("Name", "c-cp2"), HaveField("Phase", v1alpha1.UnitCompleted)))),
			"settling goes on: it cannot be put back")
		Expect(f.talos.Wiped(f.addresses["cp2"]).Partitions).To(Equal([]string{"EPHEMERAL", "STATE"}))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
		Eventually(now(ctx, other)).Should(beCompleted())
	})

	It("blocks its deletion when its member has left and it cannot be wiped, until somebody lets it go", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.talos.FailNext("Reset", f.addresses["cp2"], errForbiddenByTalos)
		f.startHub()
		op := f.create(ctx, "wipe", on("c-cp2", v1alpha1.ResetAction, nil)())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("Resetting failed")))
		Expect(f.kube.Get("cp2").Unschedulable).To(BeTrue(), "it is half gone")
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "DeletionBlocked",
			ContainSubstring("c-cp2 is asked to wipe itself and is not known to have done so")))
		change(ctx, op, func(o *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.ForceDeleteAnnotation, "true")
		})
		Eventually(isGone(ctx, op)).Should(BeTrue())
	})

	It("goes by force where its own member is down, and not otherwise (D15)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.talos.Change(f.addresses["cp1"], func(_ *talos.Machine, e *talos.Etcd) { e.Leader = 2 })
		for _, name := range []string{"cp2", "cp3"} {
			f.talos.Change(f.addresses[name], func(_ *talos.Machine, e *talos.Etcd) { e.Leader = 2 })
		}
		f.talos.Change(f.addresses["cp1"], func(_ *talos.Machine, e *talos.Etcd) { e.Leader = 0 }) // It is cut off.
		f.startHub()
		plain := f.create(ctx, "plain", on("c-cp1", v1alpha1.ResetAction, nil)())
		Eventually(now(ctx, plain)).Should(haveCondition("Progressing", metav1.ConditionFalse, "EtcdHealthy", ContainSubstring("c-cp1 has no leader")))
		Expect(admin.Delete(ctx, plain)).To(Succeed())
		Eventually(isGone(ctx, plain)).Should(BeTrue())
		Expect(f.calls("LeaveEtcd", "Reset")).To(BeEmpty())

		op := f.create(ctx, "force", on("c-cp1", v1alpha1.ResetAction, forced)())
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("LeaveEtcd", "RemoveEtcdMember", "Reset")).To(Equal([]string{"RemoveEtcdMember cp2", "Reset cp1"}))
		Expect(f.kube.Calls()).NotTo(ContainElement("Drain cp1"))
	})
})

var _ = Describe("Etcd that is defragmented", func() {
	It("is asked before each member, and stops at one that is not well (B2, B23)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		stop := f.talos.HangAfter("Defragment", f.addresses["cp2"])
		f.startHub()
		op := f.create(ctx, "defrag", on("", v1alpha1.EtcdDefragAction, nil)())
		Eventually(stop.Reached).Should(BeClosed())
		f.talos.Change(f.addresses["cp3"], func(_ *talos.Machine, e *talos.Etcd) { e.Errors = []string{"slow"} })
		stop.Release()
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "EtcdHealthy", ContainSubstring("c-cp3 reports slow")))
		Expect(f.calls("Defragment")).To(Equal([]string{"Defragment cp2"}))
		f.talos.Change(f.addresses["cp3"], func(_ *talos.Machine, e *talos.Etcd) { e.Errors = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Defragment")).To(Equal([]string{"Defragment cp2", "Defragment cp3", "Defragment cp1"}))
	})

	It("keeps an alarm that is not about space (Disarm)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.startHub()
		stop := f.talos.HangAfter("Defragment", f.addresses["cp1"])
		op := f.create(ctx, "defrag", on("", v1alpha1.EtcdDefragAction, disarm)())
		Eventually(stop.Reached).Should(BeClosed())
		f.raise("NOSPACE on member 0000000000000001", "CORRUPT on member 0000000000000002")
		stop.Release()
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("CORRUPT on member 0000000000000002")))
		Expect(f.calls("DisarmAlarms")).To(BeEmpty())
	})
})
