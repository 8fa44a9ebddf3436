// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
)

func unit(step v1alpha1.OperationStep) kind.Unit {
	u := kind.Unit{
		Status:  v1alpha1.UnitStatus{Name: "c1-w-1", Stage: "Reboot", Step: step},
		Machine: &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{Role: "Worker", Address: "10.0.1.1", UUID: "uuid-1"}},
	}
	u.Machine.Name, u.Machine.Status.NodeName = "c1-w-1", "w-1"
	return u
}

// scopeOf is an order about one of two machines.
func scopeOf(action v1alpha1.NodeAction, change func(*kind.Scope)) kind.Scope {
	scope := kind.Scope{Machines: 2, Spec: v1alpha1.TalosOperationSpec{Kind: "node", Node: &v1alpha1.NodeParameters{Machine: "c1-w-1", Action: action}}}
	if change != nil {
		change(&scope)
	}
	return scope
}

// Nothing but Next, Do and a status that is carried along: this is how the engine takes a machine through its reboot.
func TestRebootFromBeginToEnd(t *testing.T) {
	g := NewWithT(t)
	machines, api := talosfake.New(), kubefake.New()
	machines.Add("10.0.1.1", talos.Machine{BootID: "old", UUID: "uuid-1", NodeName: "w-1", Stage: "running", Ready: true}, nil)
	api.Set(kube.Node{Name: "w-1", Ready: true, BootID: "old"})
	machines.Rebooted = func(_ string, now talos.Machine) {
		api.Change("w-1", func(n *kube.Node) { n.BootID = now.BootID })
	}
	scope := scopeOf("Reboot", func(s *kind.Scope) { s.Owner, s.Guard = "default/op-1", func(context.Context) error { return nil } })
	executor := New(machines, api)

	u := unit("")
	var steps []v1alpha1.OperationStep
	for range 10 {
		action := executor.Next(scope, u, executor.Observe(t.Context(), scope, u))
		if action.Verdict == "Done" {
			break
		}
		g.Expect(action.Verdict).To(BeElementOf(kind.Call, kind.Wait))
		steps = append(steps, action.Step)
		u.Status.Step, u.Status.Outcome = action.Step, nil
		if action.PreRebootBootID != "" {
			u.Status.PreRebootBootID = action.PreRebootBootID
		}
		if action.Verdict == "Call" {
			_, err := executor.Do(t.Context(), scope, u, action.Step)
			g.Expect(err).NotTo(HaveOccurred())
			u.Status.Outcome = &v1alpha1.CallOutcome{Result: "Succeeded"}
		}
	}
	g.Expect(steps).To(Equal([]v1alpha1.OperationStep{"Draining", "Rebooting", "Verifying", "Uncordoning"}))
	g.Expect(machines.Calls()).To(Equal([]string{"Reboot 10.0.1.1"}))
	g.Expect(api.Calls()).To(Equal([]string{"Cordon w-1", "Drain w-1", "Uncordon w-1"}))
	g.Expect(api.Get("w-1").Unschedulable).To(BeFalse())
}

func TestNextWaitsForAMachineThatDoesNotAnswer(t *testing.T) {
	NewWithT(t).Expect(New(nil, nil).Next(scopeOf("Reboot", nil), unit(""), kind.Observation{TalosTrouble: "no answer"})).To(Equal(kind.Action{
		Verdict: "Wait", Reason: "TargetReachable", Message: "machine c1-w-1 does not answer: no answer",
	}))
}

// Case B10: nothing begins with a machine that is another, or does not tell who it is.
func TestCaseB10NextChecksTheIdentityFirst(t *testing.T) {
	for uuid, want := range map[string]kind.Action{
		"uuid-1": {Verdict: "Call", Step: "Draining"},
		"uuid-2": {Verdict: "Fail", Message: `the machine at 10.0.1.1 has UUID "uuid-2", but c1-w-1 has UUID "uuid-1"`},
		"":       {Verdict: "Wait", Reason: "MachineSettled", Message: "waiting until the machine tells its UUID"},
	} {
		seen := kind.Observation{Talos: talos.Machine{BootID: "old", UUID: uuid}, Node: &kube.Node{Name: "w-1"}}
		NewWithT(t).Expect(New(nil, nil).Next(scopeOf("Reboot", nil), unit(""), seen)).To(Equal(want), uuid)
	}
}

// What failed is given up: the own cordon goes, and the machine is not asked for anything, even after its reboot.
func TestSettleAfterAFailure(t *testing.T) {
	own := &kube.Node{Name: "w-1", Unschedulable: true, CordonedBy: "default/op-1"}
	park, uncordon := kind.Action{Verdict: "Park"}, kind.Action{Verdict: "Call", Step: "Uncordoning"}
	for name, row := range map[string]struct {
		step v1alpha1.OperationStep
		node *kube.Node
		want kind.Action
	}{
		"before anything":        {"", &kube.Node{Name: "w-1"}, park},
		"drain":                  {"Draining", own, uncordon},
		"reboot":                 {"Rebooting", own, uncordon},
		"reboot, undone already": {"Rebooting", &kube.Node{Name: "w-1"}, park},
		"did not come back":      {"Verifying", own, uncordon},
		"cordoned by another":    {"Verifying", &kube.Node{Name: "w-1", Unschedulable: true, CordonedBy: "default/op-0"}, park},
		"uncordoning failed":     {"Uncordoning", own, uncordon},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			executor, scope := New(nil, nil), scopeOf("Reboot", func(s *kind.Scope) { s.Owner = "default/op-1" })
			seen := kind.Observation{Talos: talos.Machine{BootID: "old", UUID: "uuid-1", Stage: "running", Ready: true}, Node: row.node}
			u := unit(row.step)
			u.Status.PreRebootBootID = "old"
			u.Status.Outcome = &v1alpha1.CallOutcome{Result: "Failed", Class: "Retryable", Message: "it broke"}
			u.Status.FailureTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			g.Expect(executor.Settle(scope, u, seen)).To(Equal(row.want))
		})
	}
	t.Run("what has not failed for good goes on", func(t *testing.T) {
		u := unit("Rebooting")
		u.Status.PreRebootBootID = "old"
		u.Status.Outcome = &v1alpha1.CallOutcome{Result: "Failed", Class: "Retryable", Message: "it broke"}
		seen := kind.Observation{Talos: talos.Machine{BootID: "old", UUID: "uuid-1", Stage: "running"}, Node: own}
		NewWithT(t).Expect(New(nil, nil).Settle(scopeOf("Reboot", func(s *kind.Scope) { s.Owner = "default/op-1" }), u, seen)).To(Equal(kind.Action{
			Verdict: "Call", Step: "Rebooting", PreRebootBootID: "old", NodeName: "w-1",
		}))
	})
}

// A pause in the middle of the drain takes the machine back to where it was, and not to the end of its operation.
func TestSettlingBeforeTheRebootDoesNotCompleteIt(t *testing.T) {
	g := NewWithT(t)
	executor, scope := New(nil, nil), scopeOf("Reboot", func(s *kind.Scope) { s.Owner = "default/op-1" })
	seen := kind.Observation{Talos: talos.Machine{BootID: "old", UUID: "uuid-1"}, Node: &kube.Node{Name: "w-1", Unschedulable: true, CordonedBy: "default/op-1"}}
	u := unit("Draining")
	u.Status.Outcome = &v1alpha1.CallOutcome{Result: "Succeeded"}
	g.Expect(executor.Settle(scope, u, seen)).To(Equal(kind.Action{Verdict: "Call", Step: "Uncordoning"}))

	u.Status.Step = "Uncordoning"
	seen.Node = &kube.Node{Name: "w-1"}
	g.Expect(executor.Settle(scope, u, seen)).To(Equal(kind.Action{Verdict: "Park"}))
	g.Expect(executor.Next(scope, u, seen)).To(Equal(kind.Action{Verdict: "Park"}), "the pause may have been lifted meanwhile")
}

// A step is the same in every action that takes it: the engine knows its steps by their names alone.
func TestStepsAreOnePerName(t *testing.T) {
	all := map[v1alpha1.OperationStep]kind.Step{}
	for _, step := range New(nil, nil).Steps() {
		NewWithT(t).Expect(all).NotTo(HaveKey(step.Name))
		all[step.Name] = step
	}
	for name := range actions {
		for _, step := range StepsOf(name) {
			NewWithT(t).Expect(step).To(Equal(all[step.Name]), "%s of %s", step.Name, name)
		}
	}
	var reboot []v1alpha1.OperationStep
	for _, step := range StepsOf(v1alpha1.RebootAction) {
		reboot = append(reboot, step.Name)
	}
	NewWithT(t).Expect(reboot).To(Equal([]v1alpha1.OperationStep{"Forfeiting", "Evacuating", "Draining", "Rebooting", "Verifying", "Uncordoning"}))
}

// Planner and executor know the same actions.
func TestActions(t *testing.T) {
	NewWithT(t).Expect(slices.Collect(maps.Keys(actions))).To(ConsistOf(nodeplan.Actions))
}

func TestClassify(t *testing.T) {
	g := NewWithT(t)
	g.Expect(New(nil, nil).Classify(guard.ErrNotAllowed)).To(BeEquivalentTo("Interrupted"))
	g.Expect(New(nil, nil).Classify(errors.New("x"))).To(BeEquivalentTo("Retryable"))
}
