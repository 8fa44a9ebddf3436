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

// newcomer is a machine that is approved and is to join.
func newcomer(name string, role v1alpha1.MachineRole) v1alpha1.TalosMachine {
	return v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterName: "c1", Role: role, Address: "10.0.0.9", UUID: "u", Approval: v1alpha1.Approved, Join: &v1alpha1.JoinSpec{Fingerprint: "F"},
		},
	}
}

func TestJoin(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*plan.Facts, *v1alpha1.TalosMachine)
		message string
	}{
		"one that may":         {},
		"not approved":         {func(_ *plan.Facts, m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending }, "TalosMachine new is not approved"},
		"one that never asked": {func(_ *plan.Facts, m *v1alpha1.TalosMachine) { m.Spec.Join = nil }, "TalosMachine new does not ask to join (spec.join)"},
		"one that has joined": {func(_ *plan.Facts, m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{v1alpha1.JoinedAtAnnotation: "2026-01-01T00:00:00Z"}
		}, "TalosMachine new has joined at 2026-01-01T00:00:00Z"},
		"one that joins under its hands": {func(f *plan.Facts, m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{v1alpha1.JoinedAtAnnotation: "2026-01-01T00:00:00Z"}
			f.Units = []v1alpha1.UnitStatus{{Name: "new"}}
		}, ""},
		"called like another": {func(f *plan.Facts, m *v1alpha1.TalosMachine) {
			m.Spec.Join.Hostname, f.Machines[1].Status.NodeName = "cp-9", "CP-9.example.com"
		}, "TalosMachine new asks for hostname \"cp-9\" (spec.join.hostname), and TalosMachine cp-2 is called so: Talos would put it in the place of that one"},
		"that will be called like another": {func(f *plan.Facts, m *v1alpha1.TalosMachine) {
			other := newcomer("newer", v1alpha1.WorkerRole)
			m.Spec.Join.Hostname, other.Spec.Join.Hostname = "w-9", "w-9"
			f.Machines = append(f.Machines, other)
		}, "TalosMachine new asks for hostname \"w-9\" (spec.join.hostname), and TalosMachine newer is called so: Talos would put it in the place of that one"},
		"of whom nobody knows who it is": {func(_ *plan.Facts, m *v1alpha1.TalosMachine) { m.Spec.UUID = "" },
			"TalosMachine new does not say where the machine is and which one (spec.address, spec.uuid)"},
		"that providers make": {func(f *plan.Facts, _ *v1alpha1.TalosMachine) {
			f.CAPICluster = &clusterv1.Cluster{}
			f.CAPICluster.Spec.ControlPlaneRef.Kind = "TalosControlPlane"
			f.CAPICluster.Spec.ControlPlaneRef.Name = "c1"
		}, "the machines of cluster c1 are made by Cluster API's providers"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f, machine := facts(3, "new", "Join"), newcomer("new", v1alpha1.WorkerRole)
			if row.change != nil {
				row.change(&f, &machine)
			}
			f.Machines = append(f.Machines, machine)
			_, refusals := Planner{}.Plan(f)
			if row.message == "" {
				g.Expect(refusals).To(BeEmpty())
				return
			}
			g.Expect(refusals).To(HaveExactElements(And(
				HaveField("Gate", "MachineKnown"), HaveField("Message", row.message), HaveField("Passing", false), HaveField("Overridable", false))))
		})
	}
}

// A control plane asks for etcd, a worker does not, and neither for an odd number of control planes.
func TestJoinStages(t *testing.T) {
	for role, want := range map[v1alpha1.MachineRole]struct {
		stage string
		gates []string
	}{
		v1alpha1.ControlPlaneRole: {"JoinControlPlane", []string{"MachinesDiscovered", "TargetReachable", "EtcdHealthy", "ControlPlanesReady"}},
		v1alpha1.WorkerRole:       {"JoinWorker", []string{"MachinesDiscovered", "TargetReachable"}},
	} {
		g := NewWithT(t)
		f, machine := facts(4, "new", "Join"), newcomer("new", role)
		f.Machines = append(f.Machines, machine)
		made, refusals := Planner{}.Plan(f)
		g.Expect(refusals).To(BeEmpty())
		g.Expect(made.Effect).To(Equal(plan.EffectJoin))
		g.Expect(made.Stages).To(HaveExactElements(And(HaveField("Name", want.stage), HaveField("Gates", want.gates), HaveField("Joins", true))))
		g.Expect(made.Stages[0].Asks("ControlPlaneTransitioning")).To(BeFalse())
		g.Expect(JoinsEtcd(made.Stages[0].Name)).To(Equal(role == v1alpha1.ControlPlaneRole))
		g.Expect(made.DisruptedControlPlanes(f.Approved())).To(BeEmpty())
		g.Expect(made.Warnings).To(ContainElement(HaveField("Code", "GivesSecrets")))
	}
}

// People are told who names the machine, and what its machine config is made from.
func TestJoinWarns(t *testing.T) {
	codes := func(role v1alpha1.MachineRole, controlPlanes int, hostname string) string {
		f, machine := facts(controlPlanes, "new", "Join"), newcomer("new", role)
		machine.Spec.Join.Hostname = hostname
		f.Machines = append(f.Machines, machine)
		made, refusals := Planner{}.Plan(f)
		NewWithT(t).Expect(refusals).To(BeEmpty())
		text := ""
		for _, warning := range made.Warnings {
			text += warning.Code + ": " + warning.Message + "\n"
		}
		return text
	}
	g := NewWithT(t)
	g.Expect(codes(v1alpha1.ControlPlaneRole, 3, "")).To(And(ContainSubstring("NameNotGiven: "), ContainSubstring("nor a virtual IP")))
	g.Expect(codes(v1alpha1.ControlPlaneRole, 1, "cp-2")).To(And(Not(ContainSubstring("NameNotGiven")), ContainSubstring("the only other machine of its role")))
	worker := facts(1, "new", "Join")
	worker.Machines = append(worker.Machines[:1:1], newcomer("new", v1alpha1.WorkerRole))
	made, _ := Planner{}.Plan(worker)
	g.Expect(made.Warnings).To(ContainElement(And(HaveField("Code", "Model"), HaveField("Message", ContainSubstring("it is the first worker")))))
}

// A reset that removes a control plane crosses even numbers of them; one that keeps the machine does not.
func TestResetAndEvenNumbers(t *testing.T) {
	g := NewWithT(t)
	for wipe, even := range map[v1alpha1.WipeTarget]bool{v1alpha1.WipeSystem: false, v1alpha1.WipeUserVolumes: true} {
		f := facts(4, "cp-2", "Reset")
		f.Spec.Node.Reset = &v1alpha1.ResetParameters{Wipe: []v1alpha1.WipeTarget{wipe}}
		made, _ := Planner{}.Plan(f)
		g.Expect(made.Stages[0].Asks("ControlPlaneTransitioning")).To(Equal(even), string(wipe))
		g.Expect(made.Stages[0].Asks("EtcdHealthy")).To(BeTrue())
	}
}

// A cluster has seven control planes at most; workers are as many as there are.
func TestJoinKeepsEtcdSmall(t *testing.T) {
	for _, role := range []v1alpha1.MachineRole{v1alpha1.ControlPlaneRole, v1alpha1.WorkerRole} {
		for _, controlPlanes := range []int{6, 7} {
			g := NewWithT(t)
			f := ordered(controlPlanes, "new", v1alpha1.JoinAction, nil)
			f.Machines = append(f.Machines, newcomer("new", role))
			_, refusals := Planner{}.Plan(f)
			if role == v1alpha1.WorkerRole || controlPlanes < 7 {
				g.Expect(refusals).To(BeEmpty())
				continue
			}
			g.Expect(refusals).To(ConsistOf(HaveField("Message", "cluster c1 has 7 control planes: with more, etcd is slower and no safer")))
		}
	}
}
