// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

var _ = Describe("A machine that reboots", func() {
	It("and comes back as another Node stops the operation; other machines stay as they are (C7)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		rename := func(address, name string) {
			f.talos.Change(address, func(m *talos.Machine, _ *talos.Etcd) { m.NodeName = name })
		}
		rebooted := f.talos.Rebooted
		f.talos.Rebooted = func(address string, now talos.Machine) {
			if address != f.addresses["w1"] {
				rebooted(address, now)
				return
			}
			f.kube.Change("w1", func(n *kube.Node) { n.Ready = false })
			f.kube.Set(kube.Node{Name: "talos-x1", UUID: now.UUID, BootID: now.BootID, Ready: true})
			rename(address, "talos-x1")
		}
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("c-w1: NodeRenamed: it was Node w1 and came back as talos-x1")))
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1"}))

		f.kube.Change("w1", func(n *kube.Node) { n.Ready, n.BootID = true, f.talos.Facts(f.addresses["w1"]).BootID })
		rename(f.addresses["w1"], "w1")
		f.talos.Rebooted = rebooted
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted(), "it has its name back")
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1", "Reboot w2"}))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
	})

	It("and never gets there is said to hang, and is not asked again while it does (D9)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.RebootingStep: 400 * time.Millisecond}
		f.talos.Hang(f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		hangs := bePaused("StepFailed", And(
			ContainSubstring(`still up in stage "rebooting", boot ID unchanged`), ContainSubstring("talosctl -n 10.0.1.1 reboot --mode force")))
		Eventually(now(ctx, op)).Should(hangs)
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(HaveField("Status.LastRetry.IsZero()", false))
		Eventually(now(ctx, op)).Should(hangs)
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", true), "it may go down at any time")

		f.talos.PowerCycle(f.addresses["w1"])
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
	})
})

var _ = Describe("A machine that runs Talos before 1.13", func() {
	It("is told once to upgrade, and the end of it is what it runs, not what it answered (A3)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.runs(ctx, "v1.12.4", "v1.13.9")
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.UpgradingStep: 400 * time.Millisecond}
		f.talos.Hang(f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		stuck := bePaused("StepFailed", And(ContainSubstring(`still up in stage "upgrading"`), ContainSubstring("talosctl -n 10.0.1.1 dmesg")))
		Eventually(now(ctx, op)).Should(stuck)
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Machine("c-w1")).To(And(
			HaveField("ResolvedImage", "factory.example/metal-installer/"+schematic+":v1.13.9"), HaveField("NodeName", "w1"), HaveField("PreRebootBootID", "w1-boot-0")))
		f.talos.PowerCycle(f.addresses["w1"])
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls()).To(Equal([]string{"Upgrade cp1", "Upgrade w1"}))
	})

	It("that is refused its image is in use again, and drained before it is told once more", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.runs(ctx, "v1.12.4", "v1.13.9")
		f.talos.FailNext("Upgrade", f.addresses["w1"], errNoSuchImage)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("Upgrading failed: rpc error: code = Unknown desc = error validating installer image")))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(slices.DeleteFunc(f.kube.Calls(), func(call string) bool { return !strings.HasPrefix(call, "Drain w1") })).To(HaveLen(2))
	})

	It("is left as it was by a pause before it is told", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.runs(ctx, "v1.12.4", "v1.13.9")
		f.machineRuns(ctx, "cp1", "v1.13.9")
		stop := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(stop.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(bePaused("OperatorPaused", Not(BeEmpty())))
		stop.Release()
		Eventually(func() bool { return f.kube.Get("w1").Unschedulable }).Should(BeFalse())
		Expect(f.calls("Upgrade")).To(BeEmpty())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Upgrade")).To(Equal([]string{"Upgrade w1"}))
	})
})

var _ = Describe("A gate that is overridden", func() {
	It("lets machines go away, and leaves an Event that says what it would have waited for (C14)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.kube.Change("w2", func(n *kube.Node) { n.Ready = false })
		f.startHub()
		spec := upgrade()
		spec.Overrides = []v1alpha1.GateOverride{{Gate: v1alpha1.WorkersAvailableGate, Reason: "v1.14.1 mends the kubelet"}}
		rebooted := f.talos.Rebooted
		f.talos.Rebooted = func(address string, now talos.Machine) {
			rebooted(address, now)
			f.kube.Change(now.NodeName, func(n *kube.Node) { n.Ready = true })
		}
		op := f.create(ctx, "up", spec)
		Eventually(now(ctx, op)).Should(beCompleted())
		Eventually(f.events(ctx, op)).Should(ContainElement(
			"Warning GateOverridden: gate WorkersAvailable is overridden for machine c-w1: 1 of at most 1 workers are away: c-w2 (not ready)"))
	})
})

var _ = Describe("A cluster without its Kubernetes API", func() {
	It("is not begun with, and a reboot that may bring it back goes on when somebody says so (D15)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.kube.Silence(true)
		f.startHub()
		plain := f.create(ctx, "plain", reboot("c-cp2"))
		Eventually(now(ctx, plain)).Should(haveCondition("Progressing", metav1.ConditionFalse, "TargetReachable", ContainSubstring("cannot be read")))
		Consistently(func() []string { return f.calls("Reboot") }, 300*time.Millisecond).Should(BeEmpty())
		Expect(admin.Delete(ctx, plain)).To(Succeed())
		Eventually(isGone(ctx, plain)).Should(BeTrue())

		spec := reboot("c-cp2")
		spec.Overrides = []v1alpha1.GateOverride{{Gate: "TargetReachable", Reason: "the API server hangs"}}
		blind := f.create(ctx, "blind", spec)
		Eventually(now(ctx, blind)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp2"}))
		Expect(f.kube.Calls()).To(BeEmpty(), "nothing was drained, and no record written")
		Eventually(f.events(ctx, blind)).Should(ContainElement(HavePrefix("Warning GateOverridden: gate TargetReachable is overridden for machine c-cp2")))
	})

	It("is upgraded by nobody, whatever is overridden", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.kube.Silence(true)
		f.startHub()
		spec := upgrade()
		spec.Overrides = []v1alpha1.GateOverride{{Gate: "TargetReachable", Reason: "in a hurry"}}
		op := f.create(ctx, "up", spec)
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "TargetReachable", Not(BeEmpty())))
		Consistently(func() []string { return f.calls() }, 300*time.Millisecond).Should(BeEmpty())
		f.kube.Silence(false)
		Eventually(now(ctx, op)).Should(beCompleted())
	})
})

var _ = Describe("An upgrade of five control planes and three workers", func() {
	It("takes the control planes one by one, the leader last, and two thirds of the workers at a time", func(ctx SpecContext) {
		f := newFleet(ctx, 5, 3)
		var mu sync.Mutex
		var order []string
		rebooted := f.talos.Rebooted
		f.talos.Rebooted = func(address string, now talos.Machine) {
			rebooted(address, now)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, now.NodeName)
		}
		first, second := f.kube.HangBefore("Drain", "w1"), f.kube.HangBefore("Drain", "w2")
		f.startHub()
		spec := upgrade()
		spec.MaxUnavailable = ptr.To(intstr.FromString("67%")) // Of three that is two.
		op := f.create(ctx, "up", spec)
		Eventually(first.Reached, time.Minute).Should(BeClosed())
		Eventually(second.Reached).Should(BeClosed())
		Consistently(func() []string { return f.calls("InstallImage") }, 300*time.Millisecond).ShouldNot(ContainElement("InstallImage w3"))
		first.Release()
		second.Release()
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		mu.Lock()
		defer mu.Unlock()
		Expect(order[:5]).To(Equal([]string{"cp2", "cp3", "cp4", "cp5", "cp1"}))
		Expect(order[5:]).To(ConsistOf("w1", "w2", "w3"))
	})
})
