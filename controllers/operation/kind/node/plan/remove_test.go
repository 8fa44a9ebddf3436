// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

func dead(n *v1alpha1.NodeParameters) {
	n.Remove = &v1alpha1.RemoveParameters{Manner: v1alpha1.RemoveDead}
}

// leaving is an order to remove a machine that asks for it, and answered with that reason when it was last looked at.
func leaving(controlPlanes int, name, reason string, change func(*v1alpha1.NodeParameters)) plan.Facts {
	f := ordered(controlPlanes, name, v1alpha1.RemoveAction, change)
	for i := range f.Machines {
		if m := &f.Machines[i]; m.Name == name {
			m.Spec.Removal = &v1alpha1.RemovalSpec{Reason: "sold"}
			m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.MachineReadyCondition, Reason: reason}}
		}
	}
	return f
}

func TestRefuseRemove(t *testing.T) {
	on := func(f plan.Facts, change func(*plan.Facts, *v1alpha1.TalosMachine)) plan.Facts {
		for i := range f.Machines {
			if f.Machines[i].Name == f.Spec.Node.Machine {
				change(&f, &f.Machines[i])
			}
		}
		return f
	}
	for name, row := range map[string]struct {
		facts           plan.Facts
		gate, says, way string
	}{
		"a worker":                      {facts: leaving(1, "w-1", "Ready", nil)},
		"one of three":                  {facts: leaving(3, "cp-1", "Ready", nil)},
		"one of two":                    {facts: leaving(2, "cp-1", "NotReady", nil)},
		"the last":                      {leaving(1, "cp-1", "Ready", nil), "Quorum", "the cluster ends with it", "talosctl reset"},
		"a worker that is dead":         {facts: leaving(1, "w-1", "NotReachable", dead)},
		"one of three that is dead":     {facts: leaving(3, "cp-1", "NotReachable", dead)},
		"one of two that is dead":       {leaving(2, "cp-1", "NotReachable", dead), "Quorum", "nobody can remove its member", "ichor cluster restore"},
		"one that answers":              {leaving(3, "cp-1", "Ready", dead), "MachineKnown", "cp-1 answered when it was last looked at: it is not dead", "without --dead"},
		"one that answers, and is sick": {leaving(3, "cp-1", "NotReady", dead), "MachineKnown", "it is not dead", "without --dead"},
		"one that nobody has looked at": {on(leaving(3, "cp-1", "", dead), func(_ *plan.Facts, m *v1alpha1.TalosMachine) { m.Status.Conditions = nil }),
			"MachineKnown", "it is not dead", "within a minute"},
		"one that answers, half-way": {facts: on(leaving(3, "cp-1", "Ready", dead), func(f *plan.Facts, _ *v1alpha1.TalosMachine) {
			f.Units = []v1alpha1.UnitStatus{{Name: "cp-1"}}
		})},
		"one that does not ask": {on(leaving(3, "w-1", "Ready", nil), func(_ *plan.Facts, m *v1alpha1.TalosMachine) { m.Spec.Removal = nil }),
			"MachineKnown", "does not ask to be removed (spec.removal)", "ichor machine remove w-1 --reason REASON"},
		"one that nobody approved": {on(leaving(3, "w-1", "Ready", nil), func(_ *plan.Facts, m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending }),
			"MachineKnown", "is not approved", "ichor machine approve w-1"},
		"one that never joined": {on(leaving(3, "w-1", "Ready", nil), func(_ *plan.Facts, m *v1alpha1.TalosMachine) { m.Spec.Join = &v1alpha1.JoinSpec{} }),
			"MachineKnown", "has not joined", "kubectl delete talosmachine -n default w-1"},
		"one of Cluster API": {on(leaving(3, "w-1", "Ready", nil), func(_ *plan.Facts, m *v1alpha1.TalosMachine) { m.Status.MachineName = "md-1" }),
			"MachineKnown", "is Machine md-1 of Cluster API", "kubectl delete machine -n default md-1"},
		"one where providers make the machines": {on(leaving(3, "w-1", "Ready", nil), func(f *plan.Facts, _ *v1alpha1.TalosMachine) {
			f.CAPICluster = &clusterv1.Cluster{}
			f.CAPICluster.Spec.ControlPlaneRef.Kind = "TalosControlPlane"
		}), "MachineKnown", "made by Cluster API's providers", "scale"},
		"one that nobody knows": {ordered(3, "w-7", v1alpha1.RemoveAction, nil), "MachineKnown", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, refusals := Planner{}.Plan(row.facts)
			if row.gate == "" {
				g.Expect(refusals).To(BeEmpty())
				return
			}
			g.Expect(refusals).To(HaveLen(1))
			g.Expect(refusals[0].Gate).To(Equal(row.gate))
			g.Expect(refusals[0].Message).To(ContainSubstring(row.says))
			g.Expect(refusals[0].Help).To(ContainSubstring(row.way))
		})
	}
}

// The stages of a removal are the same when the machine has no TalosMachine any more: the last one is under way then.
func TestRemoveStages(t *testing.T) {
	gates := []string{"MachinesDiscovered", "TargetReachable", "EtcdHealthy", "ControlPlanesReady", "WorkersAvailable", "MachineSettled"}
	for name, change := range map[string]func(*v1alpha1.NodeParameters){"graceful": nil, "dead": dead} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := leaving(3, "cp-1", "NotReachable", change)
			p, refusals := Planner{}.Plan(f)
			g.Expect(refusals).To(BeEmpty())
			g.Expect(p.Effect).To(Equal(plan.EffectRemove))
			want := []plan.Stage{
				{Name: "Remove", Machines: []string{"cp-1"}, Batch: plan.Batch{Tiered: true}, Disruptive: true, Leaves: true, Gates: gates},
				{Name: "Forget", Whole: true},
			}
			if name == "dead" {
				want[0].Sick, want[0].Gates = true, gates[:4]
				want = append([]plan.Stage{{Name: "ConfirmDead", Machines: []string{"cp-1"}, Batch: plan.Batch{Parallel: 1}}}, want...)
			}
			g.Expect(p.Stages).To(Equal(want))
			g.Expect(p.DisruptedControlPlanes(f.Approved())).To(BeEmpty(), "an even number does not hold it")
			f.Machines = f.Machines[1:]
			gone, _ := Planner{}.Plan(f)
			g.Expect(gone.Stages).To(Equal(want))
		})
	}
}

func TestRemoveSays(t *testing.T) {
	const zombie = " is asked for nothing, and not wiped: if it comes back it belongs to nothing, waits for an approval that it must not get, and has to be wiped"
	for name, row := range map[string]struct {
		facts    plan.Facts
		warnings []string
		losses   []string
	}{
		"five to four": {leaving(5, "cp-1", "Ready", nil), []string{
			"etcd goes on with 4 members and can lose 1 of them: operations on control planes wait until another one joins or leaves",
		}, []string{"cp-1: its machine config", "cp-1: its etcd member 1a2b"}},
		"four to three":  {leaving(4, "cp-1", "Ready", nil), []string{"etcd goes on with 3 members and can lose 1 of them"}, []string{"cp-1: its machine config", "cp-1: its etcd member 1a2b"}},
		"a worker":       {leaving(1, "w-1", "Ready", nil), nil, []string{"w-1: its machine config"}},
		"a dead worker":  {leaving(1, "w-1", "NotReachable", dead), []string{"w-1" + zombie}, []string{"w-1: what pods and volumes had there alone"}},
		"a dead control": {leaving(4, "cp-1", "NotReachable", dead), []string{"cp-1" + zombie, "etcd goes on with 3 members and can lose 1 of them"}, []string{"cp-1: what pods and volumes had there alone", "cp-1: its etcd member 1a2b"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(BeEmpty())
			var warnings []string
			for _, warning := range p.Warnings {
				warnings = append(warnings, warning.Message)
			}
			g.Expect(warnings).To(Equal(row.warnings))
			g.Expect(p.Losses).To(HaveLen(len(row.losses)))
			for i, loss := range row.losses {
				g.Expect(p.Losses[i]).To(HavePrefix(loss))
			}
		})
	}
}

// What is away already may be removed at any hour; and a removal ends at the Kubernetes API.
func TestRemoveTraits(t *testing.T) {
	spec := v1alpha1.TalosOperationSpec{Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Action: v1alpha1.RemoveAction}}
	NewWithT(t).Expect(Planner{}.Traits(spec)).To(Equal(plan.Traits{Windows: plan.WindowsToBegin, StartVerb: "node-remove"}))
	dead(spec.Node)
	NewWithT(t).Expect(Planner{}.Traits(spec)).To(Equal(plan.Traits{StartVerb: "node-remove", Windows: plan.WindowsNever}))
}
