// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

var hash = strings.Repeat("a", 64)

func machine(name string, role v1alpha1.MachineRole, effect v1alpha1.ConfigEffect) v1alpha1.TalosMachine {
	return v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TalosMachineSpec{Role: role, Approval: "Approved"},
		Status:     v1alpha1.TalosMachineStatus{NodeName: "n-" + name, Config: &v1alpha1.MachineConfigStatus{SpecHash: hash, Effect: effect, Diff: "+" + name}},
	}
}

// facts are three control planes and two workers that have to reboot for their config.
func facts(change ...func(*plan.Facts)) plan.Facts {
	f := plan.Facts{
		Spec:    v1alpha1.TalosOperationSpec{Kind: "config"},
		Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Status: v1alpha1.TalosClusterStatus{EtcdLeader: "cp-1"}},
		Target:  v1alpha1.OperationTarget{MachineConfigHash: hash},
		Machines: []v1alpha1.TalosMachine{
			machine("w-1", "Worker", "Reboot"), machine("cp-1", "ControlPlane", "Reboot"), machine("cp-2", "ControlPlane", "Reboot"),
			machine("w-2", "Worker", "Reboot"), machine("cp-3", "ControlPlane", "Reboot"),
		},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func effects1(of map[string]v1alpha1.ConfigEffect) func(*plan.Facts) {
	return func(f *plan.Facts) {
		for i := range f.Machines {
			if effect, ok := of[f.Machines[i].Name]; ok {
				f.Machines[i].Status.Config.Effect = effect
			}
		}
	}
}

func on(name string, change func(*v1alpha1.TalosMachine)) func(*plan.Facts) {
	return func(f *plan.Facts) {
		for i := range f.Machines {
			if f.Machines[i].Name == name {
				change(&f.Machines[i])
			}
		}
	}
}

func without(names ...string) func(*plan.Facts) {
	return func(f *plan.Facts) {
		var kept []v1alpha1.TalosMachine
		for _, m := range f.Machines {
			if !strings.Contains(strings.Join(names, " ")+" ", m.Name+" ") {
				kept = append(kept, m)
			}
		}
		f.Machines = kept
	}
}

func begunWith(units ...v1alpha1.UnitStatus) func(*plan.Facts) {
	return func(f *plan.Facts) { f.Units = units }
}

// sketch is a plan in a few words: "Canary! w-1; Rollout cp-2 w-2", in which ! stands for stages that take machines away.
func sketch(p plan.Plan) string {
	var stages []string
	for _, stage := range p.Stages {
		mark := ""
		if stage.Disruptive {
			mark = "!"
		}
		stages = append(stages, stage.Name+mark+" "+strings.Join(stage.Machines, " "))
	}
	return strings.Join(stages, "; ")
}

func TestPlan(t *testing.T) {
	none, live := v1alpha1.ConfigEffect("None"), v1alpha1.ConfigEffect("Live")
	all := map[string]v1alpha1.ConfigEffect{"w-1": none, "w-2": none, "cp-1": none, "cp-2": none, "cp-3": none}
	for name, row := range map[string]struct {
		facts  plan.Facts
		effect plan.Effect
		want   string
		held   []string
	}{
		"all reboot": {facts(), "Reboot", "Check cp-2 cp-3 cp-1 w-1 w-2; Canary! w-1; Rollout! cp-2 cp-3 cp-1 w-2", nil},
		"only control planes differ, and the leader is last": {facts(effects1(map[string]v1alpha1.ConfigEffect{"w-1": none, "w-2": none})),
			"Reboot", "Check cp-2 cp-3 cp-1; Canary! cp-2; Rollout! cp-3 cp-1", nil},
		"one goes through more than the others": {facts(effects1(map[string]v1alpha1.ConfigEffect{"w-1": live, "cp-1": none, "cp-2": none, "cp-3": live})),
			"Reboot", "Check cp-3 w-1 w-2; Canary! w-2; Rollout cp-3 w-1", nil},
		"live takes nothing away": {facts(effects1(map[string]v1alpha1.ConfigEffect{"w-1": live, "w-2": live, "cp-1": live, "cp-2": live, "cp-3": live})),
			"RestartComponents", "Check cp-2 cp-3 cp-1 w-1 w-2; Canary w-1; Rollout cp-2 cp-3 cp-1 w-2", nil},
		"one machine":         {facts(effects1(all), effects1(map[string]v1alpha1.ConfigEffect{"w-2": live})), "RestartComponents", "Check w-2; Canary w-2", nil},
		"at the next upgrade": {facts(effects1(all), effects1(map[string]v1alpha1.ConfigEffect{"w-2": "Upgrade"})), "None", "Check w-2; Canary w-2", nil},
		"nothing differs":     {facts(effects1(all)), "None", "Check cp-2 cp-3 cp-1 w-1 w-2", nil},
		"held": {facts(on("w-1", func(m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "disk"}
		})), "Reboot", "Check cp-2 cp-3 cp-1 w-2; Canary! w-2; Rollout! cp-2 cp-3 cp-1", []string{"w-1"}},
		"named": {facts(func(f *plan.Facts) {
			f.Spec.Config = &v1alpha1.ConfigParameters{Machines: []string{"w-2", "cp-1"}}
		}), "Reboot", "Check cp-1 w-2; Canary! w-2; Rollout! cp-1", nil},
		"the canary is done, and is the canary still": {facts(effects1(map[string]v1alpha1.ConfigEffect{"w-1": none}), begunWith(
			v1alpha1.UnitStatus{Name: "w-1", Phase: "Completed", CompletedStage: "Canary"})), "Reboot", "Check cp-2 cp-3 cp-1 w-1 w-2; Canary w-1; Rollout! cp-2 cp-3 cp-1 w-2", nil},
		"the canary was put back to its beginning": {facts(effects1(map[string]v1alpha1.ConfigEffect{"w-1": none}), begunWith(
			v1alpha1.UnitStatus{Name: "w-2", CompletedStage: "Check", Steps: []v1alpha1.StepRecord{{Step: "Staging", Stage: "Canary"}}})),
			"Reboot", "Check cp-2 cp-3 cp-1 w-2; Canary! w-2; Rollout! cp-2 cp-3 cp-1", nil},
		"begun with, and held since": {facts(effects1(all), begunWith(v1alpha1.UnitStatus{Name: "w-1", Stage: "Canary"}), on("w-1", func(m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: ""}
		})), "None", "Check w-1; Canary w-1", []string{"w-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(BeEmpty())
			g.Expect(sketch(p)).To(Equal(row.want))
			g.Expect(p.Effect).To(Equal(row.effect))
			g.Expect(p.Held).To(Equal(row.held))
			for _, stage := range p.Stages {
				g.Expect(stage.Batch.Tiered).To(Equal(stage.Name != CheckStage))
			}
		})
	}
}

// Whoever reads a plan sees what becomes of each machine.
func TestChanges(t *testing.T) {
	g := NewWithT(t)
	p, _ := Planner{}.Plan(facts(effects1(map[string]v1alpha1.ConfigEffect{"w-1": "None", "w-2": "Live", "cp-3": "Upgrade"})))
	g.Expect(p.Changes).To(Equal(map[string]plan.Change{
		"w-1": {Effect: "None", Diff: "+w-1"}, "w-2": {Effect: "RestartComponents", Diff: "+w-2"}, "cp-3": {Effect: "None", Diff: "+cp-3"},
		"cp-1": {Effect: "Reboot", Diff: "+cp-1"}, "cp-2": {Effect: "Reboot", Diff: "+cp-2"},
	}))
	g.Expect(p.Warnings).To(ConsistOf(plan.Warning{
		Code: "TakesEffectLater", Message: "what changes on cp-3 is read when Talos is next installed or upgraded: it is brought to the machines, and takes effect then",
	}))
}

func TestRefusals(t *testing.T) {
	for name, row := range map[string]struct {
		facts   plan.Facts
		gate    string
		passing bool
		message string
	}{
		"a machine that nobody knows": {facts(func(f *plan.Facts) { f.Spec.Config = &v1alpha1.ConfigParameters{Machines: []string{"w-9"}} }),
			"MachineKnown", false, `TalosMachine "w-9" is not an approved machine of cluster c1`},
		"no machine": {facts(func(f *plan.Facts) { f.Machines = nil }), "MachineKnown", false, "cluster c1 has no approved machine"},
		"not compared yet": {facts(on("w-2", func(m *v1alpha1.TalosMachine) { m.Status.Config = nil })),
			"MachineConfigKnown", true, "the machine config of w-2 has not been compared with what is asked for yet"},
		"compared with other patches": {facts(on("w-2", func(m *v1alpha1.TalosMachine) { m.Status.Config.SpecHash = "old" })),
			"MachineConfigKnown", true, "the machine config of w-2 has not been compared with what is asked for yet"},
		"trouble": {facts(on("w-2", func(m *v1alpha1.TalosMachine) {
			m.Status.Config = &v1alpha1.MachineConfigStatus{SpecHash: hash, Trouble: `patch "a": it is not YAML`}
		})), "MachineConfigKnown", false, `the machine config of w-2: patch "a": it is not YAML`},
		"somebody tries one": {facts(on("w-2", func(m *v1alpha1.TalosMachine) { m.Status.Config.Pending = "somebody tries one" })),
			"MachineConfigPending", true, "w-2: somebody tries one"},
		"two control planes": {facts(without("cp-3")), "Quorum", false, "two control planes: etcd loses its quorum while either of them reboots"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(HaveLen(1))
			g.Expect(refusals[0]).To(And(HaveField("Gate", row.gate), HaveField("Passing", row.passing), HaveField("Message", row.message), HaveField("Help", Not(BeEmpty()))))
			g.Expect(len(refusals[0].Help)).To(BeNumerically("<=", 256))
		})
	}
	g := NewWithT(t)
	_, refusals := Planner{}.Plan(facts(without("cp-3"), effects1(map[string]v1alpha1.ConfigEffect{"cp-1": "Live", "cp-2": "Live"})))
	g.Expect(refusals).To(BeEmpty(), "no control plane reboots")
	p, refusals := Planner{}.Plan(facts(without("cp-2", "cp-3")))
	g.Expect(refusals).To(BeEmpty())
	g.Expect(p.Warnings).To(ConsistOf(plan.Outage))
	_, refusals = Planner{}.Plan(facts(begunWith(v1alpha1.UnitStatus{Name: "w-2", Stage: "Canary", Step: "Rebooting"}), on("w-2", func(m *v1alpha1.TalosMachine) {
		m.Status.Config.Pending = "staged"
	})))
	g.Expect(refusals).To(BeEmpty(), "what is staged on a machine in hand is our own")
}

func TestTarget(t *testing.T) {
	g := NewWithT(t)
	target := v1alpha1.OperationTarget{TalosVersion: "v1.14.1", KubernetesVersion: "v1.36.0", MachineConfigHash: hash}
	g.Expect(Planner{}.Narrow(target)).To(Equal(v1alpha1.OperationTarget{MachineConfigHash: hash}))
	g.Expect(Planner{}.Traits(v1alpha1.TalosOperationSpec{Kind: "config"})).To(Equal(plan.Traits{Repeatable: true, StartVerb: "config"}))
	for name, row := range map[string]struct {
		config *v1alpha1.MachineConfigStatus
		want   bool
	}{
		"has it":      {&v1alpha1.MachineConfigStatus{SpecHash: hash, Effect: "None"}, true},
		"unknown":     {nil, false},
		"had it":      {&v1alpha1.MachineConfigStatus{SpecHash: "old", Effect: "None"}, false},
		"tries it":    {&v1alpha1.MachineConfigStatus{SpecHash: hash, Effect: "None", Pending: "tried"}, false},
		"has another": {&v1alpha1.MachineConfigStatus{SpecHash: hash, Effect: "Upgrade"}, false},
	} {
		m := machine("w", "Worker", "None")
		m.Status.Config = row.config
		g.Expect(Planner{}.AtTarget(&m, target)).To(Equal(row.want), name)
	}
}
