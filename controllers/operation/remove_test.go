// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

func asDead(n *v1alpha1.NodeParameters) {
	n.Remove = &v1alpha1.RemoveParameters{Manner: v1alpha1.RemoveDead, Reason: "mainboard"}
}

// asksToLeave makes a machine ask to be removed.
func (f *fleet) asksToLeave(ctx context.Context, name string) {
	GinkgoHelper()
	change(ctx, f.machine(ctx, name), func(m *v1alpha1.TalosMachine) { m.Spec.Removal = &v1alpha1.RemovalSpec{Reason: "sold"} })
}

// fallsSilent makes a machine that nobody hears of any more, as the hub knows. If it led etcd, cp2 does now.
func (f *fleet) fallsSilent(ctx context.Context, name string) {
	GinkgoHelper()
	f.talos.Silence(f.addresses[name], true)
	f.kube.Change(name, func(n *kube.Node) { n.Ready = false })
	for other, address := range f.addresses {
		if other != name {
			f.talos.Change(address, func(_ *talos.Machine, e *talos.Etcd) {
				if e != nil && name == "cp1" {
					e.Leader = 2
				}
			})
		}
	}
	machine := f.machine(ctx, name)
	machine.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.MachineReadyCondition, Status: metav1.ConditionUnknown, Reason: v1alpha1.MachineNotReachableReason, LastTransitionTime: metav1.Now(),
	}}
	Expect(admin.Status().Update(ctx, machine)).To(Succeed())
}

// isRemoved says whether neither a TalosMachine nor a Node stands for a machine.
func (f *fleet) isRemoved(name string) bool {
	err := admin.Get(context.Background(), client.ObjectKey{Namespace: f.namespace, Name: "c-" + name}, &v1alpha1.TalosMachine{})
	reader, readerErr := f.kube.Reader(context.Background(), target.Target{})
	Expect(readerErr).NotTo(HaveOccurred())
	node, nodeErr := reader.Node(context.Background(), name)
	Expect(nodeErr).NotTo(HaveOccurred())
	return apierrors.IsNotFound(err) && node == nil
}

// removeVictim is a removal, killed at some of its steps: those of the machine, or those of what stands for it.
func removeVictim(unit string, dead bool, steps ...v1alpha1.OperationStep) victim {
	var manner func(*v1alpha1.NodeParameters)
	if dead {
		manner = asDead
	}
	return victim{
		steps: stepsOf(v1alpha1.RemoveAction, steps...), spec: on("c-cp1", v1alpha1.RemoveAction, manner), unit: unit,
		prepare: func(ctx context.Context, f *fleet, step kind.Step) {
			f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.StayingOffStep: time.Second}
			f.asksToLeave(ctx, "cp1")
			if dead {
				f.fallsSilent(ctx, "cp1")
			}
			if step.Name == v1alpha1.EvacuatingStep {
				f.holdsReplicas("cp1", 2)
			}
			if step.Name == v1alpha1.StayingOffStep && !dead { // Where nobody sees it in maintenance mode.
				f.talos.Unseen(f.addresses["cp1"])
			}
		},
		expect: func(f *fleet, _ kind.Step, _ bool) {
			Expect(f.isRemoved("cp1")).To(BeTrue())
			Expect(f.voters(context.Background(), "cp2")).To(Equal(2))
			calls := slices.Compact(f.calls("LeaveEtcd", "RemoveEtcdMember", "Reset"))
			if dead {
				Expect(calls).To(Equal([]string{"RemoveEtcdMember cp2"}))
				return
			}
			Expect(calls).To(Equal([]string{"LeaveEtcd cp1", "Reset cp1"}))
			Expect(f.calls("Reset")).To(HaveLen(1), "it is wiped once")
		},
	}.with(map[v1alpha1.OperationStep]findCall{
		v1alpha1.ForfeitingStep: toTalos("ForfeitLeadership"), v1alpha1.EvacuatingStep: toKube("Annotate"), v1alpha1.DrainingStep: toKube("Drain"),
		v1alpha1.LeavingStep: toTalos("LeaveEtcd"), v1alpha1.ResettingStep: toTalos("Reset"), v1alpha1.DeletingNodeStep: toKube("DeleteNode"),
		v1alpha1.ForgettingStep: func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Forget", "c-cp1" },
		v1alpha1.RemovingMemberStep: func(f *fleet) (*script.Script, string, string) { // From beside it.
			return f.talos.Script, "RemoveEtcdMember", f.addresses["cp2"]
		},
	})
}

var (
	_ = addVictim("kind node, action Remove", removeVictim("c-cp1", false, "Forfeiting", "Evacuating", "Draining", "Leaving", "Resetting", "StayingOff"))
	_ = addVictim("kind node, action Remove, what is left", removeVictim(nodeplan.ForgetStage, false, "DeletingNode", "Forgetting"))
	_ = addVictim("kind node, action Remove, dead", removeVictim("c-cp1", true, "StayingOff", "RemovingMember"))
	_ = addVictim("kind node, action Remove, what is left of the dead", removeVictim(nodeplan.ForgetStage, true, "DeletingNode", "Forgetting"))
)

var _ = Describe("A machine that is removed", func() {
	It("does not leave before it asks to, and then leaves nothing behind that others would wait for", func(ctx SpecContext) {
		f := newFleet(ctx, 4, 1)
		f.startHub()
		op := f.create(ctx, "early", on("c-cp4", v1alpha1.RemoveAction, nil)())
		Eventually(now(ctx, op)).Should(bePaused("Refused", ContainSubstring("does not ask to be removed (spec.removal)")))
		f.asksToLeave(ctx, "cp4")
		Consistently(func() []string { return f.calls() }, 300*time.Millisecond).Should(BeEmpty(), "the request alone does nothing")
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.isRemoved("cp4")).To(BeTrue())
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.CompletedStages).To(Equal([]string{"Remove", "Forget"}))
		Expect(current.Status.Units).To(ContainElement(HaveField("Message", "c-cp4 is removed")))
		Eventually(now(ctx, f.create(ctx, "next", reboot("c-cp2")))).Should(beCompleted(), "three members, and three control planes")
	})

	It("is the second of two: one goes on alone", func(ctx SpecContext) {
		f := newFleet(ctx, 2, 1)
		f.asksToLeave(ctx, "cp2")
		f.startHub()
		Eventually(now(ctx, f.create(ctx, "rm", on("c-cp2", v1alpha1.RemoveAction, nil)()))).Should(beCompleted())
		Expect(f.voters(ctx, "cp1")).To(Equal(1))
		f.asksToLeave(ctx, "cp1")
		Eventually(now(ctx, f.create(ctx, "last", on("c-cp1", v1alpha1.RemoveAction, nil)()))).Should(bePaused("Refused", ContainSubstring("the cluster ends with it")))
	})

	It("stays as it was where somebody pauses before its member has left, and not after that", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.asksToLeave(ctx, "cp2")
		stop := f.kube.HangBefore("Drain", "cp2")
		f.startHub()
		op := f.create(ctx, "rm", on("c-cp2", v1alpha1.RemoveAction, nil)())
		Eventually(stop.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(func() bool { return f.kube.Get("cp2").Unschedulable }).Should(BeFalse())
		Expect(f.calls("LeaveEtcd", "Reset")).To(BeEmpty())
		stop = f.talos.HangBefore("Reset", f.addresses["cp2"])
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(stop.Reached).Should(BeClosed())
		other := f.create(ctx, "other", reboot("c-w1"))
		Eventually(now(ctx, other)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		stop.Release()
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.talos.Wiped(f.addresses["cp2"])).NotTo(BeNil(), "it could not be put back")
		Eventually(now(ctx, other)).Should(beCompleted())
	})

	It("keeps the Node of another machine that has its name by now", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.asksToLeave(ctx, "w2")
		f.fallsSilent(ctx, "w2")
		f.kube.Change("w2", func(n *kube.Node) { n.UUID, n.Ready = "uuid-other", true })
		f.startHub()
		op := f.create(ctx, "rm", on("c-w2", v1alpha1.RemoveAction, asDead)())
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.kube.Get("w2").UUID).To(Equal("uuid-other"))
	})
})

var _ = Describe("A machine that is declared dead", func() {
	It("is refused while it answers, and left alone where it shows a sign of life (B4)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.asksToLeave(ctx, "cp2")
		f.startHub()
		op := f.create(ctx, "alive", on("c-cp2", v1alpha1.RemoveAction, asDead)())
		Eventually(now(ctx, op)).Should(bePaused("Refused", ContainSubstring("it is not dead")))
		Expect(admin.Delete(ctx, op)).To(Succeed())

		f.fallsSilent(ctx, "cp2") // The hub has not heard of it for a while, and it is back when it is looked at.
		f.talos.Silence(f.addresses["cp2"], false)
		op = f.create(ctx, "back", on("c-cp2", v1alpha1.RemoveAction, asDead)())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("it is not dead: it answers at 10.0.0.2")))
		Expect(f.calls()).To(BeEmpty())
		Expect(f.voters(ctx, "cp1")).To(Equal(3))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
	})

	It("is not removed where the others are no majority, and two of five are, one after the other", func(ctx SpecContext) {
		f := newFleet(ctx, 5, 0)
		for _, name := range []string{"cp3", "cp4", "cp5"} {
			f.asksToLeave(ctx, name)
			f.fallsSilent(ctx, name)
		}
		f.startHub()
		spec := on("c-cp5", v1alpha1.RemoveAction, asDead)()
		spec.Overrides = []v1alpha1.GateOverride{{Gate: v1alpha1.ControlPlanesReadyGate, Reason: "they are dead as well"}}
		op := f.create(ctx, "three", spec)
		Eventually(now(ctx, op)).Should(waitingFor("EtcdHealthy", ContainSubstring("2 others are not the 3 that it needs")))
		f.talos.Silence(f.addresses["cp3"], false)
		Eventually(now(ctx, op)).Should(beCompleted())
		spec.Node.Machine = "c-cp4"
		Eventually(now(ctx, f.create(ctx, "two", spec))).Should(beCompleted())
		Expect(f.voters(ctx, "cp1")).To(Equal(3))
		Expect(f.calls()).To(Equal([]string{"RemoveEtcdMember cp1", "RemoveEtcdMember cp1"}))
	})
})
