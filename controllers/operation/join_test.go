// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// fingerprint is that of the certificate of machines in maintenance mode.
var fingerprint = strings.Repeat("A", 43) + "="

// arrivals make machines that are given a machine config become machines of the cluster, and record what was wrong with etcd when one was.
type arrivals struct {
	mu    sync.Mutex
	wrong []string
}

// configured gives every machine its config, and lets others join.
func (f *fleet) configured() *arrivals {
	for name, address := range f.addresses {
		config := f.configOf(name)
		f.talos.Configure(address, talos.Config{Active: config, Persistent: config})
	}
	j := &arrivals{}
	f.talos.Provisioned = func(address string, _ []byte) { f.joined(j, address) }
	return j
}

// joined is what becomes of a machine that was given its config: a Node, and a record of the hub, which another controller makes.
func (f *fleet) joined(j *arrivals, address string) {
	defer GinkgoRecover()
	ctx, facts := context.Background(), f.talos.Facts(address)
	f.kube.Set(kube.Node{Name: facts.NodeName, UUID: facts.UUID, BootID: facts.BootID, Ready: true})
	machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-" + facts.NodeName}}
	reader, err := f.talos.Reader(ctx, target.Target{})
	Expect(err).NotTo(HaveOccurred())
	etcd, err := reader.Etcd(ctx, address)
	isMember := err == nil
	if isMember {
		learners := slices.DeleteFunc(slices.Clone(etcd.Members), func(m talos.EtcdMember) bool { return !m.Learner || m.ID == etcd.MemberID })
		j.mu.Lock()
		if len(learners) > 0 {
			j.wrong = append(j.wrong, fmt.Sprintf("%s joined beside %v", facts.NodeName, learners))
		}
		j.mu.Unlock()
	}
	Eventually(func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
			return err
		}
		before := machine.DeepCopy()
		machine.Status.NodeName, machine.Status.TalosVersion, machine.Status.BootID = facts.NodeName, facts.Version, facts.BootID
		machine.Status.SchematicID, machine.Status.Platform = facts.SchematicID, facts.Platform
		if isMember {
			machine.Status.EtcdMemberID = fmt.Sprintf("%x", etcd.MemberID)
		}
		if err := admin.Status().Patch(ctx, machine, client.MergeFrom(before)); err != nil {
			return err
		}
		before = machine.DeepCopy()
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.JoinedAtAnnotation, "2026-01-01T00:00:00Z")
		return admin.Patch(ctx, machine, client.MergeFrom(before))
	}).Should(Succeed())
}

// problems are what was wrong when machines joined.
func (j *arrivals) problems() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.wrong)
}

// asksToJoin makes a machine wait in maintenance mode that asks to join, and is approved.
func (f *fleet) asksToJoin(ctx context.Context, name string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
	GinkgoHelper()
	address := fmt.Sprintf("10.0.2.%d", len(f.addresses)+1)
	f.addresses[name] = address
	facts := talos.Machine{
		Version: oldVersion, BootID: name + "-boot-0", UUID: "uuid-" + name, NodeName: name, Stage: talos.StageRunning, Ready: true,
		SchematicID: schematic, Platform: "metal",
	}
	f.talos.AddBlank(address, talos.Unconfigured{
		UUID: facts.UUID, Fingerprint: fingerprint, Version: oldVersion, Platform: "metal", Disks: []talos.Disk{{Path: "/dev/vda"}},
	}, facts, role == v1alpha1.ControlPlaneRole)
	f.furnish(address)
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-" + name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterName: "c", Role: role, Address: address, UUID: facts.UUID, Approval: v1alpha1.Approved,
			Join: &v1alpha1.JoinSpec{Fingerprint: fingerprint, Hostname: name},
		},
	}
	Expect(admin.Create(ctx, machine)).To(Succeed())
	return machine
}

// voters are the members that a control plane knows, all of which have to vote.
func (f *fleet) voters(ctx context.Context, name string) int {
	GinkgoHelper()
	reader, err := f.talos.Reader(ctx, target.Target{})
	Expect(err).NotTo(HaveOccurred())
	etcd, err := reader.Etcd(ctx, f.addresses[name])
	Expect(err).NotTo(HaveOccurred())
	for _, member := range etcd.Members {
		Expect(member.Learner).To(BeFalse())
	}
	return len(etcd.Members)
}

func joinOf(name string) v1alpha1.TalosOperationSpec {
	return on("c-"+name, v1alpha1.JoinAction, nil)()
}

// nobodyElse are what a learner is asked for before somebody lets it vote.
const nobodyElse = 1 << 30

var _ = Describe("A machine that joins", func() {
	It("is given a config of its role with its own name, once, and its base is kept", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.configured()
		machine := f.asksToJoin(ctx, "w2", v1alpha1.WorkerRole)
		f.startHub()
		op := f.create(ctx, "join", joinOf("w2"))
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls()).To(Equal([]string{"Provision w2"}))
		given := f.talos.ConfigOf(f.addresses["w2"]).Active
		Expect(string(given)).To(And(ContainSubstring("hostname: w2"), ContainSubstring("type: worker"), ContainSubstring("correcthorse"),
			ContainSubstring("factory.example/metal-installer/"+schematic+":"+oldVersion), ContainSubstring("/dev/vda")))
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Machine("c-w2").ConfigHash).To(Equal(machineconfig.Hash(given)))
		Expect(current.Status.CompletedStages).To(Equal([]string{"JoinWorker"}))
		Expect(f.secretNames(ctx)).To(ContainElement(bases.SecretName(machine.Name)))
	})

	for when, at := range map[string]func(*script.Script, string, string) *script.Stop{
		"before": (*script.Script).HangBefore, "after": (*script.Script).HangAfter,
	} {
		It("goes on by itself when patches change while a hub is dead that was killed "+when+" the call", func(ctx SpecContext) {
			f := newFleet(ctx, 1, 1)
			f.configured()
			f.asksToJoin(ctx, "w2", v1alpha1.WorkerRole)
			op := f.create(ctx, "join", joinOf("w2"))
			f.killedAt(at, f.talos.Script, "Provision", f.addresses["w2"])
			Expect(f.machine(ctx, "w2").HalfJoined()).To(Equal(when == "before"))
			change(ctx, f.cluster(), func(c *v1alpha1.TalosCluster) {
				c.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{{Name: "a", Patch: "machine: {sysctls: {by.now: \"1\"}}"}}}
			})
			f.startHub()
			Eventually(now(ctx, op), patience).Should(beCompleted())
			Expect(f.calls()).To(Equal([]string{"Provision w2"}))
			given := f.talos.ConfigOf(f.addresses["w2"]).Active
			Expect(strings.Contains(string(given), "by.now")).To(Equal(when == "before"))
			if when == "before" {
				current, err := now(ctx, op)()
				Expect(err).NotTo(HaveOccurred())
				Expect(current.Machine("c-w2").ConfigHash).To(Equal(machineconfig.Hash(given)), "it was claimed before it was given")
			}
		})
	}

	It("is the first worker where there was none", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.configured()
		config := generatedConfig(oldVersion, true)
		f.talos.Configure(f.addresses["cp1"], talos.Config{Active: config, Persistent: config})
		f.asksToJoin(ctx, "w1", v1alpha1.WorkerRole)
		f.startHub()
		Eventually(now(ctx, f.create(ctx, "join", joinOf("w1")))).Should(beCompleted())
		Expect(string(f.talos.ConfigOf(f.addresses["w1"]).Active)).To(And(ContainSubstring("type: worker"), Not(ContainSubstring("aggregatorCA"))))
	})

	It("is refused until it is approved, and keeps nobody out meanwhile", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.configured()
		machine := f.asksToJoin(ctx, "w2", v1alpha1.WorkerRole)
		change(ctx, machine, func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending })
		f.startHub()
		op := f.create(ctx, "join", joinOf("w2"))
		Eventually(now(ctx, op)).Should(bePaused("Refused", ContainSubstring("c-w2 is not approved")))
		Eventually(now(ctx, f.create(ctx, "other", reboot("c-w1")))).Should(beCompleted(), "the lock is free")
		change(ctx, machine, func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.Approved })
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
	})

	It("gets no secrets with another certificate, another UUID, another Talos, or a disk to guess", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.configured()
		machine := f.asksToJoin(ctx, "w2", v1alpha1.WorkerRole)
		f.startHub()
		for i, row := range []struct {
			change  func(*talos.Unconfigured)
			message string
		}{
			{func(u *talos.Unconfigured) { u.Fingerprint = strings.Repeat("B", 43) + "=" }, "run ichor machine join again"},
			{func(u *talos.Unconfigured) { u.UUID = "another" }, `has UUID "another", and not "uuid-w2"`},
			{func(u *talos.Unconfigured) { u.Version = "v1.12.4" }, "boot it from an image of v1.13"},
			{func(u *talos.Unconfigured) { u.Disks = append(u.Disks, talos.Disk{Path: "/dev/vdb"}) }, "several disks, and nobody has said which one is for Talos (spec.join.installDisk): /dev/vda, /dev/vdb"},
		} {
			f.talos.ChangeBlank(f.addresses["w2"], row.change)
			op := f.create(ctx, fmt.Sprintf("join-%d", i), joinOf("w2"))
			Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring(row.message)))
			Expect(admin.Delete(ctx, op)).To(Succeed())
			Eventually(isGone(ctx, op)).Should(BeTrue(), "nothing was done to the machine")
			f.talos.ChangeBlank(f.addresses["w2"], func(u *talos.Unconfigured) {
				*u = talos.Unconfigured{UUID: machine.Spec.UUID, Fingerprint: fingerprint, Version: oldVersion, Platform: "metal", Disks: []talos.Disk{{Path: "/dev/vda"}}}
			})
		}
		Expect(f.calls()).To(BeEmpty())
	})

	It("is left alone by a pause before it has its config, and seen through after that", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		f.configured()
		f.asksToJoin(ctx, "cp4", v1alpha1.ControlPlaneRole)
		f.talos.Learn(f.addresses["cp4"], nobodyElse)
		f.startHub()
		op := f.create(ctx, "join", joinOf("cp4"))
		Eventually(now(ctx, op)).Should(stepOf("c-cp4", v1alpha1.VerifyingStep))
		change(ctx, op, func(o *v1alpha1.TalosOperation) { o.Spec.Paused = ptr.To(true) })
		Expect(admin.Delete(ctx, op)).To(Succeed())
		Consistently(now(ctx, op)).ShouldNot(BeNil(), "it goes when the learner votes")
		f.talos.Learn(f.addresses["cp4"], 1)
		Eventually(isGone(ctx, op)).Should(BeTrue())
		Expect(f.voters(ctx, "cp1")).To(Equal(4))
	})
})

var _ = Describe("A machine that joins while authorities are rotated", func() {
	It("waits for the end of that, and is given the new authority alone", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.hasAuthorities(ctx, oldVersion)
		j := &arrivals{}
		f.talos.Provisioned = func(address string, _ []byte) { f.joined(j, address) }
		f.annotations = confirmed(talosCA)
		stop := f.talos.HangAfter("ApplyConfig", f.addresses["cp2"]) // Some machines accept the new one, and others do not know it yet.
		f.startHub()
		op := f.create(ctx, "rotate", rotates(talosCA)())
		Eventually(stop.Reached, patience).Should(BeClosed())
		f.asksToJoin(ctx, "w2", v1alpha1.WorkerRole)
		f.asksToJoin(ctx, "cp4", v1alpha1.ControlPlaneRole)
		worker := f.create(ctx, "worker", joinOf("w2"))
		Eventually(now(ctx, worker)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		stop.Release()
		Eventually(now(ctx, op), patience).Should(beCompleted())
		Eventually(now(ctx, worker)).Should(beCompleted())
		Eventually(now(ctx, f.create(ctx, "cp", joinOf("cp4")))).Should(beCompleted())
		for _, name := range []string{"w2", "cp4"} {
			Expect(f.newAuthority(talosCA, name)).To(Equal(f.newAuthority(talosCA, "cp1")), name)
			signs, accepts, _ := f.position(talosCA, name)
			Expect([]bool{signs, accepts}).To(Equal([]bool{false, false}), name)
		}
	})
})

var _ = Describe("A control plane that joins", func() {
	It("waits until every member votes, and while it learns nobody else changes anything (B14)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		j := f.configured()
		f.asksToJoin(ctx, "cp4", v1alpha1.ControlPlaneRole)
		f.asksToJoin(ctx, "cp5", v1alpha1.ControlPlaneRole)
		f.talos.Learn(f.addresses["cp4"], nobodyElse)
		f.talos.Change(f.addresses["cp2"], func(_ *talos.Machine, e *talos.Etcd) { e.Errors = []string{"slow"} })
		f.startHub()
		first := f.create(ctx, "first", joinOf("cp4"))
		Eventually(now(ctx, first)).Should(waitingFor("EtcdHealthy", ContainSubstring("c-cp2 reports slow")))
		Expect(f.calls()).To(BeEmpty())
		f.talos.Change(f.addresses["cp2"], func(_ *talos.Machine, e *talos.Etcd) { e.Errors = nil })
		Eventually(now(ctx, first)).Should(stepOf("c-cp4", v1alpha1.VerifyingStep))

		second := f.create(ctx, "second", joinOf("cp5"))
		third := f.create(ctx, "third", on("c-cp3", v1alpha1.ResetAction, nil)())
		for _, op := range []*v1alpha1.TalosOperation{second, third} {
			Eventually(now(ctx, op)).Should(bePaused("ClusterLockHeld", Not(BeEmpty())))
		}
		Expect(admin.Delete(ctx, third)).To(Succeed())
		Consistently(func() []string { return f.calls("Provision", "LeaveEtcd") }).Should(Equal([]string{"Provision cp4"}))
		f.talos.Learn(f.addresses["cp4"], 1)
		Eventually(now(ctx, first)).Should(beCompleted())
		Eventually(now(ctx, second)).Should(beCompleted(), "an even number of control planes does not hold it")
		Expect(f.voters(ctx, "cp1")).To(Equal(5))
		Expect(j.problems()).To(BeEmpty())
		Expect(f.calls("BootstrapEtcd")).To(BeEmpty())
	})

	It("that never comes to vote keeps everybody out, until it does after a retry", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.configured()
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.VerifyingStep: time.Second}
		f.asksToJoin(ctx, "cp4", v1alpha1.ControlPlaneRole)
		f.talos.Learn(f.addresses["cp4"], nobodyElse)
		f.startHub()
		op := f.create(ctx, "join", joinOf("cp4"))
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("is a learner")))
		other := f.create(ctx, "other", reboot("c-w1"))
		Eventually(now(ctx, other)).Should(bePaused("ClusterLockHeld", ContainSubstring("join")))
		f.talos.Learn(f.addresses["cp4"], 1)
		retry(ctx, op)
		Eventually(now(ctx, op)).Should(beCompleted())
		Eventually(now(ctx, other)).Should(beCompleted())
	})
})

var _ = Describe("A cluster of one control plane", func() {
	It("grows to five and shrinks to three, one member at a time, with a hub that is killed at every step", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		j := f.configured()
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.StayingOffStep: time.Second}
		for i := 2; i <= 5; i++ {
			f.killedWhileJoining(ctx, fmt.Sprintf("cp%d", i))
			Expect(f.voters(ctx, "cp1")).To(Equal(i))
		}
		for i := 5; i > 3; i-- {
			f.killedWhileLeaving(ctx, fmt.Sprintf("cp%d", i))
			Expect(f.voters(ctx, "cp1")).To(Equal(i - 1))
		}
		Expect(j.problems()).To(BeEmpty())
		Expect(f.calls("Provision", "LeaveEtcd", "Reset")).To(Equal([]string{
			"Provision cp2", "Provision cp3", "Provision cp4", "Provision cp5", "LeaveEtcd cp5", "Reset cp5", "LeaveEtcd cp4", "Reset cp4",
		}))
	})
})

// killedWhileJoining has a control plane join. The hub is killed before and after each call, and while nothing is called.
func (f *fleet) killedWhileJoining(ctx context.Context, name string) {
	GinkgoHelper()
	f.asksToJoin(ctx, name, v1alpha1.ControlPlaneRole)
	f.talos.Learn(f.addresses[name], nobodyElse)
	op := f.create(ctx, "join-"+name, joinOf(name))
	f.killedAt((*script.Script).HangBefore, f.talos.Script, "Provision", f.addresses[name])
	f.killedAt((*script.Script).HangAfter, f.talos.Script, "Provision", f.addresses[name])
	hub := f.startHub()
	Eventually(now(ctx, op), patience).Should(stepOf("c-"+name, v1alpha1.VerifyingStep))
	hub.kill()
	hub = f.startHub()
	Consistently(now(ctx, op)).Should(stepOf("c-"+name, v1alpha1.VerifyingStep))
	f.talos.Learn(f.addresses[name], 1)
	Eventually(now(ctx, op), patience).Should(beCompleted())
	hub.kill()
}

// killedWhileLeaving has a control plane removed, killed in the same way.
func (f *fleet) killedWhileLeaving(ctx context.Context, name string) {
	GinkgoHelper()
	address := f.addresses[name]
	f.asksToLeave(ctx, name)
	op := f.create(ctx, "leave-"+name, on("c-"+name, v1alpha1.RemoveAction, nil)())
	for _, at := range []func(*script.Script, string, string) *script.Stop{(*script.Script).HangBefore, (*script.Script).HangAfter} {
		f.killedAt(at, f.kube.Script, "Drain", name)
	}
	for _, call := range []string{"LeaveEtcd", "Reset"} {
		f.killedAt((*script.Script).HangBefore, f.talos.Script, call, address)
		f.killedAt((*script.Script).HangAfter, f.talos.Script, call, address)
	}
	for _, call := range [][2]string{{"DeleteNode", name}, {"Forget", "c-" + name}} {
		f.killedAt((*script.Script).HangBefore, f.kube.Script, call[0], call[1])
		f.killedAt((*script.Script).HangAfter, f.kube.Script, call[0], call[1])
	}
	hub := f.startHub()
	Eventually(now(ctx, op), patience).Should(beCompleted())
	hub.kill()
	Expect(f.isRemoved(name)).To(BeTrue())
}

// killedAt starts a hub and kills it at a call.
func (f *fleet) killedAt(hang func(*script.Script, string, string) *script.Stop, s *script.Script, call, subject string) {
	GinkgoHelper()
	stop := hang(s, call, subject)
	hub := f.startHub()
	Eventually(stop.Reached, patience).Should(BeClosed(), "%s %s", call, subject)
	hub.kill()
}

// joinVictim is a machine that joins, killed at its steps.
func joinVictim(name string, role v1alpha1.MachineRole) victim {
	return victim{
		steps: stepsOf(v1alpha1.JoinAction, v1alpha1.ProvisioningStep, v1alpha1.JoiningStep, v1alpha1.VerifyingStep),
		spec:  on("c-"+name, v1alpha1.JoinAction, nil), unit: "c-" + name,
		prepare: func(ctx context.Context, f *fleet, _ kind.Step) {
			f.configured()
			f.asksToJoin(ctx, name, role)
			if role == v1alpha1.ControlPlaneRole {
				f.talos.Learn(f.addresses[name], 3)
			}
		},
		expect: func(f *fleet, _ kind.Step, _ bool) {
			Expect(f.calls()).To(Equal([]string{"Provision " + name}))
		},
	}.with(map[v1alpha1.OperationStep]findCall{
		v1alpha1.ProvisioningStep: func(f *fleet) (*script.Script, string, string) { return f.talos.Script, "Provision", f.addresses[name] },
	})
}

var (
	_ = addVictim("kind node, action Join of a worker", joinVictim("w2", v1alpha1.WorkerRole))
	_ = addVictim("kind node, action Join of a control plane", joinVictim("cp4", v1alpha1.ControlPlaneRole))
)
