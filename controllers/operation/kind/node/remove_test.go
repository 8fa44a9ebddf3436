// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// removing is an order to remove a machine that asks for that.
func removing(name string, dead bool) *world {
	w := newWorld(v1alpha1.RemoveAction, func(n *v1alpha1.NodeParameters) {
		n.Machine = "c1-" + name
		if dead {
			n.Remove = &v1alpha1.RemoveParameters{Manner: v1alpha1.RemoveDead}
		}
	})
	w.machines[name].Spec.Removal = &v1alpha1.RemovalSpec{Reason: "sold"}
	w.scope.Known = w.scope.Approved
	w.executor.Records = w
	return w
}

// Forget implements Records.
func (w *world) Forget(_ context.Context, _ guard.Func, machine *v1alpha1.TalosMachine) error {
	w.forgotten = append(w.forgotten, machine.Name)
	return nil
}

// dies makes a machine that nobody will hear of again.
func (w *world) dies(name string) {
	w.talos.Silence(w.machines[name].Spec.Address, true)
	w.kube.Change(name, func(n *kube.Node) { n.Ready = false })
}

// forget is the unit of the last stage.
func forgetting(step v1alpha1.OperationStep, change func(*v1alpha1.UnitStatus)) kind.Unit {
	u := kind.Unit{Status: v1alpha1.UnitStatus{Name: nodeplan.ForgetStage, Stage: nodeplan.ForgetStage, Step: step}}
	if change != nil {
		change(&u.Status)
	}
	return u
}

// A machine leaves as one that is reset does; one that is dead is asked for nothing.
func TestRemovalsFromBeginToEnd(t *testing.T) {
	for name, row := range map[string]struct {
		machine string
		dead    bool
		steps   []v1alpha1.OperationStep
		talos   []string
		kube    []string
	}{
		"a control plane": {
			"cp-1", false, []v1alpha1.OperationStep{"Forfeiting", "Draining", "Leaving", "Resetting"},
			[]string{"ForfeitLeadership 10.0.0.1", "LeaveEtcd 10.0.0.1", "Reset 10.0.0.1"}, []string{"Cordon cp-1", "Drain cp-1"},
		},
		"a worker":             {"w-1", false, []v1alpha1.OperationStep{"Draining", "Resetting"}, []string{"Reset 10.0.1.1"}, []string{"Cordon w-1", "Drain w-1"}},
		"a dead control plane": {"cp-2", true, []v1alpha1.OperationStep{"RemovingMember"}, []string{"RemoveEtcdMember 10.0.0.1"}, nil},
		"a dead worker":        {"w-1", true, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := removing(row.machine, row.dead)
			if row.dead {
				w.dies(row.machine)
			}
			steps, last := w.goThrough(t, row.machine, nodeplan.RemoveStage)
			g.Expect(last).To(Equal(kind.Action{Verdict: kind.Done}))
			g.Expect(steps).To(Equal(row.steps))
			g.Expect(w.talos.Calls()).To(Equal(row.talos))
			g.Expect(w.kube.Calls()).To(Equal(row.kube))
		})
	}
}

// What stands for a machine goes last: its Node, if it is not another one's, and its TalosMachine.
func TestForget(t *testing.T) {
	g := NewWithT(t)
	w := removing("w-1", false)
	first := w.next(t, forgetting("", nil))
	g.Expect(first).To(Equal(kind.Action{Verdict: kind.Call, Step: "DeletingNode", NodeName: "w-1"}))
	deleting := forgetting("DeletingNode", func(s *v1alpha1.UnitStatus) { s.NodeName = first.NodeName })
	outcome, err := w.executor.Do(t.Context(), w.scope, deleting, "DeletingNode")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Message).To(BeEmpty())
	g.Expect(w.kube.Calls()).To(Equal([]string{"DeleteNode w-1"}))
	g.Expect(w.next(t, forgetting("DeletingNode", succeeded))).To(Equal(kind.Action{Verdict: kind.Call, Step: "Forgetting"}))
	_, err = w.executor.Do(t.Context(), w.scope, forgetting("Forgetting", nil), "Forgetting")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.forgotten).To(Equal([]string{"c1-w-1"}))
	g.Expect(w.next(t, forgetting("Forgetting", succeeded))).To(Equal(kind.Action{Verdict: kind.Wait, Message: "waiting until TalosMachine c1-w-1 is gone"}))
	w.machines["w-1"].Finalizers = []string{"example.com/keep"}
	g.Expect(w.next(t, forgetting("Forgetting", succeeded)).Message).To(HaveSuffix("which has finalizers of others: example.com/keep"))
	w.scope.Known = w.scope.Known[:3]
	g.Expect(w.next(t, forgetting("Forgetting", succeeded))).To(Equal(kind.Action{Verdict: kind.Done, Message: "c1-w-1 is removed"}))
	for _, step := range []v1alpha1.OperationStep{"DeletingNode", "Forgetting"} { // After it is gone there is nothing to do, and nothing is done.
		_, err = w.executor.Do(t.Context(), w.scope, forgetting(step, nil), step)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(w.forgotten).To(HaveLen(1))
}

func TestForgetSaysWhatWasFound(t *testing.T) {
	w := removing("w-1", true)
	t.Run("a Node of another machine stays", func(t *testing.T) {
		w.kube.Change("w-1", func(n *kube.Node) { n.UUID = "uuid-other" })
		outcome, err := w.executor.Do(t.Context(), w.scope, forgetting("DeletingNode", func(s *v1alpha1.UnitStatus) { s.NodeName = "w-1" }), "DeletingNode")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(outcome.Message).To(Equal("there is no Node w-1 of its, or it is another machine's by now"))
		NewWithT(t).Expect(w.kube.Get("w-1").UUID).To(Equal("uuid-other"))
	})
	t.Run("a machine without a Node", func(t *testing.T) {
		w.machines["w-1"].Status.NodeName = ""
		NewWithT(t).Expect(w.next(t, forgetting("", nil))).To(Equal(kind.Action{Verdict: kind.Call, Step: "Forgetting"}))
	})
	t.Run("a failure", func(t *testing.T) {
		NewWithT(t).Expect(w.next(t, forgetting("DeletingNode", failed("Timeout")))).To(Equal(kind.Action{Verdict: kind.Fail, Message: "DeletingNode failed: it broke"}))
	})
	t.Run("a machine of that name that was found since", func(t *testing.T) {
		w.machines["w-1"].Spec.Removal = nil
		done := w.next(t, forgetting("Forgetting", succeeded))
		NewWithT(t).Expect(done.Verdict).To(Equal(kind.Done))
		NewWithT(t).Expect(done.Message).To(ContainSubstring("wipe it with talosctl reset, and do not approve it"))
	})
	t.Run("a pause", func(t *testing.T) {
		w := removing("w-1", false)
		settle := func(u kind.Unit) kind.Action { return w.executor.Settle(w.scope, u, kind.Observation{}) }
		NewWithT(t).Expect(settle(forgetting("", nil))).To(Equal(kind.Action{Verdict: kind.Park}))
		NewWithT(t).Expect(settle(forgetting("DeletingNode", succeeded))).To(HaveField("Step", v1alpha1.ForgettingStep), "it goes on")
		NewWithT(t).Expect(settle(forgetting("DeletingNode", func(s *v1alpha1.UnitStatus) { s.FailureTime = metav1.NewTime(noon) }))).To(Equal(kind.Action{Verdict: kind.Park}))
		NewWithT(t).Expect(w.executor.Unsafe(forgetting("Forgetting", nil))).To(BeEmpty())
	})
}

// A machine that somebody has declared dead has to be: any sign of life ends the removal, and what cannot be seen is waited for.
func TestConfirmDead(t *testing.T) {
	silent := func(w *world) { w.dies("cp-2") }
	lives := func(sign string) kind.Action {
		return kind.Action{Verdict: kind.Fail, Message: "it is not dead: " + sign + "; delete this operation, and remove the machine without --dead"}
	}
	for name, row := range map[string]struct {
		step   v1alpha1.OperationStep
		change func(*world)
		want   kind.Action
	}{
		"nobody answers":       {"", silent, kind.Action{Verdict: kind.Wait, Step: "StayingOff", Message: "nobody answers: waiting whether it stays so"}},
		"nobody has for long":  {"StayingOff", silent, kind.Action{Verdict: kind.Done, After: time.Minute}},
		"it answers":           {"", func(*world) {}, lives("Node cp-2 is Ready")},
		"its Talos answers":    {"", func(w *world) { w.kube.Change("cp-2", func(n *kube.Node) { n.Ready = false }) }, lives(`it answers at 10.0.0.2, in stage "running"`)},
		"its kubelet is alive": {"StayingOff", func(w *world) { w.talos.Silence("10.0.0.2", true) }, lives("Node cp-2 is Ready")},
		"it has no Node":       {"", func(w *world) { w.dies("cp-2"); w.kube.Remove("cp-2") }, kind.Action{Verdict: kind.Wait, Step: "StayingOff", Message: "nobody answers: waiting whether it stays so"}},
		"another one has its address and its name": {"StayingOff", func(w *world) {
			w.talos.Change("10.0.0.2", func(m *talos.Machine, _ *talos.Etcd) { m.UUID = "uuid-other" })
			w.kube.Change("cp-2", func(n *kube.Node) { n.UUID = "uuid-other" })
		}, kind.Action{Verdict: kind.Done, After: time.Minute}},
		"nobody tells of its Node": {"", func(w *world) { w.dies("cp-2"); w.kube.Silence(true) },
			kind.Action{Verdict: kind.Wait, Reason: "TargetReachable", Message: "the Kubernetes API of the cluster cannot be read: no answer"}},
		"nobody tells of its Node any more": {"StayingOff", func(w *world) { w.dies("cp-2"); w.kube.Silence(true) },
			kind.Action{Verdict: kind.Wait, Message: "the Kubernetes API of the cluster cannot be read: no answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := removing("cp-2", true)
			row.change(w)
			u := w.unit("cp-2", row.step, func(s *v1alpha1.UnitStatus) { s.Stage = nodeplan.ConfirmDeadStage })
			NewWithT(t).Expect(w.next(t, u)).To(Equal(row.want))
		})
	}
	w := removing("cp-2", true)
	confirm := func(seen kind.Observation) kind.Action {
		return w.executor.Next(w.scope, w.unit("cp-2", "StayingOff", func(s *v1alpha1.UnitStatus) { s.Stage = nodeplan.ConfirmDeadStage }), seen)
	}
	refused := kind.Observation{TalosTrouble: "x509: unknown authority"}
	NewWithT(t).Expect(confirm(refused)).To(Equal(kind.Action{Verdict: kind.Wait, Message: "something answers there that is no machine of the cluster: x509: unknown authority"}))
	refused.Own = view{Maintenance: "uuid-cp-2"}
	NewWithT(t).Expect(confirm(refused).Verdict).To(Equal(kind.Done), "it was wiped before")
	u := w.unit("cp-2", "StayingOff", func(s *v1alpha1.UnitStatus) { s.Stage = nodeplan.ConfirmDeadStage })
	NewWithT(t).Expect(w.executor.Settle(w.scope, u, refused)).To(Equal(kind.Action{Verdict: kind.Park}), "nothing has happened yet")
}

// Case B21: the member of a machine that is dead is known by its ID. One that only has its name may be anybody's.
func TestCaseB21RemoveDead(t *testing.T) {
	ask := kind.Action{Verdict: kind.Call, Step: "RemovingMember", NodeName: "cp-2"}
	for name, row := range map[string]struct {
		change func(*world)
		step   v1alpha1.OperationStep
		status func(*v1alpha1.UnitStatus)
		want   kind.Action
	}{
		"among the members": {want: ask},
		"not gone yet":      {step: "RemovingMember", status: succeeded, want: kind.Action{Verdict: kind.Wait, Message: "waiting until the other etcd members do not know it any more"}},
		"failed":            {step: "RemovingMember", status: failed("Permanent"), want: kind.Action{Verdict: kind.Fail, Message: "RemovingMember failed: it broke"}},
		"back before it is late": {change: func(w *world) {
			w.talos.Silence("10.0.0.2", false)
			w.kube.Change("cp-2", func(n *kube.Node) { n.Ready = true })
		}, want: alive("Node cp-2 is Ready")},
		"gone": {change: func(w *world) { w.members(talos.EtcdMember{ID: 0x1a, Started: true}) }, want: kind.Action{Verdict: kind.Done}},
		"another machine has its name": {change: func(w *world) {
			w.members(talos.EtcdMember{ID: 0x1c, Hostname: "cp-2", Started: true})
		}, want: kind.Action{Verdict: kind.Done}},
		"nobody knows whose it is": {change: func(w *world) { w.members(talos.EtcdMember{ID: 0x99, Hostname: "CP-2", Started: true}) }, want: kind.Action{
			Verdict: kind.Fail, Message: "etcd member 0000000000000099 has the name of c1-cp-2, and the hub does not know whose it is: if it is that of the machine that is dead, talosctl etcd remove-member 0000000000000099, then resume",
		}},
		"nobody tells": {change: func(w *world) { w.talos.Silence("10.0.0.1", true); w.talos.Silence("10.0.0.3", true) }, want: kind.Action{
			Verdict: kind.Wait, Reason: "EtcdHealthy", Message: "no other control plane tells who belongs to etcd: c1-cp-3: no answer",
		}},
		"another one has its address": {change: func(w *world) {
			w.members(talos.EtcdMember{ID: 0x99, Hostname: "cp-2", Started: true})
			w.talos.Silence("10.0.0.2", false)
			w.talos.Change("10.0.0.2", func(m *talos.Machine, e *talos.Etcd) { m.UUID, e.MemberID = "uuid-other", 0x99 })
		}, want: kind.Action{Verdict: kind.Done}},
	} {
		t.Run(name, func(t *testing.T) {
			w := removing("cp-2", true)
			w.dies("cp-2")
			if row.change != nil {
				row.change(w)
			}
			u := w.unit("cp-2", row.step, func(s *v1alpha1.UnitStatus) {
				s.Stage = nodeplan.RemoveStage
				if row.status != nil {
					row.status(s)
				}
			})
			NewWithT(t).Expect(w.next(t, u)).To(Equal(row.want))
		})
	}
}

// A look that tells of no members is none: who is not known to be gone is not forgotten. The last look of a stage is the first of the next.
func TestRemoveDeadAsksForMembers(t *testing.T) {
	g := NewWithT(t)
	w := removing("cp-2", true)
	w.dies("cp-2")
	remove := w.unit("cp-2", "", func(s *v1alpha1.UnitStatus) { s.Stage = nodeplan.RemoveStage })
	seen := kind.Observation{TalosTrouble: "no answer", TalosSilent: true, Own: view{}}
	g.Expect(w.executor.Next(w.scope, remove, seen)).To(Equal(kind.Action{
		Verdict: kind.Wait, Reason: "EtcdHealthy", Message: "who belongs to etcd has not been asked yet",
	}))
	confirm := w.unit("cp-2", "StayingOff", func(s *v1alpha1.UnitStatus) { s.Stage = nodeplan.ConfirmDeadStage })
	seen = w.executor.Observe(t.Context(), w.scope, confirm)
	g.Expect(w.executor.Next(w.scope, remove, seen)).To(HaveField("Step", v1alpha1.RemovingMemberStep))
}

// members are those that every control plane knows from now on.
func (w *world) members(members ...talos.EtcdMember) {
	for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		w.talos.Change(address, func(_ *talos.Machine, e *talos.Etcd) { e.Members = members })
	}
}

// A machine that does not answer is waited for, and who waits is told what there is to do if it never will.
func TestRemoveNeedsAnAnswer(t *testing.T) {
	w := removing("cp-2", false)
	w.dies("cp-2")
	NewWithT(t).Expect(w.next(t, w.unit("cp-2", "", func(s *v1alpha1.UnitStatus) { s.Stage = nodeplan.RemoveStage }))).To(Equal(kind.Action{
		Verdict: kind.Wait, Reason: "TargetReachable",
		Message: "machine c1-cp-2 does not answer: no answer; if it is dead, delete this operation, and: ichor machine remove c1-cp-2 --dead",
	}))
}

func TestUnsafeRemove(t *testing.T) {
	w := removing("cp-2", true)
	for name, row := range map[string]struct {
		step   v1alpha1.OperationStep
		status func(*v1alpha1.UnitStatus)
		want   string
	}{
		"leaving":                    {"Leaving", nil, "is asked to leave etcd and is not wiped yet"},
		"resetting":                  {"Resetting", nil, "is asked to wipe itself and is not known to have done so"},
		"removing":                   {"RemovingMember", nil, "is being removed from etcd, and the others may know it still"},
		"removing, and nobody knows": {"RemovingMember", failed("Timeout"), "is being removed from etcd, and the others may know it still"},
		"removing was refused":       {"RemovingMember", failed("Permanent"), ""},
		"draining":                   {"Draining", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := w.unit("cp-2", row.step, func(s *v1alpha1.UnitStatus) {
				s.Stage = nodeplan.RemoveStage
				if row.status != nil {
					row.status(s)
				}
			})
			NewWithT(t).Expect(w.executor.Unsafe(u)).To(Equal(row.want))
		})
	}
}

// A TalosMachine goes that asks to be removed, and no other of the same name; and only while the lock is held.
func TestMachinesForget(t *testing.T) {
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	allowed := func(context.Context) error { return nil }
	for name, row := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		guard  guard.Func
		gone   bool
		fails  bool
	}{
		"one that asks":         {nil, allowed, true, false},
		"one that does not ask": {func(m *v1alpha1.TalosMachine) { m.Spec.Removal = nil }, allowed, false, false},
		"another one":           {func(m *v1alpha1.TalosMachine) { m.Spec.UUID = "other" }, allowed, false, false},
		"without the lock":      {nil, func(context.Context) error { return errors.New("lost") }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			asked := removing("w-1", false).machines["w-1"]
			there := asked.DeepCopy()
			if row.change != nil {
				row.change(there)
			}
			c := clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(there).Build()
			records := Machines{Client: c, Live: c}
			err := records.Forget(t.Context(), row.guard, asked)
			g.Expect(err != nil).To(Equal(row.fails))
			err = c.Get(t.Context(), client.ObjectKeyFromObject(there), there)
			g.Expect(apierrors.IsNotFound(err)).To(Equal(row.gone))
			if row.gone {
				g.Expect(records.Forget(t.Context(), row.guard, asked)).To(Succeed(), "once more")
			}
		})
	}
}
