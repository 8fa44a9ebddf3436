// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

var _ = Describe("An upgrade of Talos", func() {
	It("takes control planes one at a time and the leader last, then workers, each step once", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 2)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(beCompleted())

		Expect(f.calls("PullImage")).To(ConsistOf("PullImage cp1", "PullImage cp2", "PullImage cp3", "PullImage w1", "PullImage w2"))
		Expect(f.calls("InstallImage", "ForfeitLeadership", "Reboot")).To(Equal([]string{
			"InstallImage cp2", "Reboot cp2",
			"InstallImage cp3", "Reboot cp3",
			"InstallImage cp1", "ForfeitLeadership cp1", "Reboot cp1",
			"InstallImage w1", "Reboot w1",
			"InstallImage w2", "Reboot w2",
		}))
		for name, address := range f.addresses {
			Expect(f.talos.Facts(address).Version).To(Equal(newVersion), name)
			Expect(f.kube.Get(name)).To(And(HaveField("Unschedulable", false), HaveField("CordonedBy", "")), name)
		}
		Eventually(now(ctx, op)).Should(And(
			haveCondition("Succeeded", metav1.ConditionTrue, "Succeeded", BeEmpty()),
			haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()),
			haveCondition("Paused", metav1.ConditionFalse, "NotPaused", BeEmpty()),
			haveCondition("TargetSuperseded", metav1.ConditionFalse, "Current", BeEmpty()),
			HaveField("Status.Target.TalosVersion", newVersion),
			HaveField("Annotations", And(HaveKey("ichor.maesh.dev/started-at"), HaveKey("ichor.maesh.dev/completed-at"), HaveKey("ichor.maesh.dev/operation-id"))),
			HaveField("Labels", HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c")),
			HaveField("OwnerReferences", ConsistOf(And(HaveField("Kind", "Cluster"), HaveField("Controller", BeNil())))),
		))
	})

	It("records what each machine went through", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(beCompleted())
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		machine := current.Machine("c-cp1")
		Expect(machine).To(HaveField("Phase", v1alpha1.UnitCompleted))
		Expect(machine.ResolvedImage).To(Equal("factory.example/metal-installer/" + schematic + ":v1.14.1"))
		Expect(machine.PreRebootBootID).To(Equal("cp1-boot-0"))
		var steps []string
		for _, record := range machine.Steps {
			steps = append(steps, string(record.Step))
			Expect(record.CompletionTime.IsZero()).To(BeFalse())
		}
		Expect(steps).To(Equal([]string{"Pulling", "Installing", "Rebooting", "Verifying"}), "the only machine of a cluster is not drained")
	})

	It("takes up to maxUnavailable workers at once, and never more", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 4)
		first, second := f.talos.HangBefore("InstallImage", f.addresses["w1"]), f.talos.HangBefore("InstallImage", f.addresses["w2"])
		third := f.talos.HangBefore("InstallImage", f.addresses["w3"])
		f.startHub()
		spec := upgrade()
		spec.MaxUnavailable = ptr.To(intstr.FromString("50%"))
		op := f.create(ctx, "up", spec)
		Eventually(first.Reached).Should(BeClosed())
		Eventually(second.Reached).Should(BeClosed())
		Consistently(third.Reached).ShouldNot(BeClosed())
		first.Release()
		Eventually(third.Reached).Should(BeClosed(), "a place is free when the first worker is done, not when both are")
		second.Release()
		third.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("counts workers that others have taken away", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.kube.Change("w2", func(n *kube.Node) { n.Unschedulable = true })
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(And(
			HaveField("Status.Phase", v1alpha1.OperationInProgress),
			haveCondition("Progressing", metav1.ConditionFalse, "WorkersAvailable", ContainSubstring("1 of at most 1 workers are away: c-w2")),
		))
		f.kube.Change("w2", func(n *kube.Node) { n.Unschedulable = false })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("pulls first for a machine that was taken in late", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-w1"}}
		change(ctx, machine, func(m *v1alpha1.TalosMachine) { m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": ""} })
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		change(ctx, machine, func(m *v1alpha1.TalosMachine) { m.Annotations = nil })
		install.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls()).To(Equal([]string{"PullImage cp1", "InstallImage cp1", "Reboot cp1", "PullImage w1", "InstallImage w1", "Reboot w1"}))
	})

	It("completes a machine that is held while it is in hand", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		install := f.talos.HangBefore("InstallImage", f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		change(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-w1"}}, func(m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": ""}
		})
		install.Release()
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Status.Held", BeEmpty())))
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Machine("c-w1").Phase).To(Equal(v1alpha1.UnitCompleted))
	})

	It("lets drained workers reboot, whoever else goes away meanwhile", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 3)
		one, two := f.kube.HangBefore("Drain", "w1"), f.kube.HangBefore("Drain", "w2")
		f.startHub()
		spec := upgrade()
		spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
		op := f.create(ctx, "up", spec)
		Eventually(one.Reached).Should(BeClosed())
		Eventually(two.Reached).Should(BeClosed())
		f.kube.Change("w3", func(n *kube.Node) { n.Ready = false })
		one.Release()
		two.Release()
		Eventually(func() []string { return f.calls("Reboot") }).Should(ContainElements("Reboot w1", "Reboot w2")) // w3 may follow: it does not count against itself.
		f.kube.Change("w3", func(n *kube.Node) { n.Ready = true })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("skips held machines, follows the order label and says so", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 3)
		for name, label := range map[string]string{"c-w1": "9", "c-w3": "1"} {
			change(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}, func(m *v1alpha1.TalosMachine) {
				m.Labels["ichor.maesh.dev/upgrade-order"] = label
			})
		}
		change(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-w2"}}, func(m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": "disk swap"}
		})
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(And(beCompleted(), HaveField("Status.Held", ConsistOf("c-w2")),
			haveCondition("Succeeded", metav1.ConditionTrue, "CompletedWithHeldMachines", ContainSubstring("c-w2"))))
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w3", "Reboot w1"}))
	})

	It("waits until etcd can lose the next control plane", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.talos.Change(f.addresses["cp3"], func(_ *talos.Machine, e *talos.Etcd) { e.Alarms = []string{"NOSPACE on member 3"} })
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(And(
			HaveField("Status.Phase", v1alpha1.OperationInProgress),
			haveCondition("Progressing", metav1.ConditionFalse, "EtcdHealthy", ContainSubstring("NOSPACE")),
		))
		Expect(f.calls("InstallImage")).To(BeEmpty())
		f.talos.Change(f.addresses["cp3"], func(_ *talos.Machine, e *talos.Etcd) { e.Alarms = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("waits for a machine that does not answer, and goes on when it does", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.Silence(f.addresses["cp1"], true)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "TargetReachable", ContainSubstring("c-cp1 does not answer: no answer")))
		f.talos.Silence(f.addresses["cp1"], false)
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("lets a machine that does not answer keep no other from pulling", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 12)
		for i := range 11 {
			f.talos.Silence(f.addresses[fmt.Sprintf("w%d", i+1)], true)
		}
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(func() []string { return f.calls("PullImage") }).Should(ConsistOf("PullImage cp1", "PullImage w12"))
		Expect(f.calls("InstallImage")).To(BeEmpty(), "the stage is not over")
		Expect(admin.Delete(ctx, op)).To(Succeed())
	})

	It("waits without a deadline at a gate between the drain and the reboot", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.DrainingStep: time.Second}
		drain := f.kube.HangBefore("Drain", "cp2")
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(drain.Reached).Should(BeClosed())
		f.talos.Change(f.addresses["cp3"], func(_ *talos.Machine, e *talos.Etcd) { e.Alarms = []string{"CORRUPT on member 3"} })
		drain.Release()
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "EtcdHealthy", ContainSubstring("CORRUPT")))
		Consistently(now(ctx, op), 1500*time.Millisecond).Should(HaveField("Status.FailureReason", BeEmpty()))
		Expect(f.calls("Reboot")).To(BeEmpty())
		f.talos.Change(f.addresses["cp3"], func(_ *talos.Machine, e *talos.Etcd) { e.Alarms = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("leaves machines alone that run the target already", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.Change(f.addresses["cp1"], func(m *talos.Machine, _ *talos.Etcd) { m.Version = newVersion })
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls()).To(Equal([]string{"PullImage w1", "InstallImage w1", "Reboot w1"}))
	})
})

var _ = Describe("A failure", func() {
	It("pauses at an installer's exit code, touches no other machine, and goes on from there", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.talos.ExitWith(f.addresses["cp2"], 4)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", And(ContainSubstring("c-cp2"), ContainSubstring("exit code 4"), ContainSubstring("ichor operation resume up"))))
		Expect(f.calls("Reboot")).To(BeEmpty())
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Machine("c-cp2").Outcome).To(And(HaveField("Result", v1alpha1.CallFailed), HaveField("ExitCode", HaveValue(BeEquivalentTo(4)))))
		Expect(current).To(haveCondition("LockHeld", metav1.ConditionTrue, "Held", BeEmpty()))
		steps := current.Machine("c-cp2").Steps
		Expect(steps[len(steps)-1]).To(And(HaveField("Step", v1alpha1.InstallingStep), HaveField("CompletionTime.IsZero()", false)),
			"nobody works on it until somebody retries it")

		f.talos.ExitWith(f.addresses["cp2"], 0)
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Annotations["ichor.maesh.dev/retry"] = "true" })
		Eventually(now(ctx, op)).Should(And(beCompleted(),
			HaveField("Status.FailureReason", BeEmpty()),
			HaveField("Status.LastRetry.IsZero()", false),
			HaveField("Annotations", Not(HaveKey("ichor.maesh.dev/retry"))),
		))
		Expect(f.calls("Reboot")).To(HaveLen(4))
	})

	It("takes a fall-back for what it is, and installs again only when asked", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.FallBack(f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("runs v1.13.6 instead of v1.14.1")))
		Consistently(func() []string { return f.calls("InstallImage") }, 300*time.Millisecond).Should(HaveLen(1))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Annotations["ichor.maesh.dev/retry"] = "true" })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("InstallImage", "Reboot")).To(Equal([]string{"InstallImage cp1", "Reboot cp1", "InstallImage cp1", "Reboot cp1", "InstallImage w1", "Reboot w1"}))
	})

	It("of a worker reverts no control plane, and the operation can be given up (B12)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 2)
		f.talos.ExitWith(f.addresses["w1"], 7)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("c-w1")))
		made := f.calls()
		Consistently(func() []string { return f.calls() }, 300*time.Millisecond).Should(Equal(made))
		for _, name := range []string{"cp1", "cp2", "cp3"} {
			Expect(f.talos.Facts(f.addresses[name]).Version).To(Equal(newVersion), name)
		}
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.calls()).To(Equal(made))
	})

	It("takes its own cordon off when the drain fails", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.kube.FailNext("Drain", "w1", fmt.Errorf("draining: %w", errForbidden))
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("Draining failed")))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
		Expect(f.calls("Reboot")).To(BeEmpty())
	})

	It("gives up a drain at its deadline, and says why", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.DrainingStep: 500 * time.Millisecond}
		for range 10 {
			f.kube.FailNext("Drain", "w1", errors.New("pods are left: web-0"))
		}
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", And(ContainSubstring("not done within 500ms"), ContainSubstring("web-0"))))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
		cordons := 0
		for _, call := range f.kube.Calls() {
			if call == "Uncordon w1" {
				cordons++
			}
		}
		Expect(cordons).To(Equal(1), "the cordon stays between attempts")
	})

	It("drains and reboots once more after a reboot was refused, however often it is paused on the way", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.talos.FailNext("Reboot", f.addresses["w1"], status.Error(codes.PermissionDenied, "not authorized"))
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("not authorized")))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))

		drain := f.kube.HangBefore("Drain", "w1")
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Annotations["ichor.maesh.dev/retry"] = "true" })
		Eventually(drain.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(And(bePaused("OperatorPaused", Not(BeEmpty())), haveCondition("Progressing", metav1.ConditionFalse, "Paused", BeEmpty())))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
	})

	It("is not retried outside of a window, and gives the lock back until then", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.ExitWith(f.addresses["w1"], 7)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("exit code 7")))
		f.talos.ExitWith(f.addresses["w1"], 0)
		cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
		closed := v1alpha1.MaintenanceWindow{Schedule: "0 0 29 2 *", DurationSeconds: 60}
		change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{closed} })
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Annotations["ichor.maesh.dev/retry"] = "true" })
		Eventually(now(ctx, op)).Should(And(bePaused("WaitingForWindow", Not(BeEmpty())), haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty())))
		Consistently(func() []string { return f.calls("Reboot") }, 300*time.Millisecond).Should(Equal([]string{"Reboot cp1"}))
		change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Spec.MaintenanceWindows = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("that is retried and paused at once lets other machines in hand complete", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.talos.ExitWith(f.addresses["w1"], 7)
		install := f.talos.HangBefore("InstallImage", f.addresses["w2"])
		f.startHub()
		spec := upgrade()
		spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
		op := f.create(ctx, "up", spec)
		Eventually(install.Reached).Should(BeClosed())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("c-w1")))
		change(ctx, op, func(o *v1alpha1.TalosOperation) {
			o.Spec.Paused, o.Annotations["ichor.maesh.dev/retry"] = ptr.To(true), "true"
		})
		install.Release()
		Eventually(now(ctx, op)).Should(And(bePaused("OperatorPaused", Not(BeEmpty())),
			phaseOf("c-w2", v1alpha1.UnitCompleted)))
		f.talos.ExitWith(f.addresses["w1"], 0)
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("gives the lock back for a pause of the Cluster", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.talos.FallBack(f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", Not(BeEmpty())))
		capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
		change(ctx, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(And(bePaused("ClusterPaused", Not(BeEmpty())), haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty())))
		change(ctx, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", Not(BeEmpty())))
	})

	It("leaves no cordon behind when it is given up", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.talos.FallBack(f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("c-w1")))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", true), "after the reboot a failed step leaves the machine as it is")
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(func() kube.Node { return f.kube.Get("w1") }).Should(And(HaveField("Unschedulable", false), HaveField("CordonedBy", "")))
		again := f.create(ctx, "again", upgrade())
		Eventually(now(ctx, again)).Should(beCompleted())
	})

	It("of the management API for a moment fails no step, and reboots nothing undrained", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		drain := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(drain.Reached).Should(BeClosed())
		f.lease.fail(3)
		drain.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
		calls := f.kube.Calls()
		Expect(calls[len(calls)-1]).To(Equal("Uncordon w1"))
		Expect(slices.Index(calls, "Uncordon w1")).To(Equal(len(calls)-1), "the cordon stayed on until the machine was back: %v", calls)
	})

	It("does nothing to a machine with another identity", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.Change(f.addresses["w1"], func(m *talos.Machine, _ *talos.Etcd) { m.UUID = "uuid-of-another" })
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("uuid-of-another")))
		Expect(admin.Delete(ctx, op)).To(Succeed())

		f.talos.Change(f.addresses["w1"], func(m *talos.Machine, _ *talos.Etcd) { m.Version = newVersion })
		other := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, other)).Should(bePaused("StepFailed", ContainSubstring("uuid-of-another")), "whatever it runs")
		Expect(f.calls("Reboot", "InstallImage")).To(BeEmpty())
	})

	It("says what a long call waits for while it goes on", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		for range 100 {
			f.kube.FailNext("Drain", "w1", errors.New("the disruption budget keeps web-0"))
		}
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(now(ctx, op)).Should(WithTransform(func(o *v1alpha1.TalosOperation) string {
			if unit := o.Machine("c-w1"); unit != nil {
				return unit.Message
			}
			return ""
		}, ContainSubstring("the disruption budget keeps web-0")))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(func() bool { return admin.Get(ctx, client.ObjectKeyFromObject(op), op) != nil }).Should(BeTrue())
	})

	It("ignores other values of the retry annotation, and removes a request without a failure", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.talos.ExitWith(f.addresses["cp1"], 1)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", Not(BeEmpty())))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Annotations["ichor.maesh.dev/retry"] = "yes" })
		Consistently(now(ctx, op), 300*time.Millisecond).Should(And(bePaused("StepFailed", Not(BeEmpty())), HaveField("Annotations", HaveKeyWithValue("ichor.maesh.dev/retry", "yes"))))

		other := f.create(ctx, "waits", upgrade())
		change(ctx, other, func(o *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/retry", "true")
		})
		Eventually(now(ctx, other)).Should(HaveField("Annotations", Not(HaveKey("ichor.maesh.dev/retry"))))
	})
})

var _ = Describe("A pause", func() {
	It("takes a machine back to where it was before its reboot, keeps the lock, and goes on when lifted", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		drain := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(drain.Reached).Should(BeClosed())
		Expect(f.kube.Get("w1")).To(HaveField("CordonedBy", f.namespace+"/re"))

		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(And(
			bePaused("OperatorPaused", ContainSubstring("ichor operation resume re")),
			haveCondition("LockHeld", metav1.ConditionTrue, "Held", BeEmpty()),
			haveCondition("Progressing", metav1.ConditionFalse, "Paused", BeEmpty()),
		))
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
		Expect(f.calls("Reboot")).To(BeEmpty())

		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
	})

	It("lets a machine complete whose new system is installed, and begins with no other", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		install := f.talos.HangBefore("InstallImage", f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionTrue, "Settling", ContainSubstring("c-w1: Installing")))
		install.Release()
		Eventually(now(ctx, op)).Should(And(
			bePaused("OperatorPaused", Not(BeEmpty())),
			haveCondition("Progressing", metav1.ConditionFalse, "Paused", BeEmpty()),
			phaseOf("c-w1", v1alpha1.UnitCompleted),
		))
		Expect(f.calls("InstallImage")).NotTo(ContainElement("InstallImage w2"))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(false) })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("that is lifted at once is no failure", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		drain := f.kube.HangBefore("Drain", "w1")
		undo := f.kube.HangBefore("Uncordon", "w1")
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(drain.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(undo.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(HaveField("Status.Phase", v1alpha1.OperationInProgress))
		undo.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
	})

	It("outlasts an approval: a machine that lost it is not begun with", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		drain := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(drain.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(And(bePaused("OperatorPaused", Not(BeEmpty())), haveCondition("Progressing", metav1.ConditionFalse, "Paused", BeEmpty())))
		machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-w1"}}
		change(ctx, machine, func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending })
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "MachineKnown", ContainSubstring("c-w1 is not approved")))
		change(ctx, machine, func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.Approved })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("says so when the machine is gone afterwards", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		drain := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(drain.Reached).Should(BeClosed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(And(bePaused("OperatorPaused", Not(BeEmpty())), haveCondition("Progressing", metav1.ConditionFalse, "Paused", BeEmpty())))
		Expect(admin.Delete(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-w1"}})).To(Succeed())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = nil })
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring(`TalosMachine "c-w1" is gone`)))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(func() bool { return admin.Get(ctx, client.ObjectKeyFromObject(op), op) != nil }).Should(BeTrue())
	})

	It("outside of a maintenance window finishes the machine in hand and gives the lock back", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
		closed := v1alpha1.MaintenanceWindow{Schedule: "0 0 29 2 *", DurationSeconds: 60}
		change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{closed} })
		install.Release()
		Eventually(now(ctx, op)).Should(And(
			bePaused("WaitingForWindow", ContainSubstring("opens at 2028-02-29T00:00:00Z")), haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty()),
		))
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1"}))
		change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Spec.MaintenanceWindows = nil })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("of the Cluster settles and gives the lock back", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
		change(ctx, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		install.Release()
		Eventually(now(ctx, op)).Should(And(bePaused("ClusterPaused", Not(BeEmpty())), haveCondition("LockHeld", metav1.ConditionFalse, "Released", BeEmpty())))
		change(ctx, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
		Eventually(now(ctx, op)).Should(beCompleted())
	})
})

var _ = Describe("The lock", func() {
	It("keeps a second operation waiting, names the holder, and lets it go within a second", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		first := f.create(ctx, "first", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		second := f.create(ctx, "second", reboot("c-w1"))
		Eventually(now(ctx, second)).Should(bePaused("ClusterLockHeld", ContainSubstring(fmt.Sprintf("TalosOperation %q", f.namespace+"/first"))))
		install.Release()
		Eventually(now(ctx, second)).Should(beCompleted())
		one, err := now(ctx, first)()
		Expect(err).NotTo(HaveOccurred())
		two, err := now(ctx, second)()
		Expect(err).NotTo(HaveOccurred())
		Expect(two.Status.StartTime.Time).To(BeTemporally(">=", one.Status.CompletionTime.Time))
		Expect(two.Status.StartTime.Sub(one.Status.CompletionTime.Time)).To(BeNumerically("<=", time.Second))
	})

	It("goes to those that wait in the order in which they were made", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 3)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		var last *v1alpha1.TalosOperation
		for _, machine := range []string{"w2", "w1", "w3"} {
			last = f.create(ctx, "re-"+strings.NewReplacer("w2", "a", "w1", "b", "w3", "c").Replace(machine), reboot("c-"+machine))
			Eventually(now(ctx, last)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		}
		install.Release()
		Eventually(now(ctx, last)).Should(beCompleted())
		rebooted := f.calls("Reboot")
		Expect(rebooted[len(rebooted)-3:]).To(Equal([]string{"Reboot w2", "Reboot w1", "Reboot w3"}))
	})

	It("fences a hub that another one has replaced", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangAfter("InstallImage", f.addresses["cp1"])
		fenced := f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-ichor-lock"}}
		change(ctx, lease, func(l *coordinationv1.Lease) { l.Annotations["ichor.maesh.dev/lock-epoch"] = "another process" })
		install.Release()
		Consistently(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.InstallingStep), "a fenced process writes nothing")
		Expect(f.calls("Reboot")).To(BeEmpty())
		fenced.kill()

		f.startHub()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1"}))
	})

	It("is taken again when its Lease was deleted, and nothing fails", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		Expect(admin.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-ichor-lock"}})).To(Succeed())
		install.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1"}))
	})

	It("stays with the operation when its annotations are lost", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		install := f.talos.HangBefore("InstallImage", f.addresses["w1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		second := f.create(ctx, "second", reboot("c-w2"))
		Eventually(now(ctx, second)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Annotations = nil })
		Eventually(now(ctx, op)).Should(HaveField("Annotations", HaveKey("ichor.maesh.dev/operation-id")))
		install.Release()
		Eventually(now(ctx, second)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1", "Reboot w1", "Reboot w2", "Reboot w2"}))
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("is given back when the operation is deleted during the reboot, once the machine is back", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		rebooted := f.talos.Rebooted
		f.talos.Rebooted = func(address string, now talos.Machine) {
			rebooted(address, now)
			f.talos.Silence(address, true)
		}
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(func() []string { return f.calls("Reboot") }).Should(HaveLen(1))
		Eventually(now(ctx, op)).Should(stepOf("c-w1", v1alpha1.RebootingStep))
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionTrue, "Settling", ContainSubstring("c-w1: Rebooting")))
		f.talos.Silence(f.addresses["w1"], false)
		Eventually(func() bool { return admin.Get(ctx, client.ObjectKeyFromObject(op), op) != nil }).Should(BeTrue())
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
		lease := &coordinationv1.Lease{}
		Consistently(func() (*string, error) {
			err := admin.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "c-ichor-lock"}, lease)
			return lease.Spec.HolderIdentity, err
		}, 500*time.Millisecond).Should(BeNil(), "nothing takes the lock back for an operation that is gone")
	})

	It("is given back when the operation is deleted in the middle, with the cordon", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		drain := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "re", reboot("c-w1"))
		Eventually(drain.Reached).Should(BeClosed())
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Eventually(func() error { return client.IgnoreNotFound(admin.Get(ctx, client.ObjectKeyFromObject(op), op)) }).Should(Succeed())
		Eventually(func() bool { return admin.Get(ctx, client.ObjectKeyFromObject(op), op) != nil }).Should(BeTrue())
		Expect(f.kube.Get("w1")).To(HaveField("Unschedulable", false))
		Expect(f.calls("Reboot")).To(BeEmpty())
		next := f.create(ctx, "next", reboot("c-w2"))
		Eventually(now(ctx, next)).Should(beCompleted())
	})
})

var _ = Describe("An operation that must not start", func() {
	It("is refused with the gate and what to do", func(ctx SpecContext) {
		f := newFleet(ctx, 2, 0)
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(And(
			bePaused("Refused", And(ContainSubstring("Quorum: two control planes"), ContainSubstring("ichor operation resume up"))),
			haveCondition("LockHeld", metav1.ConditionFalse, "NotHeld", BeEmpty()),
			haveCondition("Succeeded", metav1.ConditionFalse, "Failed", Not(BeEmpty())),
		))
		Expect(f.calls()).To(BeEmpty())
	})

	It("is judged anew by a retry", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
		change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = "v1.13.0" })
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(bePaused("Refused", ContainSubstring("v1.13.0 is older than the running v1.13.6")))
		change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = newVersion })
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Annotations["ichor.maesh.dev/retry"] = "true" })
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("says that the hub does not know its kind, or that there is no target", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		delete(f.executors, v1alpha1.IchorKind)
		f.startHub()
		unknown := f.create(ctx, "ichor", v1alpha1.TalosOperationSpec{Kind: v1alpha1.IchorKind})
		Eventually(now(ctx, unknown)).Should(bePaused("NoExecutor", ContainSubstring(`"ichor"`)))

		homeless := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "homeless"}}
		homeless.Spec = v1alpha1.TalosOperationSpec{Kind: v1alpha1.TalosKind, ClusterName: "nowhere"}
		Expect(admin.Create(ctx, homeless)).To(Succeed())
		Eventually(now(ctx, homeless)).Should(bePaused("TargetMissing", ContainSubstring("ichor cluster import nowhere")))
		Expect(admin.Delete(ctx, homeless)).To(Succeed())
		Eventually(func() bool { return admin.Get(ctx, client.ObjectKeyFromObject(homeless), homeless) != nil }).Should(BeTrue())
	})

	It("waits while the machines of its target are not known: none is not all", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
		change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Annotations = nil })
		Expect(admin.DeleteAllOf(ctx, &v1alpha1.TalosMachine{}, client.InNamespace(f.namespace))).To(Succeed())
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(now(ctx, op)).Should(And(
			HaveField("Status.Phase", v1alpha1.OperationPending),
			HaveField("Status.Conditions", HaveLen(5)), // Every condition, from the first visit.
			haveCondition("Progressing", metav1.ConditionFalse, "MachinesDiscovered", Not(BeEmpty())),
		))
		change(ctx, cluster, func(c *v1alpha1.TalosCluster) {
			c.Annotations = map[string]string{v1alpha1.MembersApprovedAtAnnotation: "2026-01-01T00:00:00Z"}
		})
		Eventually(now(ctx, op)).Should(bePaused("Refused", ContainSubstring("cluster c has no approved machine")))
	})

	It("is refused when the target is not what its creator saw", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.startHub()
		spec := upgrade()
		spec.ExpectedTarget = &v1alpha1.OperationTarget{TalosVersion: "v1.14.0"}
		Eventually(now(ctx, f.create(ctx, "up", spec))).Should(bePaused("Refused", ContainSubstring("expects Talos v1.14.0")))
	})

	It("does not begin again after its status was lost", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		op := f.create(ctx, "up", upgrade())
		change(ctx, op, func(o *v1alpha1.TalosOperation) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, "ichor.maesh.dev/started-at", "2026-01-01T00:00:00Z")
		})
		f.startHub()
		Eventually(now(ctx, op)).Should(bePaused("StatusLost", Not(BeEmpty())))
		Expect(f.calls()).To(BeEmpty())
	})
})

var _ = Describe("The record of an operation", func() {
	It("keeps the target it started with, and says when the spec asks for another", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		install := f.talos.HangBefore("InstallImage", f.addresses["cp1"])
		f.startHub()
		op := f.create(ctx, "up", upgrade())
		Eventually(install.Reached).Should(BeClosed())
		change(ctx, &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}, func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = "v1.14.0" })
		Eventually(now(ctx, op)).Should(haveCondition("TargetSuperseded", metav1.ConditionTrue, "Superseded", ContainSubstring("asks for Talos v1.14.0 by now")))
		install.Release()
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.talos.Facts(f.addresses["w1"]).Version).To(Equal(newVersion))
	})

	It("is deleted when its time is over", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.startHub()
		spec := reboot("c-w1")
		spec.TTLSecondsAfterFinished = ptr.To(int32(0))
		op := f.create(ctx, "re", spec)
		Eventually(func() bool { return admin.Get(ctx, client.ObjectKeyFromObject(op), op) != nil }).Should(BeTrue())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
	})
})
