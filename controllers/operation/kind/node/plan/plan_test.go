// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// facts are a cluster of so many control planes and one worker, and an order about one of its machines.
func facts(controlPlanes int, machine string, action v1alpha1.NodeAction) plan.Facts {
	f := plan.Facts{Spec: v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Machine: machine, Action: action}}}
	add := func(name string, role v1alpha1.MachineRole, approval v1alpha1.Approval) {
		f.Machines = append(f.Machines, v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"ichor.maesh.dev/upgrade-hold": ""}},
			Spec:       v1alpha1.TalosMachineSpec{Role: role, Approval: approval},
		})
	}
	for i := range controlPlanes {
		add(fmt.Sprintf("cp-%d", i+1), "ControlPlane", "Approved")
	}
	add("w-1", "Worker", "Approved")
	add("w-9", "Worker", "Pending")
	return f
}

func TestPlan(t *testing.T) {
	alone := []plan.Warning{{Code: "SingleControlPlane", Message: "the only control plane reboots: the Kubernetes API of the cluster is away meanwhile"}}
	quorum := "two control planes: etcd loses its quorum while either of them reboots"
	for name, row := range map[string]struct {
		facts         plan.Facts
		gate, message string
		warnings      []plan.Warning
	}{
		"a held worker: a person named it": {facts: facts(3, "w-1", "Reboot")},
		"one of three":                     {facts: facts(3, "cp-1", "Reboot")},
		"the only one":                     {facts: facts(1, "cp-1", "Reboot"), warnings: alone},
		"one of two (B1)":                  {facts: facts(2, "cp-1", "Reboot"), gate: "Quorum", message: quorum},
		"one of four: judged live":         {facts: facts(4, "cp-1", "Reboot")},
		"the worker beside two":            {facts: facts(2, "w-1", "Reboot")},
		"nobody approved it":               {facts: facts(3, "w-9", "Reboot"), gate: "MachineKnown", message: `TalosMachine "w-9" is not an approved machine of cluster c1`},
		"nobody knows it (A17)":            {facts: facts(3, "w-7", "Reboot"), gate: "MachineKnown", message: `TalosMachine "w-7" is not an approved machine of cluster c1`},
		"another action":                   {facts: facts(3, "w-1", "Explode"), gate: "ActionKnown", message: `this hub does not know action "Explode"; it knows Reboot, Shutdown, RestartService, EtcdDefrag, EtcdForfeitLeadership, Reset, Join, Remove`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{}.Plan(row.facts)
			want := plan.Plan{
				Effect:   "Reboot",
				Warnings: row.warnings,
				Stages: []plan.Stage{{
					Name: "Reboot", Machines: []string{row.facts.Spec.Node.Machine}, Batch: plan.Batch{Tiered: true}, Disruptive: true,
				}},
			}
			if row.gate == "ActionKnown" {
				want = plan.Plan{} // Nobody knows what it would do.
			}
			g.Expect(p).To(Equal(want))
			if row.gate == "" {
				g.Expect(refusals).To(BeEmpty())
				return
			}
			g.Expect(refusals).To(HaveLen(1))
			g.Expect(refusals[0].Gate).To(Equal(row.gate))
			g.Expect(refusals[0].Message).To(Equal(row.message))
			g.Expect(refusals[0].Help).NotTo(BeEmpty())
			g.Expect(refusals[0].Overridable).To(BeFalse())
		})
	}
}

// A reboot brings a cluster nowhere, whatever its spec asks for.
func TestNarrow(t *testing.T) {
	NewWithT(t).Expect(Planner{}.Narrow(v1alpha1.OperationTarget{TalosVersion: "v1.14.1", SchematicID: "a", KubernetesVersion: "v1.36.0"})).To(BeZero())
}

// Case D15: a plan says what its overrides skip.
func TestCaseD15Overrides(t *testing.T) {
	f := facts(3, "w-1", "Reboot")
	f.Spec.Overrides = []v1alpha1.GateOverride{{Gate: "EtcdHealthy", Reason: "x"}}
	p, refusals := Planner{}.Plan(f)
	g := NewWithT(t)
	g.Expect(refusals).To(BeEmpty())
	g.Expect(p.Warnings).To(Equal([]plan.Warning{{Code: "OverrideUseless", Message: "the override of gate EtcdHealthy skips nothing: nobody may bypass it"}}))
}

// Each action has a start verb of its own, so that a role can grant one without another.
func TestTraits(t *testing.T) {
	for action, verb := range map[v1alpha1.NodeAction]string{
		"Reboot": "node-reboot", "Shutdown": "node-shutdown", "RestartService": "node-restart-service", "EtcdDefrag": "node-etcd-defrag",
		"EtcdForfeitLeadership": "node-etcd-forfeit-leadership", "Reset": "node-reset",
	} {
		spec := v1alpha1.TalosOperationSpec{Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Action: action}}
		NewWithT(t).Expect(Planner{}.Traits(spec)).To(Equal(plan.Traits{RecordOptional: true, StartVerb: verb}))
	}
	joins := v1alpha1.TalosOperationSpec{Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Action: v1alpha1.JoinAction}}
	NewWithT(t).Expect(Planner{}.Traits(joins)).To(Equal(plan.Traits{Repeatable: true, Windows: plan.WindowsNever, StartVerb: "node-join"}))
}

// A machine that has rebooted is never done.
func TestAtTarget(t *testing.T) {
	NewWithT(t).Expect(Planner{}.AtTarget(&v1alpha1.TalosMachine{}, v1alpha1.OperationTarget{})).To(BeFalse())
}
