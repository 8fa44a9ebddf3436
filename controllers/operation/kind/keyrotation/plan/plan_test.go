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

const both = v1alpha1.RotatedKey("both")

// facts are a cluster of three control planes, of which cp-1 leads, and a worker, all on a Talos that can.
func facts(key v1alpha1.RotatedKey, change ...func(*plan.Facts)) plan.Facts {
	f := plan.Facts{Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}, CAPICluster: &clusterv1.Cluster{}}
	f.Cluster.Status.EtcdLeader = "cp-1"
	keys := []v1alpha1.RotatedKey{key}
	if key == both {
		keys = []v1alpha1.RotatedKey{v1alpha1.ServiceAccountKey, v1alpha1.SecretboxKey}
	}
	f.Spec = v1alpha1.TalosOperationSpec{Kind: v1alpha1.KeyRotationKind, ClusterName: "c1", KeyRotation: &v1alpha1.KeyRotationParameters{Keys: keys}}
	for name, role := range map[string]v1alpha1.MachineRole{"cp-1": "ControlPlane", "cp-2": "ControlPlane", "cp-3": "ControlPlane", "w-1": "Worker"} {
		m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{Role: role, Approval: v1alpha1.Approved}}
		m.Status.TalosVersion = "v1.14.1"
		f.Machines = append(f.Machines, m)
	}
	for _, c := range change {
		c(&f)
	}
	return f
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

func runs(version string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = version }
}

func stored(f *plan.Facts) {
	f.Cluster.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "s3://bucket"}
}

func names(stages []plan.Stage) []string {
	var list []string
	for _, stage := range stages {
		list = append(list, stage.Name)
	}
	return list
}

func TestStages(t *testing.T) {
	account := []string{"AcceptServiceAccount", "SwapServiceAccount", "RefreshTokens", "DropServiceAccount"}
	secretbox := []string{"AcceptSecretbox", "SwapSecretbox", "Rewrite", "DropSecretbox"}
	begin, end := []string{"Check", "Keys", "Migrate"}, []string{"Bundle"}
	join := func(lists ...[]string) (all []string) {
		for _, list := range lists {
			all = append(all, list...)
		}
		return all
	}
	for name, row := range map[string]struct {
		facts plan.Facts
		want  []string
	}{
		"service accounts":           {facts(v1alpha1.ServiceAccountKey, stored), join(begin, account, end)},
		"secretbox":                  {facts(v1alpha1.SecretboxKey), join(begin, secretbox, end)},
		"secretbox, with a snapshot": {facts(v1alpha1.SecretboxKey, stored), join(begin, []string{"Snapshot"}, secretbox, end)},
		"both":                       {facts(both, stored), join(begin, account, []string{"Snapshot"}, secretbox, end)},
		"both, the other way round": {facts(both, func(f *plan.Facts) {
			f.Spec.KeyRotation.Keys = []v1alpha1.RotatedKey{v1alpha1.SecretboxKey, v1alpha1.ServiceAccountKey}
		}), join(begin, secretbox, account, end)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{StoresSnapshots: true}.Plan(row.facts)
			g.Expect(refusals).To(BeEmpty())
			g.Expect(names(p.Stages)).To(Equal(row.want))
			for _, stage := range p.Stages {
				g.Expect(stage.Unsafe).To(Equal(Unsafe(stage.Name)), stage.Name)
				g.Expect(len(stage.Name)).To(BeNumerically("<=", 32))
				if !Passes(stage.Name) {
					g.Expect(stage.Disruptive).To(BeFalse(), stage.Name)
					continue
				}
				g.Expect(stage).To(And(HaveField("Disruptive", true), HaveField("KeepsEtcd", true), HaveField("Batch.Tiered", true)), stage.Name)
				g.Expect(stage.Machines).To(Equal([]string{"cp-2", "cp-3", "cp-1"}), "control planes only, the leader last")
			}
			g.Expect(p.Effect).To(Equal(plan.EffectKeyRotation))
			g.Expect(p.Changes).To(And(HaveLen(3), Not(HaveKey("w-1"))))
		})
	}
	g := NewWithT(t)
	p, _ := Planner{}.Plan(facts(v1alpha1.SecretboxKey, stored))
	g.Expect(names(p.Stages)).NotTo(ContainElement("Snapshot"), "this hub stores none")
}

func TestWarnings(t *testing.T) {
	for name, row := range map[string]struct {
		facts plan.Facts
		codes []string
	}{
		"service accounts":           {facts(v1alpha1.ServiceAccountKey), []string{"APIServersRestart", "TokensExpire"}},
		"secretbox":                  {facts(v1alpha1.SecretboxKey), []string{"APIServersRestart", "NoSnapshot", "KeyName"}},
		"secretbox, with a snapshot": {facts(v1alpha1.SecretboxKey, stored), []string{"APIServersRestart", "KeyName"}},
		"one control plane": {facts(v1alpha1.ServiceAccountKey, func(f *plan.Facts) {
			on("cp-2", func(m *v1alpha1.TalosMachine) { m.Spec.Role = "Worker" })(f)
			on("cp-3", func(m *v1alpha1.TalosMachine) { m.Spec.Role = "Worker" })(f)
		}), []string{"SingleControlPlane", "TokensExpire"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, _ := Planner{StoresSnapshots: true}.Plan(row.facts)
			var codes []string
			for _, warning := range p.Warnings {
				codes = append(codes, warning.Code)
				g.Expect(len(warning.Message)).To(BeNumerically("<=", 320), warning.Message)
			}
			g.Expect(codes).To(Equal(row.codes))
		})
	}
}

func hold(m *v1alpha1.TalosMachine) {
	m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "no"}
}

func provided(f *plan.Facts) {
	f.CAPICluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c1-cp"}
}

// Case H8: before Talos v1.14 there is no overlap, and it is said what to do.
func TestRefusals(t *testing.T) {
	for name, row := range map[string]struct {
		facts               plan.Facts
		gate, message, help string
		overridable         bool
		passing             bool
	}{
		"no control plane": {facts(both, func(f *plan.Facts) { f.Machines = nil }), "MachineKnown", "no control plane of cluster c1 is known", "ichor cluster get c1", false, false},
		"an old Talos (H8)": {
			facts(both, on("cp-3", runs("v1.13.6"))), "KeyOverlap", "cp-3 runs Talos v1.13.6, whose machine config holds one key only",
			"ichor upgrade talos v1.14.0", false, false,
		},
		"a version that nobody can read": {facts(both, on("cp-3", runs("dev"))), "KeyOverlap", `cp-3 does not tell its version of Talos ("dev")`, "ichor machine get cp-3", false, false},
		"a version that nobody knows":    {facts(both, on("cp-3", runs(""))), "KeyOverlap", `cp-3 does not tell its version of Talos ("")`, "ichor machine get cp-3", false, true},
		"held":                           {facts(both, on("cp-2", hold)), "ControlPlaneHeld", "control plane cp-2 is held", "ichor machine unhold cp-2 --cluster c1", false, false},
		"not approved": {
			facts(both, on("cp-2", func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending })), "MachineKnown", "not approved, and so not touched: cp-2",
			"ichor machine approve cp-2 --cluster c1", false, false,
		},
		"control planes from the bundle": {
			facts(v1alpha1.SecretboxKey, provided), "ControlPlanesRendered", "TalosControlPlane c1-cp makes control planes from the bundle of secrets",
			"--override ControlPlanesRendered=REASON", true, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(HaveLen(1))
			g.Expect(refusals[0]).To(And(
				HaveField("Gate", row.gate), HaveField("Message", ContainSubstring(row.message)), HaveField("Help", ContainSubstring(row.help)),
				HaveField("Overridable", row.overridable), HaveField("Passing", row.passing)))
			g.Expect(len(refusals[0].Message)).To(BeNumerically("<=", 256))
			g.Expect(len(refusals[0].Help)).To(BeNumerically("<=", 256))
		})
	}
}

func TestNothingSpeaksAgainst(t *testing.T) {
	for name, f := range map[string]plan.Facts{
		"a worker with an old Talos":              facts(both, on("w-1", runs("v1.13.6"))),
		"a held worker":                           facts(both, on("w-1", hold)),
		"the key of service accounts is nobody's": facts(v1alpha1.ServiceAccountKey, provided),
		"an override": facts(v1alpha1.SecretboxKey, provided, func(f *plan.Facts) {
			f.Spec.Overrides = []v1alpha1.GateOverride{{Gate: v1alpha1.ControlPlanesRenderedGate, Reason: "patched"}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			_, refusals := Planner{}.Plan(f)
			NewWithT(t).Expect(refusals).To(BeEmpty())
		})
	}
}

func TestTraits(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Planner{}.Traits(facts(both).Spec)).To(Equal(plan.Traits{Windows: plan.WindowsToBegin, StartVerb: "key-rotation", Confirmable: []string{"RefreshTokens", "BackRefreshTokens"}}))
	g.Expect(Planner{}.Traits(facts(v1alpha1.SecretboxKey).Spec).Confirmable).To(BeEmpty())
	g.Expect(Planner{}.Narrow(v1alpha1.OperationTarget{TalosVersion: "v1.14.1"})).To(BeZero())
	g.Expect(Planner{}.AtTarget(nil, v1alpha1.OperationTarget{})).To(BeFalse())
}
