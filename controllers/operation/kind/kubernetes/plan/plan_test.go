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
	return v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TalosMachineSpec{Role: role, Approval: "Approved"},
		Status:     v1alpha1.TalosMachineStatus{TalosVersion: "v1.13.6", KubeletVersion: "v1.35.2"},
	}
}

// facts are three control planes and two workers that run Kubernetes v1.35.2, on the way to v1.36.1.
func facts(change ...func(*plan.Facts)) plan.Facts {
	f := plan.Facts{
		Cluster: &v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "prod"},
			Status:     v1alpha1.TalosClusterStatus{KubernetesVersion: "v1.35.2", EtcdLeader: "cp-1"},
		},
		Target: v1alpha1.OperationTarget{KubernetesVersion: "v1.36.1"},
		Machines: []v1alpha1.TalosMachine{
			machine("w-1", "Worker"), machine("cp-1", "ControlPlane"), machine("cp-2", "ControlPlane"), machine("w-2", "Worker"), machine("cp-3", "ControlPlane"),
		},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func to(version string) func(*plan.Facts) {
	return func(f *plan.Facts) { f.Target.KubernetesVersion = version }
}

func served(version string) func(*plan.Facts) {
	return func(f *plan.Facts) { f.Cluster.Status.KubernetesVersion = version }
}

func without(names ...string) func(*plan.Facts) {
	return func(f *plan.Facts) {
		var kept []v1alpha1.TalosMachine
		for _, m := range f.Machines {
			gone := false
			for _, name := range names {
				gone = gone || m.Name == name
			}
			if !gone {
				kept = append(kept, m)
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

func all(change func(*v1alpha1.TalosMachine)) func(*plan.Facts) {
	return func(f *plan.Facts) {
		for i := range f.Machines {
			change(&f.Machines[i])
		}
	}
}

func hold(m *v1alpha1.TalosMachine) {
	m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": ""}
}

func kubelet(version string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Status.KubeletVersion = version }
}

func talos(version string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = version }
}

func cilium(version string) func(*plan.Facts) {
	return func(f *plan.Facts) { f.Cluster.Spec.CNI = &v1alpha1.CNISpec{CiliumVersion: version} }
}

func override(gate string) func(*plan.Facts) {
	return func(f *plan.Facts) {
		f.Spec.Overrides = append(f.Spec.Overrides, v1alpha1.GateOverride{Gate: gate, Reason: "x"})
	}
}

func capi(change func(*clusterv1.Cluster)) func(*plan.Facts) {
	return func(f *plan.Facts) {
		f.CAPICluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "prod"}}
		change(f.CAPICluster)
	}
}

// Case F9: everything is checked and pulled before the first change. Components come one after the other, and the manifests last.
func TestCaseF9Plan(t *testing.T) {
	g := NewWithT(t)
	p, refusals := Planner{}.Plan(facts(on("w-1", hold)))
	g.Expect(refusals).To(BeEmpty())
	first := []string{"cp-2", "cp-3", "cp-1"}
	order := append([]string{}, append(first, "w-2")...)
	change := func(name string, machines []string) plan.Stage {
		return plan.Stage{Name: name, Machines: machines, Batch: plan.Batch{Tiered: true}, Disruptive: true, KeepsEtcd: true}
	}
	g.Expect(p.Stages).To(Equal([]plan.Stage{
		{Name: "Check", Whole: true},
		{Name: "PrePull", Machines: order, Batch: plan.Batch{Parallel: 10}},
		change("APIServer", first), change("ControllerManager", first), change("Scheduler", first), change("ProxyConfig", first),
		change("Kubelets", order),
		{Name: "Manifests", Whole: true},
	}))
	g.Expect(p).To(And(HaveField("Effect", plan.EffectRestartComponents), HaveField("Held", []string{"w-1"}), HaveField("Target", v1alpha1.OperationTarget{KubernetesVersion: "v1.36.1"})))
	g.Expect(p.KeepsEtcd()).To(BeTrue())
	g.Expect(Planner{}.Traits(v1alpha1.TalosOperationSpec{Kind: v1alpha1.KubernetesKind})).To(Equal(plan.Traits{Repeatable: true, StartVerb: "kubernetes"}))
	g.Expect(Planner{}.Narrow(v1alpha1.OperationTarget{TalosVersion: "v1.14.1", KubernetesVersion: "v1.36.1"})).To(Equal(v1alpha1.OperationTarget{KubernetesVersion: "v1.36.1"}))
}

// storing says where the snapshots of the cluster are stored.
func storing(f *plan.Facts) {
	f.Cluster.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "s3://backups?region=r"}
}

func TestASnapshotIsStoredBeforeTheFirstChange(t *testing.T) {
	g := NewWithT(t)
	names := func(hub Planner, f plan.Facts) (names []string) {
		p, _ := hub.Plan(f)
		for _, stage := range p.Stages {
			names = append(names, stage.Name)
		}
		return names
	}
	hub := Planner{StoresSnapshots: true}
	g.Expect(names(hub, facts(storing))).To(Equal([]string{
		"Check", "PrePull", "Snapshot", "APIServer", "ControllerManager", "Scheduler", "ProxyConfig", "Kubelets", "Manifests",
	}))
	p, _ := hub.Plan(facts(storing))
	g.Expect(p.Stages[2]).To(Equal(plan.Stage{Name: "Snapshot", Whole: true}))
	g.Expect(p.KeepsEtcd()).To(BeTrue())
	g.Expect(names(hub, facts())).NotTo(ContainElement("Snapshot"), "there is no place for it")
	g.Expect(names(Planner{}, facts(storing))).NotTo(ContainElement("Snapshot"), "this hub stores none")
}

// A hold that comes while the components go on must not leave a control plane out of the rest: its scheduler would stay behind, and what is
// applied in the end would be that of two versions.
func TestHoldLeavesNoControlPlaneHalfWay(t *testing.T) {
	g := NewWithT(t)
	p, refusals := Planner{}.Plan(facts(on("cp-3", hold)))
	g.Expect(refusals).To(HaveLen(1), "nor does it begin so")
	g.Expect(p.Held).To(BeEmpty())
	for _, stage := range p.Stages[1:7] {
		g.Expect(stage.Machines).To(ContainElement("cp-3"), stage.Name)
	}
}

func TestWarnings(t *testing.T) {
	const synced = "the bootstrap manifests of Talos are applied last; what Helm, Flux or Argo CD keep is left alone. The first stage says what would change"
	const drained = "kubelets get another minor version: each Node is drained first, control planes one at a time, then at most 1 workers at once"
	const alone = "the only control plane restarts its API server: the Kubernetes API of the cluster is away for a moment"
	const noSnapshot = "no snapshot of etcd is stored first: spec.etcdBackup.bucketURL of TalosCluster c1 is not set"
	for name, row := range map[string]struct {
		facts plan.Facts
		want  []string
	}{
		"no snapshot":         {facts(to("v1.35.4")), []string{noSnapshot, synced}},
		"another minor":       {facts(storing), []string{drained, synced}},
		"another patch level": {facts(storing, to("v1.35.4")), []string{synced}},
		"some have it":        {facts(storing, all(kubelet("v1.36.1")), on("w-1", kubelet("v1.35.2"))), []string{drained, synced}},
		"one control plane":   {facts(storing, without("cp-2", "cp-3"), to("v1.35.4")), []string{alone, synced}},
		"one machine":         {facts(storing, without("cp-2", "cp-3", "w-1", "w-2")), []string{alone, synced}},
		"two control planes":  {facts(storing, without("cp-3"), to("v1.35.4")), []string{"two control planes: etcd keeps both members all the time, and cannot lose either of them meanwhile", synced}},
		"a held worker":       {facts(storing, on("w-1", hold)), []string{drained, synced, "w-1 is held and keeps its kubelet"}},
		"held workers":        {facts(storing, on("w-1", hold), on("w-2", hold)), []string{drained, synced, "w-1 and 1 more are held and keep their kubelets"}},
		"an override": {facts(storing, to("v1.35.4"), override("NodesReady")), []string{
			synced, "gate NodesReady is overridden: the upgrade begins although Nodes or pods of the control plane are not ready",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := Planner{StoresSnapshots: true}.Plan(row.facts)
			var messages []string
			for _, warning := range p.Warnings {
				messages = append(messages, warning.Message)
			}
			NewWithT(t).Expect(messages).To(Equal(row.want))
		})
	}
}

func TestRefusals(t *testing.T) {
	classy := func(c *clusterv1.Cluster) {
		c.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "big"}, Version: "v1.35.2"}
	}
	plain := func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c1-cp"}
	}
	for name, row := range map[string]struct {
		facts         plan.Facts
		gate, message string
		help          string
		overridable   bool
	}{
		"nothing declared": {facts(to("")), "TargetDeclared", "TalosCluster c1 declares no kubernetesVersion", "ichor upgrade kubernetes VERSION --cluster c1", false},
		"no machine":       {facts(without("cp-1", "cp-2", "cp-3", "w-1", "w-2")), "MachineKnown", "cluster c1 has no approved machine", "see what keeps them from being found: ichor cluster get c1", false},
		"a topology says it": {
			facts(capi(classy)), "KubernetesVersionOwned",
			"the version of Kubernetes of Cluster c1 is its topology's (spec.topology.version): Cluster API would undo any other change",
			`change it there: kubectl patch cluster c1 -n prod --type merge -p '{"spec":{"topology":{"version":"v1.36.1"}}}'`, false,
		},
		"a control plane of Cluster API says it": {
			facts(capi(plain)), "KubernetesVersionOwned",
			"the version of Kubernetes of Cluster c1 is that of TalosControlPlane c1-cp (spec.version), which replaces machines to change it",
			`change it there: kubectl patch taloscontrolplane.controlplane.cluster.x-k8s.io c1-cp -n prod --type merge -p '{"spec":{"version":"v1.36.1"}}', and then the MachineDeployments`, false,
		},
		"a minor left out (C16)": {facts(served("v1.34.1"), all(kubelet("v1.34.1"))), "KubernetesVersionPath", "v1.34.1 to v1.36.1 skips v1.35", "", false},
		"older":                  {facts(to("v1.35.1"), all(kubelet(""))), "KubernetesVersionPath", "v1.35.1", "", false},
		"not final":              {facts(to("v1.36.0-rc.1")), "KubernetesVersionPath", "v1.36.0-rc.1", "", false},
		"unknown yet (F8)":       {facts(to("v1.99.0")), "KubernetesVersionPath", "this hub knows Kubernetes up to", "upgrade the hub", false},
		"by kubelets alone":      {facts(served(""), all(kubelet("v1.34.1"))), "KubernetesVersionPath", "v1.34.1 to v1.36.1 skips v1.35", "", false},
		"nobody tells": {
			facts(served(""), all(kubelet("")), to("v1.35.2"), func(f *plan.Facts) { f.Cluster.Spec.KubernetesVersion = "v1.36.1" }), "KubernetesVersionPath",
			"TalosCluster c1 declares Kubernetes v1.36.1, and nobody tells what it runs: v1.35.2 may be a downgrade", "see why it is not known: ichor cluster get c1", false,
		},
		"a newer kubelet":         {facts(on("w-1", kubelet("v1.36.3"))), "KubernetesVersionPath", "w-1 runs kubelet v1.36.3, and v1.36.1 is older: a downgrade is no upgrade", "choose v1.36.3 or newer", false},
		"a kubelet far behind":    {facts(on("w-1", kubelet("v1.32.9"))), "KubernetesVersionPath", "w-1 runs kubelet v1.32.9: API servers of v1.36.1 talk to none that is more than 3 minor versions older", "", false},
		"an old Talos (C15, F15)": {facts(on("w-2", talos("v1.12.4"))), "KubernetesPairing", "w-2: Talos v1.12.4 does not support Kubernetes v1.36.1", "upgrade Talos to v1.13 first", false},
		"an old Cilium":           {facts(cilium("1.18.2")), "CiliumPairing", "Cilium 1.18.2 is not tested with Kubernetes v1.36.1", "upgrade Cilium to v1.20 first", true},
		"a held control plane":    {facts(on("cp-2", hold)), "ControlPlaneHeld", "control plane cp-2 is held: its API server would stay behind, and nothing that asks it may be newer", "ichor machine unhold cp-2 --cluster c1", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, refusals := Planner{}.Plan(row.facts)
			g.Expect(refusals).To(HaveLen(1))
			g.Expect(refusals[0]).To(And(HaveField("Gate", row.gate), HaveField("Message", ContainSubstring(row.message)), HaveField("Overridable", row.overridable)))
			g.Expect(refusals[0].Help).To(And(Not(BeEmpty()), ContainSubstring(row.help)))
			g.Expect(len(refusals[0].Message)).To(BeNumerically("<=", 256))
			g.Expect(len(refusals[0].Help)).To(BeNumerically("<=", 256))
		})
	}
}

func TestNothingSpeaksAgainst(t *testing.T) {
	for name, f := range map[string]plan.Facts{
		"the next minor":                        facts(),
		"what runs already":                     facts(to("v1.35.2")),
		"half-way (F14)":                        facts(served("v1.36.1"), on("w-1", kubelet("v1.36.1"))),
		"two control planes":                    facts(without("cp-3")),
		"a Cluster of the hub's":                facts(capi(func(*clusterv1.Cluster) {})),
		"a held worker":                         facts(on("w-1", hold)),
		"an old Talos that is held":             facts(on("w-2", talos("v1.12.4")), on("w-2", hold)),
		"an old Cilium, overridden":             facts(cilium("1.18.2"), override("CiliumPairing")),
		"nobody tells, and nothing is declared": facts(served(""), all(kubelet(""))),
	} {
		t.Run(name, func(t *testing.T) {
			_, refusals := Planner{}.Plan(f)
			NewWithT(t).Expect(refusals).To(BeEmpty())
		})
	}
}

// Of a control plane the management API does not know all that an upgrade brings about.
func TestAtTarget(t *testing.T) {
	g := NewWithT(t)
	target := v1alpha1.OperationTarget{KubernetesVersion: "v1.35.2"}
	worker, controlPlane := machine("w-1", "Worker"), machine("cp-1", "ControlPlane")
	g.Expect(Planner{}.AtTarget(&worker, target)).To(BeTrue())
	g.Expect(Planner{}.AtTarget(&controlPlane, target)).To(BeFalse())
	g.Expect(Planner{}.AtTarget(&worker, v1alpha1.OperationTarget{KubernetesVersion: "v1.35.3"})).To(BeFalse())
}
