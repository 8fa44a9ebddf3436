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

var schematic = strings.Repeat("a", 64)

func machine(name string, role v1alpha1.MachineRole) v1alpha1.TalosMachine {
	return v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TalosMachineSpec{Role: role, Approval: "Approved"},
		Status:     v1alpha1.TalosMachineStatus{TalosVersion: "v1.13.9", SchematicID: schematic},
	}
}

// facts are three control planes and two workers that run v1.13.9, on the way to v1.14.1.
func facts(change ...func(*plan.Facts)) plan.Facts {
	f := plan.Facts{
		Cluster: &v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c1"},
			Status:     v1alpha1.TalosClusterStatus{KubernetesVersion: "v1.35.2", EtcdLeader: "cp-1"},
		},
		Target: v1alpha1.OperationTarget{TalosVersion: "v1.14.1"},
		Machines: []v1alpha1.TalosMachine{
			machine("w-1", "Worker"), machine("cp-1", "ControlPlane"), machine("cp-2", "ControlPlane"), machine("w-2", "Worker"), machine("cp-3", "ControlPlane"),
		},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func only(names ...string) func(*plan.Facts) {
	return func(f *plan.Facts) {
		var kept []v1alpha1.TalosMachine
		for _, m := range f.Machines {
			for _, name := range names {
				if m.Name == name {
					kept = append(kept, m)
				}
			}
		}
		f.Machines = kept
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

func hold(m *v1alpha1.TalosMachine) {
	m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": ""}
}

func running(version string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = version }
}

func override(gate string) func(*plan.Facts) {
	return func(f *plan.Facts) {
		f.Spec.Overrides = append(f.Spec.Overrides, v1alpha1.GateOverride{Gate: gate, Reason: "x"})
	}
}

// Case B23 and F9: every machine pulls before the first is disturbed, and the leader of etcd goes last of the control planes.
func TestCaseB23F9Plan(t *testing.T) {
	g := NewWithT(t)
	p, refusals := Planner{}.Plan(facts(on("w-1", hold), func(f *plan.Facts) {
		pending := machine("w-9", "Worker")
		pending.Spec.Approval = "Pending"
		f.Machines = append(f.Machines, pending)
	}))
	g.Expect(refusals).To(BeEmpty())
	order := []string{"cp-2", "cp-3", "cp-1", "w-2"}
	g.Expect(p).To(Equal(plan.Plan{
		Target:   v1alpha1.OperationTarget{TalosVersion: "v1.14.1"},
		Effect:   "Reboot",
		Held:     []string{"w-1"},
		Warnings: []plan.Warning{{Code: "EtcdOneWay", Message: newEtcd}, {Code: "NoSnapshot", Message: noSnapshotYet}},
		Stages: []plan.Stage{
			{Name: "Pull", Machines: order, Batch: plan.Batch{Parallel: 10}},
			{Name: "Upgrade", Machines: order, Batch: plan.Batch{Tiered: true}, Disruptive: true},
		},
	}))
	g.Expect(Planner{}.Traits(v1alpha1.TalosOperationSpec{Kind: v1alpha1.TalosKind})).To(Equal(plan.Traits{Repeatable: true, StartVerb: "talos"}))
}

const newEtcd = "control planes get etcd 3.7: once all of them run it, Talos goes back only after a downgrade of etcd"

const noSnapshotYet = "no snapshot of etcd is taken before: spec.etcdBackup of the TalosCluster does not say where to store it"

// Where snapshots are stored, one is taken when all is pulled and before the first control plane goes, and not for workers alone.
func TestASnapshotIsTakenFirst(t *testing.T) {
	stored := func(f *plan.Facts) { f.Cluster.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "s3://b"} }
	done := func(name string) func(*plan.Facts) { return on(name, running("v1.14.1")) }
	for name, row := range map[string]struct {
		facts  plan.Facts
		stages []string
		warned bool
	}{
		"stored":                   {facts(stored), []string{"Pull", "Snapshot", "Upgrade"}, false},
		"nowhere to store":         {facts(), []string{"Pull", "Upgrade"}, true},
		"workers only":             {facts(stored, only("w-1", "w-2")), []string{"Pull", "Upgrade"}, false},
		"control planes are there": {facts(stored, done("cp-1"), done("cp-2"), done("cp-3")), []string{"Pull", "Upgrade"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(BeEmpty())
			var stages []string
			for _, stage := range p.Stages {
				stages = append(stages, stage.Name)
				g.Expect(stage.Whole).To(Equal(stage.Name == "Snapshot"))
			}
			g.Expect(stages).To(Equal(row.stages))
			warned := false
			for _, w := range p.Warnings {
				warned = warned || w.Code == plan.NoSnapshotWarning
			}
			g.Expect(warned).To(Equal(row.warned))
		})
	}
}

func TestWarnings(t *testing.T) {
	alone := "the only control plane reboots: the Kubernetes API of the cluster is away meanwhile"
	noPull := func(names string) string {
		return "Talos before v1.13 (" + names + ") pulls nothing beforehand: such a machine pulls when it is drained, by the one call that also reboots it"
	}
	hostnames := func(names string) string {
		return "from v1.13 on Talos may give another name to machines (" + names + ") whose config pins no hostname; the first that comes back renamed stops the operation"
	}
	within := to("v1.13.10")
	old := func(names ...string) func(*plan.Facts) {
		return func(f *plan.Facts) {
			for _, name := range names {
				on(name, running("v1.12.4"))(f)
			}
		}
	}
	for name, row := range map[string]struct {
		facts plan.Facts
		want  []string
	}{
		"none":                      {facts(within), nil},
		"another etcd":              {facts(), []string{newEtcd}},
		"another etcd, workers":     {facts(only("w-1", "w-2")), nil},
		"another etcd, there":       {facts(only("cp-1", "cp-2", "cp-3"), on("cp-1", running("v1.14.0")), on("cp-2", running("v1.14.0")), on("cp-3", running("v1.14.0"))), nil},
		"one":                       {facts(within, only("cp-1", "w-1")), []string{alone}},
		"one, which is held":        {facts(within, only("cp-1", "w-1"), on("cp-1", hold)), nil},
		"an old one":                {facts(within, old("w-1")), []string{noPull("w-1"), hostnames("w-1")}},
		"old ones":                  {facts(within, old("w-1", "cp-1", "cp-3")), []string{noPull("cp-1 and 2 more"), hostnames("cp-1 and 2 more")}},
		"old ones, held":            {facts(within, old("w-1"), on("w-1", hold)), nil},
		"old ones that stay so":     {facts(to("v1.12.5"), only("w-1"), old("w-1")), []string{noPull("w-1")}},
		"another schematic (C10)":   {facts(within, on("w-2", otherSchematic)), nil},
		"to another schematic":      {facts(within, toSchematic, on("w-2", otherSchematic)), []string{"the schematic changes (w-2): extensions and kernel arguments that the new one lacks are gone"}},
		"to the schematic it runs":  {facts(within, toSchematic), nil},
		"an override":               {facts(within, override("WorkersAvailable")), []string{"gate WorkersAvailable is overridden: workers are taken away although as many as spec.maxUnavailable allows are away already"}},
		"an override of nothing":    {facts(within, override("EtcdHealthy")), []string{"the override of gate EtcdHealthy skips nothing: nobody may bypass it"}},
		"an override that the plan": {facts(within, override("KubernetesPairing")), nil},
		"not known what it runs":    {facts(within, on("w-1", running(""))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := Planner{}.Plan(row.facts)
			var texts []string
			for _, warning := range p.Warnings {
				NewWithT(t).Expect(len(warning.Message)).To(BeNumerically("<=", 256))
				if warning.Code != "NoSnapshot" { // A table of its own.
					texts = append(texts, warning.Message)
				}
			}
			NewWithT(t).Expect(texts).To(Equal(row.want))
		})
	}
}

// Whoever changes the members of etcd is told that nothing would bring them back.
func TestNoSnapshot(t *testing.T) {
	there := func(f *plan.Facts) {
		for i := range f.Machines {
			if f.Machines[i].Spec.Role == "ControlPlane" {
				f.Machines[i].Status.TalosVersion = f.Target.TalosVersion
			}
		}
	}
	for name, row := range map[string]struct {
		facts plan.Facts
		want  bool
	}{
		"control planes":                {facts(), true},
		"workers":                       {facts(only("w-1", "w-2")), false},
		"control planes that are there": {facts(there), false},
		"control planes that are held":  {facts(only("cp-1", "w-1"), on("cp-1", hold)), false},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := Planner{}.Plan(row.facts)
			warning := plan.Warning{Code: "NoSnapshot", Message: noSnapshotYet}
			if row.want {
				NewWithT(t).Expect(p.Warnings).To(ContainElement(warning))
			} else {
				NewWithT(t).Expect(p.Warnings).NotTo(ContainElement(warning))
			}
		})
	}
}

func to(version string) func(*plan.Facts) {
	return func(f *plan.Facts) { f.Target.TalosVersion = version }
}

func declares(version string) func(*plan.Facts) {
	return func(f *plan.Facts) { f.Cluster.Spec.TalosVersion = version }
}

func toSchematic(f *plan.Facts) { f.Target.SchematicID = schematic }

func otherSchematic(m *v1alpha1.TalosMachine) { m.Status.SchematicID = strings.Repeat("b", 64) }

// A machine config that the new Talos refuses, is none of this plan: the hub reads no machine config before kind config renders
// them. Until then a machine that does not take its config does not become ready, and stops the operation as the first.
//
// Cases B1, C15 and C16 are among the rows.
func TestRefusals(t *testing.T) {
	type refusal struct {
		gate, message string
		overridable   bool
	}
	host := refusal{"TalosHostVersion", "w-1 runs Talos v1.10.4; this hub upgrades machines from v1.11.0 on", false}
	pairing := refusal{"KubernetesPairing", "Talos v1.14.1 does not support the running Kubernetes v1.31.9", true}
	older := refusal{"TalosVersionPath", "w-1: v1.14.1 is older than the running v1.14.2", false}
	for name, row := range map[string]struct {
		facts plan.Facts
		want  []refusal
	}{
		"none": {facts(), nil},
		"no machine": {
			facts(only()), []refusal{{"MachineKnown", "cluster c1 has no approved machine", false}},
		},
		"no machine that anybody approved": {
			facts(only("w-1"), on("w-1", func(m *v1alpha1.TalosMachine) { m.Spec.Approval = "Pending" })),
			[]refusal{{"MachineKnown", "cluster c1 has no approved machine", false}},
		},
		"no machine, and nobody can override it": {
			facts(only(), override("MachineKnown")), []refusal{{"MachineKnown", "cluster c1 has no approved machine", false}},
		},
		"no machine that is not held": {facts(only("w-1"), on("w-1", hold)), nil},
		"no version declared": {
			facts(func(f *plan.Facts) { f.Target.TalosVersion = "" }),
			[]refusal{{"TargetDeclared", "TalosCluster c1 declares no talosVersion", false}},
		},
		"two control planes (B1)": {
			facts(only("cp-1", "cp-2", "w-1")),
			[]refusal{{"Quorum", "two control planes: etcd loses its quorum while either of them reboots", false}},
		},
		"two control planes, one is held": {
			facts(only("cp-1", "cp-2", "w-1"), on("cp-1", hold)),
			[]refusal{{"Quorum", "two control planes", false}},
		},
		"two control planes, both held":   {facts(only("cp-1", "cp-2", "w-1"), on("cp-1", hold), on("cp-2", hold)), nil},
		"one control plane":               {facts(only("cp-1")), nil},
		"old host":                        {facts(on("w-1", running("v1.10.4"))), []refusal{host}},
		"old host is not overridable":     {facts(on("w-1", running("v1.10.4")), override("TalosHostVersion")), []refusal{host}},
		"old host, but held":              {facts(on("w-1", running("v1.10.4")), on("w-1", hold)), nil},
		"two old hosts are one refusal":   {facts(on("w-1", running("v1.10.4")), on("w-2", running("v1.10.4"))), []refusal{host}},
		"old hosts of different versions": {facts(on("w-1", running("v1.10.4")), on("w-2", running("v1.10.3"))), []refusal{host, {"TalosHostVersion", "w-2 runs Talos v1.10.3", false}}},
		"from before the new API":         {facts(to("v1.13.10"), on("w-1", running("v1.12.4"))), nil},
		"skips a minor (C16)": {
			facts(on("w-1", running("v1.12.4"))), []refusal{{"TalosVersionPath", "w-1: v1.14.1 skips a minor version after v1.12.4: go by way of the latest v1.13 first", true}},
		},
		"skips a minor, overridden": {facts(on("w-1", running("v1.12.4")), override("TalosVersionPath")), nil},
		"not observed yet":          {facts(on("w-1", running(""))), nil},
		"none observed yet":         {facts(only("w-1"), on("w-1", running("")), declares("v1.14.1")), nil},
		"none observed yet, and it may be a downgrade": {
			facts(only("w-1"), on("w-1", running("")), declares("v1.14.2")),
			[]refusal{{"TalosVersionPath", "TalosCluster c1 declares v1.14.2, and no machine tells what it runs: v1.14.1 may be a downgrade", false}},
		},
		"declared too far, and never run": {facts(declares("v1.14.2")), nil},
		"a newer machine":                 {facts(on("w-1", running("v1.14.2"))), []refusal{older}},
		"there already":                   {facts(on("w-1", func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion, m.Status.SchematicID = "v1.14.1", "" })), nil},
		"schematic unknown (C10)": {
			facts(on("w-1", func(m *v1alpha1.TalosMachine) { m.Status.SchematicID = "" })),
			[]refusal{{"Schematic", "w-1 does not tell its schematic: a generic image could drop its extensions", false}},
		},
		"schematic unknown, but ordered": {
			facts(on("w-1", func(m *v1alpha1.TalosMachine) { m.Status.SchematicID = "" }), func(f *plan.Facts) { f.Target.SchematicID = schematic }), nil,
		},
		"Kubernetes too old (C15)":             {facts(func(f *plan.Facts) { f.Cluster.Status.KubernetesVersion = "v1.31.9" }), []refusal{pairing}},
		"Kubernetes too old, overridden":       {facts(func(f *plan.Facts) { f.Cluster.Status.KubernetesVersion = "v1.31.9" }, override("KubernetesPairing")), nil},
		"Kubernetes too old, other overridden": {facts(func(f *plan.Facts) { f.Cluster.Status.KubernetesVersion = "v1.31.9" }, override("TalosVersionPath")), []refusal{pairing}},
		"Kubernetes not observed":              {facts(func(f *plan.Facts) { f.Cluster.Status.KubernetesVersion = "" }), nil},
		"not final (C16)": {
			facts(only("w-1"), func(f *plan.Facts) { f.Target.TalosVersion = "v1.14.0-rc.1" }),
			[]refusal{{"TalosVersionPath", "w-1: v1.14.0-rc.1 is not a final version", false}},
		},
		"no version at all": {
			facts(only("w-1"), func(f *plan.Facts) { f.Target.TalosVersion, f.Cluster.Status.KubernetesVersion = "latest", "" }),
			[]refusal{{"TalosVersionPath", `w-1: version "latest" is not of the form v1.2.3`, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(HaveLen(len(row.want)), "%v", refusals)
			for i, r := range refusals {
				g.Expect(r.Gate).To(Equal(row.want[i].gate))
				g.Expect(r.Message).To(HavePrefix(row.want[i].message))
				g.Expect(r.Overridable).To(Equal(row.want[i].overridable))
				g.Expect(r.Help).NotTo(BeEmpty())
			}
		})
	}
}

// Case F8: what only a newer hub knows says so, and everything else how to go on with this one.
func TestCaseF8HelpOfThePath(t *testing.T) {
	for name, row := range map[string]struct{ running, to, message, help string }{
		"newer than the hub":         {"v1.13.9", "v1.99.0", "w-1: this hub knows Talos up to v1.", "upgrade the hub first"},
		"another major than the hub": {"v1.13.9", "v2.0.0", "w-1: this hub knows Talos up to v1.", "upgrade the hub first"},
		"older":                      {"v1.14.1", "v1.14.0", "w-1: v1.14.0 is older than the running v1.14.1: a downgrade is no upgrade", "choose a version that follows the running one"},
		"not final":                  {"v1.13.9", "v1.14.0-rc.1", "w-1: v1.14.0-rc.1 is not a final version", "choose a version that follows the running one"},
		"no version at all":          {"v1.13.9", "latest", `w-1: version "latest" is not of the form v1.2.3`, "choose a version that follows the running one"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := PathObjection("w-1", row.running, v1alpha1.OperationTarget{TalosVersion: row.to})
			g.Expect(r).NotTo(BeNil())
			g.Expect(r.Gate).To(Equal("TalosVersionPath"))
			g.Expect(r.Message).To(HavePrefix(row.message))
			g.Expect(r.Help).To(Equal(row.help))
			g.Expect(r.Overridable).To(BeFalse())
		})
	}
}

// What is overridden is told, so that whoever reads the plan knows what it bypasses.
func TestOverridden(t *testing.T) {
	oldKubernetes := func(f *plan.Facts) { f.Cluster.Status.KubernetesVersion = "v1.31.9" }
	for name, row := range map[string]struct {
		facts               plan.Facts
		refused, overridden []string
	}{
		"nothing to override": {facts(override("KubernetesPairing")), nil, nil},
		"refused":             {facts(oldKubernetes), []string{"KubernetesPairing"}, nil},
		"overridden":          {facts(oldKubernetes, override("KubernetesPairing")), nil, []string{"KubernetesPairing"}},
		"one of two": {
			facts(oldKubernetes, override("KubernetesPairing"), on("w-1", running("v1.14.2"))), []string{"TalosVersionPath"}, []string{"KubernetesPairing"},
		},
		"what nobody may override": {
			facts(oldKubernetes, override("Quorum"), override("KubernetesPairing"), only("cp-1", "cp-2")), []string{"Quorum"}, []string{"KubernetesPairing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, refused := Planner{}.Plan(row.facts)
			g.Expect(gates(refused)).To(Equal(row.refused))
			g.Expect(gates(p.Overridden)).To(Equal(row.overridden))
			for _, r := range p.Overridden {
				g.Expect(r.Message).To(HavePrefix("Talos v1.14.1 does not support the running Kubernetes v1.31.9"))
				g.Expect(r.Overridable).To(BeTrue())
			}
		})
	}
}

func gates(refusals []plan.Refusal) []string {
	var names []string
	for _, r := range refusals {
		names = append(names, r.Gate)
	}
	return names
}

// An upgrade of Talos brings its own part of the target, and a change of the rest supersedes nothing.
func TestNarrow(t *testing.T) {
	NewWithT(t).Expect(Planner{}.Narrow(v1alpha1.OperationTarget{
		TalosVersion: "v1.14.1", SchematicID: schematic, KubernetesVersion: "v1.36.0", CiliumVersion: "1.18.2", KubeProxy: "Enabled",
	})).To(Equal(v1alpha1.OperationTarget{TalosVersion: "v1.14.1", SchematicID: schematic}))
}

func TestAtTarget(t *testing.T) {
	for name, row := range map[string]struct {
		version, schematic string
		target             v1alpha1.OperationTarget
		want               bool
	}{
		"version":           {"v1.14.1", schematic, v1alpha1.OperationTarget{TalosVersion: "v1.14.1"}, true},
		"another version":   {"v1.14.0", schematic, v1alpha1.OperationTarget{TalosVersion: "v1.14.1"}, false},
		"both":              {"v1.14.1", schematic, v1alpha1.OperationTarget{TalosVersion: "v1.14.1", SchematicID: schematic}, true},
		"another schematic": {"v1.14.1", "b", v1alpha1.OperationTarget{TalosVersion: "v1.14.1", SchematicID: schematic}, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(AtTarget(row.version, row.schematic, row.target)).To(Equal(row.want))
			machine := &v1alpha1.TalosMachine{Status: v1alpha1.TalosMachineStatus{TalosVersion: row.version, SchematicID: row.schematic}}
			NewWithT(t).Expect(Planner{}.AtTarget(machine, row.target)).To(Equal(row.want))
		})
	}
}
