// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
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
	account := []string{"AcceptServiceAccount", "PublishKeys", "SwapServiceAccount", "RefreshTokens", "DropServiceAccount"}
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
				if warning.Code == RestartsWarning {
					g.Expect(warning.Message).To(ContainSubstring("restarts up to 4 times, and up to 12 where Talos restarts it too early"))
				}
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
		"on its way": {
			facts(both, on("cp-2", func(m *v1alpha1.TalosMachine) {
				m.Spec.Join, m.Annotations = &v1alpha1.JoinSpec{}, map[string]string{v1alpha1.ProvisionedAtAnnotation: "2026-01-01T00:00:00Z"}
			})), "MachineKnown", "machine cp-2 was given its machine config, and has not joined yet", "ichor node join cp-2", false, false,
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
	g.Expect(Planner{}.Traits(facts(both).Spec)).To(Equal(plan.Traits{Windows: plan.WindowsToBegin, StartVerb: "key-rotation", Confirmable: []string{"PublishKeys", "RefreshTokens", "BackRefreshTokens"}}))
	g.Expect(Planner{}.Traits(facts(v1alpha1.SecretboxKey).Spec).Confirmable).To(BeEmpty())
	g.Expect(Planner{}.Narrow(v1alpha1.OperationTarget{TalosVersion: "v1.14.1"})).To(BeZero())
	g.Expect(Planner{}.AtTarget(nil, v1alpha1.OperationTarget{})).To(BeFalse())
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
	begin := []string{"Check", "Keys", "Migrate"}
	account := append(slices.Clone(begin), "AcceptServiceAccount", "PublishKeys", "SwapServiceAccount", "RefreshTokens", "DropServiceAccount")
	of := func(over []string, more ...string) []string { return append(slices.Clone(over), more...) }
	for name, row := range map[string]struct {
		status status
		want   []string
		inHand map[string][]string
		noWay  bool
	}{
		"nothing was begun with": {status{}, []string{"Bundle"}, nil, false},
		"machines check": {
			status{units: []v1alpha1.UnitStatus{at("cp-2", "Check", "", "Checking")}}, []string{"Check", "Bundle"}, map[string][]string{"Check": {"cp-2"}}, false,
		},
		"machines migrate": {
			status{over: begin[:2], units: []v1alpha1.UnitStatus{at("cp-2", "Migrate", "Check", "Verifying")}}, of(begin, "Bundle"), map[string][]string{"Migrate": {"cp-2"}}, false,
		},
		"a machine accepts": {
			status{over: begin, units: []v1alpha1.UnitStatus{at("cp-2", "AcceptServiceAccount", "Migrate", "Applying")}},
			of(begin, "AcceptServiceAccount", "BackAcceptServiceAccount", "Bundle"),
			map[string][]string{"AcceptServiceAccount": {"cp-2"}, "BackAcceptServiceAccount": {"cp-2", "cp-3", "cp-1"}}, false,
		},
		"a machine has accepted, and was paused": {
			status{over: begin, units: []v1alpha1.UnitStatus{{Name: "cp-2", Steps: []v1alpha1.StepRecord{{Step: "Applying", Stage: "AcceptServiceAccount"}}}}},
			of(begin, "AcceptServiceAccount", "BackAcceptServiceAccount", "Bundle"), map[string][]string{"AcceptServiceAccount": {}}, false,
		},
		"people are waited for": {
			status{over: account[:4], whole: []v1alpha1.UnitStatus{at("PublishKeys", "PublishKeys", "", "AwaitingCredentials")}},
			of(account[:5], "BackAcceptServiceAccount", "Bundle"), nil, false,
		},
		"machines swap": {
			status{over: account[:5], units: []v1alpha1.UnitStatus{at("cp-2", "SwapServiceAccount", "SwapServiceAccount", ""), at("cp-3", "SwapServiceAccount", "AcceptServiceAccount", "Verifying")}},
			of(account[:6], "BackSwapServiceAccount", "BackRefreshTokens", "BackAcceptServiceAccount", "Bundle"), map[string][]string{"SwapServiceAccount": {"cp-3"}}, false,
		},
		"tokens are refreshed": {
			status{over: account[:6], whole: []v1alpha1.UnitStatus{at("RefreshTokens", "RefreshTokens", "", "Refreshing")}},
			of(account[:7], "BackSwapServiceAccount", "BackRefreshTokens", "BackAcceptServiceAccount", "Bundle"), nil, false,
		},
		"a machine drops, and the other key is not begun with": {
			status{over: account[:7], units: []v1alpha1.UnitStatus{at("cp-2", "DropServiceAccount", "SwapServiceAccount", "Applying")}},
			of(account, "Bundle"), map[string][]string{"DropServiceAccount": {"cp-2", "cp-3", "cp-1"}}, false,
		},
		"a snapshot is stored": {
			status{over: account, whole: []v1alpha1.UnitStatus{at("Snapshot", "Snapshot", "", "Snapshotting")}}, of(account, "Snapshot", "Bundle"), nil, false,
		},
		"objects are written again": {
			status{over: of(account, "Snapshot", "AcceptSecretbox", "SwapSecretbox"), whole: []v1alpha1.UnitStatus{at("Rewrite", "Rewrite", "", "Rewriting")}},
			of(account, "Snapshot", "AcceptSecretbox", "SwapSecretbox", "Rewrite", "BackSwapSecretbox", "BackRewrite", "BackAcceptSecretbox", "Bundle"), nil, false,
		},
		"the last key is dropped": {
			status{
				over:  of(account, "Snapshot", "AcceptSecretbox", "SwapSecretbox", "Rewrite"),
				units: []v1alpha1.UnitStatus{at("cp-2", "DropSecretbox", "SwapSecretbox", "Rewriting")},
			},
			of(account, "Snapshot", "AcceptSecretbox", "SwapSecretbox", "Rewrite", "DropSecretbox", "Bundle"), nil, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{StoresSnapshots: true}.Plan(row.status.of(facts(both, stored)))
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
					g.Expect(stage.Machines).To(HaveExactElements(want), stage.Name)
				}
				if Passes(stage.Name) {
					g.Expect(stage.Asks(v1alpha1.ControlPlanesReadyGate)).To(Equal(!Back(stage.Name)), stage.Name)
				}
				g.Expect(len(stage.Name)).To(BeNumerically("<=", 32))
			}
		})
	}
}

// What is begun with on the way forward, a stage of the way back takes back: all but the drop, after which there is none.
func TestWaysBack(t *testing.T) {
	g := NewWithT(t)
	for _, stages := range stagesOf {
		for _, stage := range stages {
			g.Expect(TakenBack(stage)).To(Equal(!Drops(stage)), stage)
			for _, back := range waysBack[stage] {
				g.Expect(Back(back)).To(BeTrue(), back)
				g.Expect(TakenBack(back)).To(BeFalse(), back)
			}
		}
	}
	for _, stage := range []string{CheckStage, KeysStage, MigrateStage, SnapshotStage, BundleStage} {
		g.Expect(TakenBack(stage)).To(BeFalse(), stage)
	}
}

// The service refuses what would come too late. While the first of two keys is dropped the other one can still be left alone.
func TestNoWayBack(t *testing.T) {
	op := &v1alpha1.TalosOperation{Spec: facts(both).Spec}
	g := NewWithT(t)
	g.Expect(Planner{}.NoWayBack(op)).To(BeEmpty())
	op.Status.Machines = []v1alpha1.UnitStatus{at("cp-2", "DropServiceAccount", "SwapServiceAccount", "Applying")}
	g.Expect(Planner{}.NoWayBack(op)).To(BeEmpty())
	op.Status.CompletedStages = []string{"DropServiceAccount"}
	g.Expect(Planner{}.NoWayBack(op)).To(BeEmpty())
	op.Status.Machines = []v1alpha1.UnitStatus{at("cp-2", "DropSecretbox", "SwapSecretbox", "Applying")}
	g.Expect(Planner{}.NoWayBack(op)).To(ContainSubstring("an old key is being dropped, or is gone"))
	op.Status.CompletionTime = metav1.Now()
	g.Expect(Planner{}.NoWayBack(op)).To(HavePrefix("operation"))

	op = &v1alpha1.TalosOperation{Spec: facts(v1alpha1.ServiceAccountKey).Spec}
	op.Status.Machines = []v1alpha1.UnitStatus{at("cp-2", "DropServiceAccount", "SwapServiceAccount", "Applying")}
	g.Expect(Planner{}.NoWayBack(op)).To(ContainSubstring("an old key is being dropped, or is gone"))
}
