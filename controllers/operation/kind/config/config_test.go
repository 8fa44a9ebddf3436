// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/providers/target"
)

const (
	address  = "10.0.1.1"
	original = "version: v1alpha1\nmachine:\n  type: worker\n  token: hunter2hunter2\ncluster:\n  controlPlane:\n    endpoint: https://10.0.0.1:6443\n"

	sysctls     = "machine:\n  sysctls: {a: b}\n" // Live.
	environment = "machine:\n  env: {A: b}\n"     // Needs a reboot.
)

// world is a worker whose cluster asks for a patch.
type world struct {
	*Executor

	machines *talosfake.Talos
	nodes    *kubefake.Kube
	scope    kind.Scope
	machine  *v1alpha1.TalosMachine
	cluster  *v1alpha1.TalosCluster
}

func newWorld(t *testing.T, patch string) *world {
	t.Helper()
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	cluster.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{{Name: "a", Patch: patch}}}
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-w-1"},
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: "c1", Role: "Worker", Address: address, UUID: "uuid-1"},
		Status:     v1alpha1.TalosMachineStatus{NodeName: "w-1"},
	}
	c := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(cluster, machine).Build()
	w := &world{machines: talosfake.New(), nodes: kubefake.New(), machine: machine, cluster: cluster}
	w.machines.Add(address, talos.Machine{Version: "v1.13.6", BootID: "b1", UUID: "uuid-1", NodeName: "w-1", Stage: "running", Ready: true}, nil)
	w.machines.Configure(address, talos.Config{Active: []byte(original), Persistent: []byte(original)})
	w.nodes.Set(kube.Node{Name: "w-1", UUID: "uuid-1", BootID: "b1", Ready: true})
	store := &bases.Store{Client: c, Live: c}
	NewWithT(t).Expect(store.Keep(t.Context(), machine, []byte(original))).To(Succeed())
	w.Executor = New(w.machines, w.nodes, c, &bases.Comparer{Store: store})
	w.scope = kind.Scope{
		Owner: "default/op-1", Machines: 3, Target: v1alpha1.OperationTarget{MachineConfigHash: cluster.MachineConfigHash()},
		Cluster: target.Target{NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}},
		Guard:   func(context.Context) error { return nil },
	}
	w.note(t)
	return w
}

// note takes note in the status of the machine of how its config stands, as the controller does.
func (w *world) note(t *testing.T) {
	t.Helper()
	look := w.look(t.Context(), w.scope, kind.Unit{Machine: w.machine}, w.machines.Facts(address))
	w.machine.Status.Config = &v1alpha1.MachineConfigStatus{SpecHash: w.scope.Target.MachineConfigHash, Effect: look.Compared.Effect}
}

// desired is what the machine shall have.
func (w *world) desired(t *testing.T) []byte {
	t.Helper()
	made, err := w.configs.Render(t.Context(), w.cluster, w.machine, talos.Config{Active: []byte(original), Persistent: []byte(original)}, "v1.13.6")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return made
}

func (w *world) unit(stage string, step v1alpha1.OperationStep, change ...func(*v1alpha1.UnitStatus)) kind.Unit {
	u := kind.Unit{Status: v1alpha1.UnitStatus{Name: "c1-w-1", Stage: stage, Step: step}, Machine: w.machine}
	for _, c := range change {
		c(&u.Status)
	}
	return u
}

// next decides what comes next, from a look at the machine.
func (w *world) next(t *testing.T, unit kind.Unit) kind.Action {
	t.Helper()
	return w.Next(w.scope, unit, w.Observe(t.Context(), w.scope, unit))
}

func (w *world) settle(t *testing.T, unit kind.Unit) kind.Action {
	t.Helper()
	return w.Settle(w.scope, unit, w.Observe(t.Context(), w.scope, unit))
}

func claimed(config []byte) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) { u.ConfigHash = machineconfig.Hash(config) }
}

func succeeded(u *v1alpha1.UnitStatus) { u.Outcome = &v1alpha1.CallOutcome{Result: "Succeeded"} }

func failed(u *v1alpha1.UnitStatus) {
	u.Outcome = &v1alpha1.CallOutcome{Result: "Failed", Class: "Permanent", Message: "it broke"}
}

func gaveUp(u *v1alpha1.UnitStatus) {
	failed(u)
	u.FailureTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
}

func rebooted(u *v1alpha1.UnitStatus) { u.PreRebootBootID = "b0" }

func TestBegin(t *testing.T) {
	hash := func(w *world) string { return machineconfig.Hash(w.desired(t)) }
	for name, row := range map[string]struct {
		patch, stage string
		arrange      func(*world)
		want         func(*world) kind.Action
	}{
		"checks first": {environment, "Check", nil, func(w *world) kind.Action {
			return kind.Action{Verdict: "Call", Step: "Checking", ConfigHash: hash(w)}
		}},
		"stages what needs a reboot": {environment, "Canary", nil, func(w *world) kind.Action {
			return kind.Action{Verdict: "Call", Step: "Staging", ConfigHash: hash(w)}
		}},
		"applies what does not": {sysctls, "Canary", nil, func(w *world) kind.Action {
			return kind.Action{Verdict: "Call", Step: "Applying", ConfigHash: hash(w), NodeName: "w-1"}
		}},
		"applies what waits for an upgrade": {"machine:\n  install: {disk: /dev/vda}\n", "Canary", nil, func(w *world) kind.Action {
			return kind.Action{Verdict: "Call", Step: "Applying", ConfigHash: hash(w), NodeName: "w-1"}
		}},
		"has it already": {environment, "Canary", func(w *world) {
			made := w.desired(t)
			w.machines.Configure(address, talos.Config{Active: made, Persistent: made})
		}, func(*world) kind.Action { return kind.Action{Verdict: "Done"} }},
		"has it already, and an old cordon": {environment, "Canary", func(w *world) {
			made := w.desired(t)
			w.machines.Configure(address, talos.Config{Active: made, Persistent: made})
			w.nodes.Change("w-1", func(n *kube.Node) { n.Unschedulable, n.CordonedBy = true, "default/op-1" })
		}, func(*world) kind.Action { return kind.Action{Verdict: "Call", Step: "Uncordoning"} }},
		"somebody tries one": {environment, "Check", func(w *world) {
			w.machines.Configure(address, talos.Config{Active: []byte(original + "debug: true\n"), Persistent: []byte(original)})
		}, func(*world) kind.Action {
			return kind.Action{Verdict: "Wait", Reason: "MachineConfigPending", Message: "c1-w-1: " + machineconfig.PendingWords}
		}},
		"the patches are others": {environment, "Canary", func(w *world) { w.scope.Target.MachineConfigHash = strings.Repeat("0", 64) }, func(*world) kind.Action {
			return kind.Action{Verdict: "Fail", Message: "TalosCluster c1 asks for another machine config by now, which no machine has tried: delete this operation and start another"}
		}},
		"it cannot be rendered": {"machine: {typo: hunter2hunter2}\n", "Check", nil, func(*world) kind.Action {
			return kind.Action{Verdict: "Fail", Message: `patch "a": error decoding document /v1alpha1/ (line 1): unknown fields: machine.typo`}
		}},
		"no reboot was planned": {environment, "Rollout", func(w *world) { w.machine.Status.Config.Effect = "Live" }, func(*world) kind.Action {
			return kind.Action{Verdict: "Wait", Reason: "MachineConfigKnown", Message: "c1-w-1 needs a reboot for its machine config by now, which the hub has yet to take note of"}
		}},
		"no change was planned": {environment, "Check", func(w *world) { w.machine.Status.Config.Effect = "None" }, func(*world) kind.Action {
			return kind.Action{Verdict: "Wait", Reason: "MachineConfigKnown", Message: "c1-w-1 has another machine config than before by now, which the hub has yet to take note of"}
		}},
		"silent": {environment, "Check", func(w *world) { w.machines.Silence(address, true) }, func(*world) kind.Action {
			return kind.Action{Verdict: "Wait", Reason: "TargetReachable", Message: "machine c1-w-1 does not answer: no answer"}
		}},
		"another machine": {environment, "Check", func(w *world) {
			w.machines.Change(address, func(m *talos.Machine, _ *talos.Etcd) { m.UUID = "uuid-2" })
		}, func(*world) kind.Action {
			return kind.Action{Verdict: "Fail", Message: `the machine at 10.0.1.1 has UUID "uuid-2", but c1-w-1 has UUID "uuid-1"`}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.patch)
			if row.arrange != nil {
				row.arrange(w)
			}
			NewWithT(t).Expect(w.next(t, w.unit(row.stage, ""))).To(Equal(row.want(w)))
		})
	}
}

// The way of a change that needs a reboot, step by step, with what the machine has after each.
func TestRebootChange(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, environment)
	made := w.desired(t)
	do := func(step v1alpha1.OperationStep, change ...func(*v1alpha1.UnitStatus)) kind.Unit {
		t.Helper()
		unit := w.unit("Canary", step, append(change, claimed(made))...)
		_, err := w.Do(t.Context(), w.scope, unit, step)
		g.Expect(err).NotTo(HaveOccurred())
		succeeded(&unit.Status)
		return unit
	}
	staged := do("Staging")
	g.Expect(w.machines.Calls()).To(ConsistOf(HavePrefix("ApplyConfig")))
	g.Expect(w.next(t, staged)).To(HaveField("Step", v1alpha1.DrainingStep), "the drain comes after the machine has proved that it keeps the config")
	g.Expect(w.Unsafe(staged)).To(Equal("has a machine config staged, which its next reboot brings in force"))
	do("Staging")
	g.Expect(w.machines.Calls()).To(HaveLen(1), "it has it already")
	g.Expect(w.Undo(t.Context(), w.scope, staged, "Draining", errors.New("told to end"))).To(Succeed())
	g.Expect(w.next(t, do("Draining"))).To(Equal(kind.Action{Verdict: "Call", Step: "Staging", ConfigHash: machineconfig.Hash(made)}), "it was taken back meanwhile")
	do("Staging")
	drained := do("Draining")
	g.Expect(w.next(t, drained)).To(And(HaveField("Step", v1alpha1.RebootingStep), HaveField("PreRebootBootID", "b1")))
	do("Rebooting", func(u *v1alpha1.UnitStatus) { u.PreRebootBootID = "b1" })
	w.nodes.Change("w-1", func(n *kube.Node) { n.BootID = w.machines.Facts(address).BootID })
	verifying := w.unit("Canary", "Verifying", claimed(made), rebooted)
	g.Expect(w.next(t, verifying)).To(HaveField("Step", v1alpha1.UncordoningStep))
	do("Uncordoning", rebooted)
	g.Expect(w.nodes.Get("w-1").Unschedulable).To(BeFalse())
	g.Expect(w.next(t, verifying)).To(Equal(kind.Action{Verdict: "Done"}))
	w.note(t)
	g.Expect(w.machine.Status.Config.Effect).To(Equal(v1alpha1.ConfigEffectNone))
}

func TestLiveChange(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, sysctls)
	made := w.desired(t)
	unit := w.unit("Canary", "Applying", claimed(made))
	_, err := w.Do(t.Context(), w.scope, unit, "Applying")
	g.Expect(err).NotTo(HaveOccurred())
	succeeded(&unit.Status)
	g.Expect(w.next(t, unit)).To(HaveField("Step", v1alpha1.VerifyingStep))
	g.Expect(w.next(t, w.unit("Canary", "Verifying", claimed(made)))).To(Equal(kind.Action{Verdict: "Done"}))
	g.Expect(w.Unsafe(w.unit("Canary", "Verifying", claimed(made)))).To(BeEmpty())
	g.Expect(w.machines.Calls()).To(HaveLen(1))
	g.Expect(w.nodes.Calls()).To(BeEmpty(), "nothing is drained")

	w.machines.Change(address, func(m *talos.Machine, _ *talos.Etcd) { m.Ready, m.Unmet = false, []string{"kubelet: down"} })
	g.Expect(w.next(t, w.unit("Canary", "Verifying", claimed(made)))).To(And(
		HaveField("Verdict", kind.Wait), HaveField("Message", And(ContainSubstring("kubelet: down"), ContainSubstring("talosctl apply-config -n 10.0.1.1")))))
}

func TestCheck(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, environment)
	unit := w.unit("Check", "Checking", claimed(w.desired(t)))
	_, err := w.Do(t.Context(), w.scope, unit, "Checking")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.machines.Calls()).To(ConsistOf(HavePrefix("CheckConfig")))
	succeeded(&unit.Status)
	g.Expect(w.next(t, unit)).To(Equal(kind.Action{Verdict: "Done"}))
	failed(&unit.Status)
	g.Expect(w.next(t, unit)).To(Equal(kind.Action{Verdict: "Fail", Message: "Checking failed: it broke"}))
}

// What a machine answers may repeat the config: it is told without its secrets, and what it means stays.
func TestAnswersAreCleaned(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, environment)
	w.machines.FailNext("CheckConfig", address, status.Error(codes.InvalidArgument, "token hunter2hunter2 is bad\ndiff:\n- token: hunter2hunter2"))
	_, err := w.Do(t.Context(), w.scope, w.unit("Check", "Checking", claimed(w.desired(t))), "Checking")
	g.Expect(err).To(MatchError("rpc error: code = InvalidArgument desc = token (secret) is bad"))
	g.Expect(w.Classify(err)).To(Equal(v1alpha1.ErrorPermanent))
}

// No call of ours ends what somebody tries, and nothing is brought that was not claimed.
func TestNoCallIsMade(t *testing.T) {
	other := []byte(original + "debug: true\n")
	for name, row := range map[string]struct {
		arrange func(*world)
		claim   []byte
		want    error
		class   v1alpha1.ErrorClass
	}{
		"somebody tries one": {func(w *world) {
			w.machines.Configure(address, talos.Config{Active: other, Persistent: []byte(original)})
		}, nil, errPending, "InProgress"},
		"somebody staged one": {func(w *world) {
			w.machines.Configure(address, talos.Config{Active: []byte(original), Persistent: other})
		}, nil, errPending, "InProgress"},
		"another was claimed":   {func(*world) {}, other, errAnother, "Permanent"},
		"the patches are other": {func(w *world) { w.scope.Target.MachineConfigHash = "" }, nil, errAnother, "Permanent"},
	} {
		for _, step := range []v1alpha1.OperationStep{"Checking", "Staging", "Applying"} {
			t.Run(name+" "+string(step), func(t *testing.T) {
				g := NewWithT(t)
				w := newWorld(t, environment)
				claim := row.claim
				if claim == nil {
					claim = w.desired(t)
				}
				row.arrange(w)
				_, err := w.Do(t.Context(), w.scope, w.unit("Canary", step, claimed(claim)), step)
				g.Expect(err).To(MatchError(row.want))
				g.Expect(w.Classify(err)).To(Equal(row.class))
				g.Expect(w.machines.Calls()).To(BeEmpty())
			})
		}
	}
}

// A machine reboots into what was staged for it, or not at all.
func TestRebootIntoAnotherConfig(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, environment)
	w.machines.Configure(address, talos.Config{Active: []byte(original), Persistent: []byte(original + "debug: true\n")})
	unit := w.unit("Canary", "Rebooting", claimed(w.desired(t)), func(u *v1alpha1.UnitStatus) { u.PreRebootBootID = "b1" })
	_, err := w.Do(t.Context(), w.scope, unit, "Rebooting")
	g.Expect(err).To(MatchError(errOther))
	g.Expect(w.Classify(err)).To(Equal(v1alpha1.ErrorPermanent))
	g.Expect(w.machines.Calls()).To(BeEmpty())
	g.Expect(w.Undo(t.Context(), w.scope, unit, "Rebooting", err)).To(Succeed())
	g.Expect(w.machines.Calls()).To(BeEmpty(), "what somebody else staged is theirs")
	failed(&unit.Status)
	g.Expect(w.next(t, unit)).To(And(HaveField("Verdict", kind.Fail), HaveField("RetryStep", v1alpha1.StagingStep)))
	g.Expect(w.next(t, w.unit("Canary", "Staging", succeeded, claimed(w.desired(t))))).To(And(HaveField("Verdict", kind.Fail), HaveField("Message", errOther.Error())))
	g.Expect(w.next(t, w.unit("Canary", "Verifying", rebooted, claimed(w.desired(t))))).To(And(HaveField("Verdict", kind.Fail), HaveField("RetryStep", v1alpha1.StagingStep)))
}

// What was staged and is not rebooted into does not lie in wait for the next reboot.
func TestStagedConfigIsTakenBack(t *testing.T) {
	for _, step := range []v1alpha1.OperationStep{"Staging", "Forfeiting", "Evacuating", "Draining"} {
		t.Run(string(step), func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t, environment)
			made := w.desired(t)
			stage := func() { w.machines.Configure(address, talos.Config{Active: []byte(original), Persistent: made}) }
			stage()
			unit := w.unit("Canary", step, claimed(made), succeeded)
			g.Expect(w.settle(t, unit)).To(Equal(kind.Action{Verdict: "Call", Step: "Uncordoning"}), "a pause")
			_, err := w.Do(t.Context(), w.scope, w.unit("Canary", "Uncordoning", claimed(made)), "Uncordoning")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(w.settle(t, unit)).To(Equal(kind.Action{Verdict: "Park"}), "nothing is left")
			g.Expect(w.look(t.Context(), w.scope, unit, w.machines.Facts(address)).Compared.PersistentHash).To(Equal(machineconfig.Hash([]byte(original))))

			stage()
			g.Expect(w.Undo(t.Context(), w.scope, unit, step, errors.New("it broke"))).To(Succeed())
			g.Expect(w.look(t.Context(), w.scope, unit, w.machines.Facts(address)).Compared.PersistentHash).To(Equal(machineconfig.Hash([]byte(original))), "a failure")
			failed(&unit.Status)
			g.Expect(w.next(t, unit)).To(And(HaveField("Verdict", kind.Fail), HaveField("RetryStep", v1alpha1.StagingStep)))
			g.Expect(w.Unsafe(unit)).To(BeEmpty())

			stage()
			w.machines.Silence(address, true)
			g.Expect(w.settle(t, w.unit("Canary", step, claimed(made), gaveUp))).To(And(HaveField("Verdict", kind.Wait), HaveField("Message", ContainSubstring("to take the staged machine config back"))))
		})
	}
}

func TestSettle(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, environment)
	g.Expect(w.settle(t, w.unit("Check", ""))).To(Equal(kind.Action{Verdict: "Park"}))
	g.Expect(w.settle(t, w.unit("Check", "Checking", failed))).To(Equal(kind.Action{Verdict: "Park"}))
	g.Expect(w.settle(t, w.unit("Canary", "Applying", failed))).To(Equal(kind.Action{Verdict: "Park"}))
	g.Expect(w.settle(t, w.unit("Canary", "Applying", succeeded))).To(HaveField("Step", v1alpha1.VerifyingStep), "it is in force")
	g.Expect(w.settle(t, w.unit("Canary", "Rebooting", succeeded, func(u *v1alpha1.UnitStatus) { u.PreRebootBootID = "b1" }))).To(HaveField("Verdict", kind.Wait))
	g.Expect(w.Unsafe(w.unit("Canary", "Rebooting"))).To(Equal(reboot.Unsafe(w.unit("Canary", "Rebooting"))))
}

// Every message fits into a status with what the engine puts before it.
func TestRecoveryIsTold(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, environment)
	w.machines.Silence(address, true)
	message := w.next(t, w.unit("Canary", "Verifying", claimed(w.desired(t)), rebooted)).Message
	g.Expect(message).To(Equal("waiting for the Talos API: no answer; if it stays away, its new config may be why: apply another one with talosctl apply-config -n 10.0.1.1, or at its console"))
	g.Expect(len("Verifying not over within 15m0s: " + message)).To(BeNumerically("<=", 256))
}
