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

func machine(name string, role v1alpha1.MachineRole) v1alpha1.TalosMachine {
	return v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{Role: role, Approval: "Approved"}}
}

// facts are two control planes, of which cp-1 leads etcd, and two workers.
func facts(authorities ...v1alpha1.CAAuthority) plan.Facts {
	return plan.Facts{
		Spec: v1alpha1.TalosOperationSpec{
			ClusterName: "c1", Kind: v1alpha1.CARotationKind, CARotation: &v1alpha1.CARotationParameters{Authorities: authorities},
		},
		Cluster: &v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "prod"}, Status: v1alpha1.TalosClusterStatus{EtcdLeader: "cp-1"},
		},
		Machines: []v1alpha1.TalosMachine{machine("w-1", "Worker"), machine("cp-1", "ControlPlane"), machine("cp-2", "ControlPlane"), machine("w-2", "Worker")},
	}
}

func names(stages []plan.Stage) []string {
	var list []string
	for _, stage := range stages {
		list = append(list, stage.Name)
	}
	return list
}

// Every machine goes through every pass, control planes first; but workers drop the Kubernetes authority first.
func TestPlan(t *testing.T) {
	g := NewWithT(t)
	p, refusals := Planner{}.Plan(facts("Talos", "Kubernetes"))
	g.Expect(refusals).To(BeEmpty())
	all, workers, controlPlanes := []string{"cp-2", "cp-1", "w-1", "w-2"}, []string{"w-1", "w-2"}, []string{"cp-2", "cp-1"}
	pass := func(name string, unsafe bool, machines []string) plan.Stage {
		return plan.Stage{Name: name, Machines: machines, Batch: plan.Batch{Tiered: true}, Disruptive: true, KeepsEtcd: true, Unsafe: unsafe, Kept: true, MayLose: true}
	}
	whole := func(name string, unsafe bool) plan.Stage {
		return plan.Stage{Name: name, Whole: true, Unsafe: unsafe, Kept: true}
	}
	dropsKubernetes := pass("KubernetesDrop", true, controlPlanes)
	dropsKubernetes.Gates = []string{"MachinesDiscovered", "TargetReachable", "EtcdHealthy"}
	g.Expect(p.Stages).To(Equal([]plan.Stage{
		{Name: "Prepare", Whole: true},
		pass("TalosAccept", false, all), whole("TalosTrust", false), pass("TalosSwap", true, all), whole("TalosAwaitingCredentials", true), pass("TalosDrop", true, all),
		pass("KubernetesAccept", false, all), whole("KubernetesTrust", false), pass("KubernetesSwap", true, all), whole("KubernetesAwaitingCredentials", true),
		pass("KubernetesDropWorkers", true, workers), dropsKubernetes,
		{Name: "Finish", Whole: true},
	}))
	g.Expect(p.Effect).To(Equal(plan.EffectCARotation))
	g.Expect(p.Losses).To(ConsistOf("credentials that the old Talos and Kubernetes authorities has signed are refused in the end, whoever keeps them"))
	g.Expect(p.KeepsEtcd()).To(BeTrue())
	g.Expect(Planner{}.Traits(facts("Kubernetes", "Talos").Spec)).To(Equal(plan.Traits{
		Windows: plan.WindowsToBegin, StartVerb: "ca-rotation", Confirmable: []string{"KubernetesAwaitingCredentials", "TalosAwaitingCredentials"},
	}))
	g.Expect(Planner{}.Narrow(v1alpha1.OperationTarget{TalosVersion: "v1.14.1"})).To(BeZero())
	for _, stage := range p.Stages {
		g.Expect(len(stage.Name)).To(BeNumerically("<=", 32), stage.Name)
	}
}

func TestPlanOfAClusterWithoutWorkers(t *testing.T) {
	g := NewWithT(t)
	f := facts("Kubernetes")
	f.Machines = []v1alpha1.TalosMachine{machine("cp-1", "ControlPlane")}
	p, _ := Planner{}.Plan(f)
	g.Expect(names(p.Stages)).To(Equal([]string{
		"Prepare", "KubernetesAccept", "KubernetesTrust", "KubernetesSwap", "KubernetesAwaitingCredentials", "KubernetesDrop", "Finish",
	}))
	g.Expect(p.Warnings).To(ContainElement(HaveField("Code", "SingleControlPlane")))
}

// What is not rotated is said.
func TestWarnings(t *testing.T) {
	g := NewWithT(t)
	p, _ := Planner{}.Plan(facts("Talos"))
	g.Expect(p.Warnings).To(ConsistOf(
		plan.Warning{Code: "NotRotated", Message: "not rotated: the authorities of etcd and of the API aggregator, of which Talos accepts no second one, and that of the Kubernetes API, which nobody has asked for"},
		HaveField("Code", "CredentialsChange"),
	))
	adopted := facts("Talos", "Kubernetes")
	adopted.CAPICluster = &clusterv1.Cluster{}
	adopted.CAPICluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c1"}
	p, _ = Planner{}.Plan(adopted)
	g.Expect(p.Warnings).To(ContainElements(
		plan.Warning{Code: "NotRotated", Message: "not rotated: the authorities of etcd and of the API aggregator, of which Talos accepts no second one"},
		plan.Warning{Code: "ProviderSecrets", Message: "Secrets that TalosControlPlane and its bootstrap provider keep are written: c1-talosconfig, c1-kubeconfig, c1-talos and c1-ca"},
		HaveField("Code", "ComponentsRestart"),
	))
}

// No machine is left out: who would be is named.
func TestRefusals(t *testing.T) {
	held := facts("Talos")
	held.Machines[3].Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": ""}
	pending := facts("Talos")
	pending.Machines[0].Spec.Approval = "Pending"
	half := facts("Talos")
	half.Machines[0].Spec.Join, half.Machines[0].Annotations = &v1alpha1.JoinSpec{}, map[string]string{v1alpha1.ProvisionedAtAnnotation: "2026-01-01T00:00:00Z"}
	blank := facts("Talos")
	blank.Machines[0].Spec.Join = &v1alpha1.JoinSpec{}
	_, refusals := Planner{}.Plan(blank)
	NewWithT(t).Expect(refusals).To(BeEmpty(), "it has nothing of the cluster")
	empty := facts("Talos")
	empty.Machines = nil
	for name, row := range map[string]struct {
		facts plan.Facts
		want  plan.Refusal
	}{
		"a held machine": {held, plan.Refusal{
			Gate: "MachineHeld", Message: "machine w-2 is held: a rotation leaves no machine out, which would be locked out", Help: "ichor machine unhold w-2 --cluster c1",
		}},
		"a machine that is not approved": {pending, plan.Refusal{
			Gate: "MachineKnown", Message: "machine w-1 is not approved, and so not touched: it would be locked out", Help: "ichor machine approve w-1 --cluster c1; or remove it",
		}},
		"a machine that has not joined yet": {half, plan.Refusal{
			Gate: "MachineKnown", Message: "machine w-1 was given its machine config, and has not joined yet: it would be locked out",
			Help: "see it through: ichor node join w-1; or wipe it, and: kubectl delete talosmachine -n " + half.Machines[0].Namespace + " w-1",
		}},
		"no control plane": {empty, plan.Refusal{
			Gate: "MachineKnown", Message: "no control plane of cluster c1 is known: its authorities are there", Help: "ichor cluster get c1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, refusals := Planner{}.Plan(row.facts)
			NewWithT(t).Expect(refusals).To(Equal([]plan.Refusal{row.want}))
		})
	}
}

// status is what an operation has done: stages that are over, and who is where.
type status struct {
	over  []string
	units []v1alpha1.UnitStatus
	whole []v1alpha1.UnitStatus
}

func (s status) of(f plan.Facts) plan.Facts {
	f.CompletedStages, f.Units, f.Whole, f.TurnBack = s.over, s.units, s.whole, true
	return f
}

func at(name, stage, completed string, step v1alpha1.OperationStep) v1alpha1.UnitStatus {
	return v1alpha1.UnitStatus{Name: name, Stage: stage, CompletedStage: completed, Step: step}
}

// The way back begins where the rotation is: who is in hand comes to the end of the pass, nobody else is begun with, and each pass is taken back.
func TestTurnBack(t *testing.T) {
	first := []string{"Prepare", "TalosAccept", "TalosTrust"}
	rotated := []string{"Prepare", "TalosAccept", "TalosTrust", "TalosSwap", "TalosAwaitingCredentials", "TalosDrop"}
	for name, row := range map[string]struct {
		status status
		want   []string
		inHand map[string][]string
		noWay  bool
	}{
		"nothing was begun with": {status{}, []string{"Finish"}, nil, false},
		"it prepares":            {status{whole: []v1alpha1.UnitStatus{at("Prepare", "Prepare", "", "Generating")}}, []string{"Prepare", "Finish"}, nil, false},
		"a machine accepts": {
			status{over: first[:1], units: []v1alpha1.UnitStatus{at("cp-2", "TalosAccept", "", "Applying")}},
			[]string{"Prepare", "TalosAccept", "TalosBackAccept", "Finish"}, map[string][]string{"TalosAccept": {"cp-2"}}, false,
		},
		"a machine has accepted, and was paused": {
			status{over: first[:1], units: []v1alpha1.UnitStatus{{Name: "cp-2", Steps: []v1alpha1.StepRecord{{Step: "Applying", Stage: "TalosAccept"}}}}},
			[]string{"Prepare", "TalosAccept", "TalosBackAccept", "Finish"}, map[string][]string{"TalosAccept": {}}, false,
		},
		"credentials trust both": {
			status{over: first[:2], units: []v1alpha1.UnitStatus{at("cp-2", "TalosAccept", "TalosAccept", "")}, whole: []v1alpha1.UnitStatus{at("TalosTrust", "TalosTrust", "", "Trusting")}},
			[]string{"Prepare", "TalosAccept", "TalosTrust", "TalosBackCredentials", "TalosBackAccept", "Finish"}, nil, false,
		},
		"machines swap": {
			status{over: first, units: []v1alpha1.UnitStatus{at("cp-2", "TalosSwap", "TalosSwap", ""), at("cp-1", "TalosSwap", "TalosAccept", "Verifying")}},
			[]string{"Prepare", "TalosAccept", "TalosTrust", "TalosSwap", "TalosBackTrust", "TalosBackSwap", "TalosBackCredentials", "TalosBackAccept", "Finish"},
			map[string][]string{"TalosSwap": {"cp-1"}, "TalosBackSwap": {"cp-2", "cp-1", "w-1", "w-2"}}, false,
		},
		"people are waited for": {
			status{over: rotated[:4], whole: []v1alpha1.UnitStatus{at("TalosAwaitingCredentials", "TalosAwaitingCredentials", "", "AwaitingCredentials")}},
			[]string{"Prepare", "TalosAccept", "TalosTrust", "TalosSwap", "TalosAwaitingCredentials", "TalosBackTrust", "TalosBackSwap", "TalosBackCredentials", "TalosBackAccept", "Finish"}, nil, false,
		},
		"a machine drops, and the other authority is not begun with": {
			status{over: rotated[:5], units: []v1alpha1.UnitStatus{at("cp-2", "TalosDrop", "TalosSwap", "Applying")}},
			append(append([]string{}, rotated...), "Finish"), map[string][]string{"TalosDrop": {"cp-2", "cp-1", "w-1", "w-2"}}, false,
		},
		"the second authority is swapped": {
			status{over: append(append([]string{}, rotated...), "KubernetesAccept", "KubernetesTrust"), units: []v1alpha1.UnitStatus{at("cp-2", "KubernetesSwap", "KubernetesAccept", "Verifying")}},
			append(append([]string{}, rotated...), "KubernetesAccept", "KubernetesTrust", "KubernetesSwap",
				"KubernetesBackTrust", "KubernetesBackSwap", "KubernetesBackCredentials", "KubernetesBackAcceptWorkers", "KubernetesBackAccept", "Finish"),
			map[string][]string{"KubernetesBackAcceptWorkers": {"w-1", "w-2"}, "KubernetesBackAccept": {"cp-1", "cp-2"}}, false,
		},
		"a worker drops the last authority": {
			status{
				over:  append(append([]string{}, rotated...), "KubernetesAccept", "KubernetesTrust", "KubernetesSwap", "KubernetesAwaitingCredentials"),
				units: []v1alpha1.UnitStatus{at("w-1", "KubernetesDropWorkers", "KubernetesSwap", "Applying")},
			},
			append(append([]string{}, rotated...), "KubernetesAccept", "KubernetesTrust", "KubernetesSwap", "KubernetesAwaitingCredentials",
				"KubernetesDropWorkers", "KubernetesDrop", "Finish"), nil, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{}.Plan(row.status.of(facts("Talos", "Kubernetes")))
			g.Expect(refusals).To(BeEmpty())
			g.Expect(names(p.Stages)).To(Equal(row.want))
			g.Expect(p.TurnsBack).To(Equal(!row.noWay))
			why := BeEmpty()
			if row.noWay {
				why = Not(why)
			}
			g.Expect(p.NoWayBack).To(why)
			for _, stage := range p.Stages {
				if want, ok := row.inHand[stage.Name]; ok {
					g.Expect(stage.Machines).To(ConsistOf(want), stage.Name)
				}
			}
		})
	}
}

// The service refuses what would come too late. While the first of two authorities is dropped there is no way back for it, and the other one is
// left alone on request only once the first is through.
func TestNoWayBack(t *testing.T) {
	dropping := at("cp-2", "TalosDrop", "TalosSwap", "Applying")
	op := &v1alpha1.TalosOperation{Spec: facts("Talos", "Kubernetes").Spec}
	g := NewWithT(t)
	g.Expect(Planner{}.NoWayBack(op)).To(BeEmpty())
	op.Status.Machines = []v1alpha1.UnitStatus{dropping}
	g.Expect(Planner{}.NoWayBack(op)).To(Equal("machines have begun to drop the old Talos authority: there is no way back, and the rotation goes on to its end"))
	op.Status.CompletedStages = []string{"TalosDrop"}
	g.Expect(Planner{}.NoWayBack(op)).To(BeEmpty())
	op.Status.Machines = append(op.Status.Machines, at("w-1", "KubernetesDropWorkers", "", "Applying"))
	g.Expect(Planner{}.NoWayBack(op)).To(ContainSubstring("the old Kubernetes authority"))
	op.Status.CompletedStages = append(op.Status.CompletedStages, "KubernetesDrop")
	g.Expect(Planner{}.NoWayBack(op)).To(ContainSubstring("the old Kubernetes authority"))
}
