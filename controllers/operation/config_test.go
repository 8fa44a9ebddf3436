// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/talos"
)

// Patches over the configs of machines.
const (
	livePatch   = "machine:\n  sysctls: {a: b}\n"
	rebootPatch = "machine:\n  env: {A: hunter2hunter2}\n"
)

// patchFor is a patch that takes a machine through a step.
func patchFor(step kind.Step) string {
	if step.Name == v1alpha1.ApplyingStep {
		return livePatch
	}
	return rebootPatch
}

func rollout(machines ...string) v1alpha1.TalosOperationSpec {
	spec := v1alpha1.TalosOperationSpec{Kind: v1alpha1.ConfigKind}
	if len(machines) > 0 {
		spec.Config = &v1alpha1.ConfigParameters{Machines: machines}
	}
	return spec
}

// configOf is what a machine's config was from the beginning.
func (f *fleet) configOf(name string) []byte {
	role := "worker"
	if strings.HasPrefix(name, "cp") {
		role = "controlplane"
	}
	return fmt.Appendf(nil, "version: v1alpha1\nmachine:\n  type: %s\n  token: correcthorse\ncluster:\n  controlPlane:\n    endpoint: https://10.0.0.1:6443\n", role)
}

// asksFor makes the cluster ask for a patch, with machines whose bases are stored and whose status says what that takes.
func (f *fleet) asksFor(ctx context.Context, patch string) {
	GinkgoHelper()
	cluster := f.cluster()
	change(ctx, cluster, func(c *v1alpha1.TalosCluster) {
		c.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{{Name: "a", Patch: patch}}}
	})
	store := &bases.Store{Client: admin, Live: admin}
	for name, address := range f.addresses {
		config := f.configOf(name)
		f.talos.Configure(address, talos.Config{Active: config, Persistent: config})
		machine := f.machine(ctx, name)
		Expect(store.Keep(ctx, machine, config)).To(Succeed())
		f.note(ctx, name)
	}
}

func (f *fleet) machine(ctx context.Context, name string) *v1alpha1.TalosMachine {
	GinkgoHelper()
	machine := &v1alpha1.TalosMachine{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "c-" + name}, machine)).To(Succeed())
	return machine
}

// note takes note in the status of a machine of how its config stands, as the controller of clusters does.
func (f *fleet) note(ctx context.Context, name string) {
	GinkgoHelper()
	cluster, machine := f.cluster(), f.machine(ctx, name)
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	own := f.talos.ConfigOf(f.addresses[name])
	compared, err := (&bases.Comparer{Store: &bases.Store{Client: admin, Live: admin}}).Compare(ctx, cluster, machine, own, oldVersion)
	Expect(err).NotTo(HaveOccurred())
	machine.Status.Config = &v1alpha1.MachineConfigStatus{
		Effect: compared.Effect, SpecHash: cluster.MachineConfigHash(), Pending: compared.Pending, Trouble: compared.Trouble, Diff: compared.Diff,
	}
	Expect(admin.Status().Update(ctx, machine)).To(Succeed())
}

// notes takes note of all machines again and again, until the test is over.
func (f *fleet) notes(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	stop, done := make(chan struct{}), make(chan struct{})
	DeferCleanup(func() { close(stop); <-done })
	go func() {
		defer GinkgoRecover()
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			for name := range f.addresses {
				f.note(ctx, name)
			}
		}
	}()
}

var _ = Describe("A roll-out of machine configs", func() {
	It("does one worker first, then control planes one at a time, and drains what reboots (B11)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 2)
		f.asksFor(ctx, rebootPatch)
		f.startHub()
		op := f.create(ctx, "roll", rollout())
		Eventually(now(ctx, op)).Should(beCompleted())
		calls := f.calls("CheckConfig", "ApplyConfig", "Reboot")
		Expect(calls[:5]).To(ConsistOf("CheckConfig cp1", "CheckConfig cp2", "CheckConfig cp3", "CheckConfig w1", "CheckConfig w2"))
		Expect(calls[5:]).To(Equal([]string{
			"ApplyConfig w1", "Reboot w1", "ApplyConfig cp2", "Reboot cp2", "ApplyConfig cp3", "Reboot cp3", "ApplyConfig cp1", "Reboot cp1", "ApplyConfig w2", "Reboot w2",
		}))
		for name, address := range f.addresses {
			own := f.talos.ConfigOf(address)
			Expect(string(own.Active)).To(ContainSubstring("A: hunter2hunter2"))
			Expect(own.Active).To(Equal(own.Persistent))
			Expect(f.kube.Get(name).Unschedulable).To(BeFalse())
		}
		Expect(f.events(ctx, op)()).NotTo(ContainElement(ContainSubstring("hunter2")))
		Expect(now(ctx, op)()).To(HaveField("Status.Machines", HaveEach(HaveField("ConfigHash", HaveLen(64)))))
	})

	It("keeps to its canary while the status of machines changes under its hands", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 3)
		f.asksFor(ctx, rebootPatch)
		f.notes(ctx)
		f.startHub()
		op := f.create(ctx, "roll", rollout())
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1", "Reboot cp1", "Reboot w2", "Reboot w3"}))
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.CompletedStages).To(Equal([]string{"Check", "Canary", "Rollout"}))
		Expect(current.Machine("c-w1").CompletedStage).To(Equal("Canary"))
	})

	It("drains nothing for what needs no reboot", func(ctx SpecContext) {
		f := newFleet(ctx, 2, 1)
		f.asksFor(ctx, livePatch)
		f.startHub()
		op := f.create(ctx, "roll", rollout())
		Eventually(now(ctx, op)).Should(beCompleted(), "two control planes do not matter where none goes away")
		Expect(f.calls("ApplyConfig", "Reboot")).To(Equal([]string{"ApplyConfig w1", "ApplyConfig cp2", "ApplyConfig cp1"}))
		Expect(f.kube.Calls()).To(BeEmpty())
	})

	It("changes nothing where one machine refuses its config, and tells no secret of it (C12)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.asksFor(ctx, rebootPatch)
		f.talos.FailNext("CheckConfig", f.addresses["w2"], status.Error(codes.InvalidArgument, "machine.env: hunter2hunter2 is bad"))
		f.startHub()
		op := f.create(ctx, "roll", rollout())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("c-w2: Checking failed: rpc error: code = InvalidArgument desc = machine.env: (secret) is bad")))
		Expect(f.calls("ApplyConfig", "Reboot")).To(BeEmpty())
		Expect(f.events(ctx, op)()).NotTo(ContainElement(ContainSubstring("hunter2")))
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("stops at the one machine that does not come back, and says how to get it back", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.asksFor(ctx, rebootPatch)
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.RebootingStep: 400 * time.Millisecond, v1alpha1.VerifyingStep: 400 * time.Millisecond}
		f.talos.Rebooted = func(address string, _ talos.Machine) { f.talos.Silence(address, true) }
		f.startHub()
		op := f.create(ctx, "roll", rollout())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", And(ContainSubstring("c-w1: "), ContainSubstring("apply another one with talosctl apply-config -n 10.0.1.1"))))
		Consistently(func() []string { return f.calls("ApplyConfig", "Reboot") }).Should(Equal([]string{"ApplyConfig w1", "Reboot w1"}))
	})

	It("waits while somebody tries a config, and never ends that", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.asksFor(ctx, rebootPatch)
		original := f.configOf("w1")
		f.talos.Configure(f.addresses["w1"], talos.Config{Active: append(original, []byte("debug: true\n")...), Persistent: original})
		f.note(ctx, "w1")
		f.startHub()
		op := f.create(ctx, "roll", rollout())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", "False", "MachineConfigPending", ContainSubstring("c-w1: "+machineconfig.PendingWords[:40])))
		Consistently(func() []string { return f.calls() }).Should(BeEmpty())
		f.talos.Configure(f.addresses["w1"], talos.Config{Active: original, Persistent: original})
		f.note(ctx, "w1")
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("takes back what it has staged when it is paused before the reboot, and stages it again", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.asksFor(ctx, rebootPatch)
		stop := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "roll", rollout("c-w1"))
		Eventually(stop.Reached).Should(BeClosed())
		Expect(string(f.talos.ConfigOf(f.addresses["w1"]).Persistent)).To(ContainSubstring("hunter2"))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Eventually(now(ctx, op)).Should(bePaused("OperatorPaused", Not(BeEmpty())))
		stop.Release()
		Eventually(func() string { return string(f.talos.ConfigOf(f.addresses["w1"]).Persistent) }).Should(Equal(string(f.configOf("w1"))))
		Eventually(func() bool { return f.kube.Get("w1").Unschedulable }).Should(BeFalse())
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(false) })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}))
		Expect(slices.Compact(f.calls("ApplyConfig"))).To(Equal([]string{"ApplyConfig w1"}))
	})

	It("brings what it began with, and stops where something else is asked for by now", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.asksFor(ctx, rebootPatch)
		stop := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "roll", rollout())
		Eventually(stop.Reached).Should(BeClosed())
		change(ctx, f.cluster(), func(c *v1alpha1.TalosCluster) { c.Spec.MachineConfig.Patches[0].Patch = livePatch })
		stop.Release()
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("TalosCluster c asks for another machine config by now, which no machine has tried")))
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot w1"}), "what was in hand was seen through")
		Expect(string(f.talos.ConfigOf(f.addresses["w1"]).Active)).To(ContainSubstring("A: hunter2"))
	})

	It("refuses to reboot either of two control planes (B1)", func(ctx SpecContext) {
		f := newFleet(ctx, 2, 1)
		f.asksFor(ctx, rebootPatch)
		f.startHub()
		op := f.create(ctx, "roll", rollout())
		Eventually(now(ctx, op)).Should(bePaused("Refused", ContainSubstring("Quorum: two control planes")))
		Expect(f.calls()).To(BeEmpty())
	})
})
