// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/talos"
)

// approve changes whether a machine counts.
func (f *fleet) approve(ctx context.Context, name string, approval v1alpha1.Approval) {
	GinkgoHelper()
	machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-" + name}}
	change(ctx, machine, func(m *v1alpha1.TalosMachine) { m.Spec.Approval = approval })
}

// members replaces what every etcd member tells of its fellows.
func (f *fleet) members(list ...talos.EtcdMember) {
	for _, member := range list {
		if address := f.addresses[member.Hostname]; address != "" {
			f.talos.Change(address, func(_ *talos.Machine, etcd *talos.Etcd) { etcd.Members = slices.Clone(list) })
		}
	}
}

func voter(id uint64, name string) talos.EtcdMember {
	return talos.EtcdMember{ID: id, Hostname: name, Started: true}
}

var _ = Describe("A control plane under replacement", func() {
	It("keeps work on control planes waiting, and nothing else", func(ctx SpecContext) {
		f := newFleet(ctx, 4, 1)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(And(
			bePaused("ControlPlaneTransitioning", And(ContainSubstring("4 control planes are approved"), ContainSubstring("ichor machine list --cluster c"))),
			haveCondition("LockHeld", metav1.ConditionFalse, "NotHeld", BeEmpty()),
		))
		worker := f.create(ctx, "worker", reboot("c-w1"))
		Eventually(now(ctx, worker)).Should(beCompleted(), "it does not stand behind what waits for somebody else")
		Expect(f.calls("InstallImage", "Reboot")).To(Equal([]string{"Reboot w1"}))

		f.members(voter(1, "cp1"), voter(2, "cp2"), voter(3, "cp3"))
		f.approve(ctx, "cp4", v1alpha1.ApprovalPending)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(HaveLen(1 + 4))
	})

	It("is no replacement where four are meant to stay, and somebody says so", func(ctx SpecContext) {
		f := newFleet(ctx, 4, 0)
		f.startHub()
		spec := reboot("c-cp2")
		spec.Overrides = []v1alpha1.GateOverride{{Gate: "ControlPlaneTransitioning", Reason: "four stay"}}
		Eventually(now(ctx, f.create(ctx, "re", spec))).Should(beCompleted())
	})

	It("makes an operation settle and give the lock back, and it keeps its place", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		drain := f.kube.HangBefore("Drain", "cp2")
		f.startHub()
		op := f.create(ctx, "re", reboot("c-cp2"))
		Eventually(drain.Reached).Should(BeClosed())
		joining := talos.EtcdMember{ID: 4, Hostname: "cp4", Started: true, Learner: true}
		f.members(voter(1, "cp1"), voter(2, "cp2"), voter(3, "cp3"), joining)
		drain.Release()
		Eventually(now(ctx, op)).Should(And(
			bePaused("ControlPlaneTransitioning", ContainSubstring("etcd member cp4 is a learner")),
			haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()),
		))
		Expect(f.kube.Get("cp2")).To(HaveField("Unschedulable", false))
		Consistently(func() []string { return f.calls("Reboot") }, 300*time.Millisecond).Should(BeEmpty())
		f.members(voter(1, "cp1"), voter(2, "cp2"), voter(3, "cp3"))
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp2"}))
	})

	It("is not seen in an etcd member that the operation itself has taken away (B14)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		rebooted := f.talos.Rebooted
		f.talos.Rebooted = func(address string, now talos.Machine) {
			rebooted(address, now)
			f.talos.Change(f.addresses["cp2"], func(_ *talos.Machine, etcd *talos.Etcd) { etcd.Learner = true })
			back := talos.EtcdMember{ID: 2, Hostname: "cp2", Started: true, Learner: true}
			f.members(voter(1, "cp1"), back, voter(3, "cp3"))
		}
		f.startHub()
		op := f.create(ctx, "re", reboot("c-cp2"))
		Eventually(now(ctx, op)).Should(stepOf("c-cp2", v1alpha1.VerifyingStep))
		Consistently(now(ctx, op), 300*time.Millisecond).Should(And(
			HaveField("Status.Phase", v1alpha1.OperationInProgress), haveCondition("LockHeld", metav1.ConditionTrue, "Held", BeEmpty()),
		))
		f.talos.Change(f.addresses["cp2"], func(_ *talos.Machine, etcd *talos.Etcd) { etcd.Learner = false })
		f.members(voter(1, "cp1"), voter(2, "cp2"), voter(3, "cp3"))
		Eventually(now(ctx, op)).Should(beCompleted())
	})
})
