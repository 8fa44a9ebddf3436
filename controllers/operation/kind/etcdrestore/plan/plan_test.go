// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

func machine(name string, role v1alpha1.MachineRole) v1alpha1.TalosMachine {
	return v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{Role: role, Approval: "Approved"}}
}

func stored() *v1alpha1.EtcdSnapshot {
	return &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Spec: v1alpha1.EtcdSnapshotSpec{ClusterName: "c1", Contents: &v1alpha1.SnapshotContents{
		TakenTime: metav1.NewTime(time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)), SizeBytes: 5*512 + 32, Revision: 1234, EtcdVersion: "3.6.4",
		Keys: v1alpha1.SnapshotKeys{KubernetesCA: "ca", ServiceAccount: "sa"},
	}}}
}

// facts are those of a cluster with so many machines that is put back to a snapshot.
func facts(controlPlanes, workers int, changes ...func(*plan.Facts)) plan.Facts {
	f := plan.Facts{
		Spec: v1alpha1.TalosOperationSpec{
			ClusterName: "c1", Kind: "etcd-restore", EtcdRestore: &v1alpha1.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "Take"},
		},
		Cluster: &v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: v1alpha1.TalosClusterSpec{EtcdBackup: &v1alpha1.EtcdBackupSpec{BucketURL: "s3://b"}},
		},
		Snapshot: stored(),
	}
	for i := range controlPlanes {
		f.Machines = append(f.Machines, machine("cp-"+string(rune('1'+i)), "ControlPlane"))
	}
	for i := range workers {
		f.Machines = append(f.Machines, machine("w-"+string(rune('1'+i)), "Worker"))
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func withoutSafety(f *plan.Facts) { f.Spec.EtcdRestore.SafetySnapshot = "None" }

// units makes the operation have begun with machines.
func units(of ...v1alpha1.UnitStatus) func(*plan.Facts) {
	return func(f *plan.Facts) { f.Units = of }
}

// gone takes the TalosMachine of a name away.
func gone(name string) func(*plan.Facts) {
	return func(f *plan.Facts) {
		for i := range f.Machines {
			if f.Machines[i].Name == name {
				f.Machines = append(f.Machines[:i:i], f.Machines[i+1:]...)
				return
			}
		}
	}
}

func TestStages(t *testing.T) {
	snapshot := plan.Stage{Name: "Snapshot", Whole: true, Gates: []string{"EtcdHealthy"}}
	wipe := func(names ...string) plan.Stage {
		return plan.Stage{
			Name: "Wipe", Machines: names, Batch: plan.Batch{Parallel: len(names)}, Disruptive: true, Unsafe: true, MayLose: true, Gates: []string{"MachinesDiscovered"},
		}
	}
	rewound := func(name string, parallel int, names ...string) plan.Stage {
		return plan.Stage{Name: name, Machines: names, Batch: plan.Batch{Parallel: parallel}, Unsafe: true, MayLose: true, Rewound: true}
	}
	check, clean, verify := plan.Stage{Name: "Check", Whole: true}, plan.Stage{Name: "Clean", Whole: true, Unsafe: true, Rewound: true}, plan.Stage{Name: "Verify", Whole: true}
	for name, row := range map[string]struct {
		facts plan.Facts
		want  []plan.Stage
	}{
		"three and two": {facts(3, 2), []plan.Stage{
			check, snapshot, wipe("cp-1", "cp-2", "cp-3"), rewound("Recover", 1, "cp-1"), rewound("Join", 1, "cp-2", "cp-3"),
			rewound("Kubelets", 2, "w-1", "w-2"), clean, verify,
		}},
		"one, and nothing is kept": {facts(1, 0, withoutSafety), []plan.Stage{check, wipe("cp-1"), rewound("Recover", 1, "cp-1"), clean, verify}},
		"the chosen one stays the one": {facts(3, 0, withoutSafety, units(
			v1alpha1.UnitStatus{Name: "cp-1", Stage: "Wipe"}, v1alpha1.UnitStatus{Name: "cp-2", Stage: "Recover", Step: "Recovering"},
		)), []plan.Stage{
			check, wipe("cp-1", "cp-2", "cp-3"), rewound("Recover", 1, "cp-2"), rewound("Join", 1, "cp-1", "cp-3"), clean, verify,
		}},
		"another one is chosen for one that is lost": {facts(3, 0, withoutSafety, gone("cp-1"), units(
			v1alpha1.UnitStatus{Name: "cp-1", Stage: "Wipe", CompletedStage: "Wipe", Steps: []v1alpha1.StepRecord{{Step: "Recovering", Stage: "Recover"}}},
		)), []plan.Stage{
			check, wipe("cp-2", "cp-3"), rewound("Recover", 1, "cp-2"), rewound("Join", 1, "cp-3"), clean, verify,
		}},
		"none is chosen for one that is lost once etcd has begun": {facts(3, 0, withoutSafety, gone("cp-1"), units(
			v1alpha1.UnitStatus{Name: "cp-1", Stage: "Recover", CompletedStage: "Recover"},
		)), []plan.Stage{
			check, wipe("cp-2", "cp-3"), rewound("Recover", 1, "cp-1"), rewound("Join", 1, "cp-2", "cp-3"), clean, verify,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			made, refusals := Planner{StoresSnapshots: true}.Plan(row.facts)
			g := NewWithT(t)
			g.Expect(made.Stages).To(Equal(row.want))
			g.Expect(refusals).To(BeEmpty())
			g.Expect(made.Effect).To(BeEquivalentTo("Restore"))
		})
	}
}

// Nothing is asked of the gates that a cluster without etcd could not pass, and no even number of control planes keeps it from coming back.
func TestGates(t *testing.T) {
	g := NewWithT(t)
	f := facts(4, 2)
	made, _ := Planner{StoresSnapshots: true}.Plan(f)
	g.Expect(made.DisruptedControlPlanes(f.Approved())).To(BeEmpty())
	g.Expect(made.LiveGates(f.Cluster, f.Approved())).To(Equal([]string{"TargetOwned", "MachinesDiscovered", "EtcdHealthy"}))
	g.Expect(Planner{}.Traits(f.Spec)).To(Equal(plan.Traits{RecordOptional: true, Windows: plan.WindowsNever, StartVerb: "etcd-restore"}))
	g.Expect(Planner{}.AtTarget(nil, v1alpha1.OperationTarget{})).To(BeFalse())
	g.Expect(Planner{}.Narrow(v1alpha1.OperationTarget{TalosVersion: "v1.14.0"})).To(BeZero())
}

// Case I3: what is known to be wrong is refused before the operation exists, in words with the field, the value and what is allowed.
func TestCaseI3Refusals(t *testing.T) {
	change := func(do func(*v1alpha1.EtcdSnapshot)) func(*plan.Facts) {
		return func(f *plan.Facts) { do(f.Snapshot) }
	}
	raw := change(func(s *v1alpha1.EtcdSnapshot) { s.Spec.Contents.SizeBytes = 5 * 512 })
	for name, row := range map[string]struct {
		facts   plan.Facts
		hubless bool
		want    []string
	}{
		"no snapshot":            {facts: facts(3, 0, func(f *plan.Facts) { f.Snapshot = nil }), want: []string{`SnapshotUsable: spec.etcdRestore.snapshotName is "s1", and there is no such EtcdSnapshot`}},
		"another cluster's":      {facts: facts(3, 0, change(func(s *v1alpha1.EtcdSnapshot) { s.Spec.ClusterName = "c2" })), want: []string{"SnapshotUsable: EtcdSnapshot s1 is of cluster c2, and only one of cluster c1 can be restored there"}},
		"not taken yet":          {facts: facts(3, 0, change(func(s *v1alpha1.EtcdSnapshot) { s.Spec.Contents = nil })), want: []string{"SnapshotUsable: EtcdSnapshot s1 is not taken yet"}},
		"being deleted":          {facts: facts(3, 0, change(func(s *v1alpha1.EtcdSnapshot) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })), want: []string{"SnapshotUsable: EtcdSnapshot s1 is being deleted"}},
		"without a hash":         {facts: facts(3, 0, raw), want: []string{"SnapshotUsable: what is stored of EtcdSnapshot s1 does not end with a SHA-256: nobody can tell whether it is whole"}},
		"without, and on a word": {facts: facts(3, 0, raw, func(f *plan.Facts) { f.Spec.EtcdRestore.Integrity = "RawCopy" })},
		"nothing to store in":    {facts: facts(3, 0, func(f *plan.Facts) { f.Cluster.Spec.EtcdBackup = nil }), want: []string{"SnapshotStorage: spec.etcdBackup.bucketURL of TalosCluster c1 is not set: a snapshot of what runs now could be stored nowhere"}},
		"nothing to be stored":   {facts: facts(3, 0, withoutSafety, func(f *plan.Facts) { f.Cluster.Spec.EtcdBackup = nil })},
		"a hub without storage":  {facts: facts(3, 0, withoutSafety), hubless: true, want: []string{"SnapshotStorage: this hub stores and reads no snapshots of etcd"}},
		"an unapproved control plane": {facts: facts(3, 0, func(f *plan.Facts) { f.Machines[1].Spec.Approval = "Pending" }), want: []string{
			"MachineKnown: control planes that are not approved, and so not touched: cp-2; their etcd would live on beside the restored one"}},
		"a control plane that joins": {facts: facts(3, 0, joins(1)), want: []string{
			"MachineKnown: machine cp-2 was given its machine config, and has not joined yet: its etcd would live on beside the restored one"}},
		"a worker that joins":  {facts: facts(3, 1, joins(3))},
		"an unapproved worker": {facts: facts(3, 1, func(f *plan.Facts) { f.Machines[3].Spec.Approval = "Pending" })},
		"no control plane":     {facts: facts(0, 2), want: []string{"MachineKnown: no control plane of cluster c1 is known"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, refusals := Planner{StoresSnapshots: !row.hubless}.Plan(row.facts)
			var got []string
			for _, refusal := range refusals {
				got = append(got, refusal.Gate+": "+refusal.Message)
				NewWithT(t).Expect(refusal.Help).NotTo(BeEmpty())
			}
			NewWithT(t).Expect(got).To(Equal(row.want))
		})
	}
}

// joins makes a machine one that was given its machine config and has not joined.
func joins(i int) func(*plan.Facts) {
	return func(f *plan.Facts) {
		f.Machines[i].Spec.Join = &v1alpha1.JoinSpec{}
		f.Machines[i].Annotations = map[string]string{v1alpha1.ProvisionedAtAnnotation: "2026-01-01T00:00:00Z"}
	}
}

func TestWarningsAndLosses(t *testing.T) {
	g := NewWithT(t)
	made, _ := Planner{StoresSnapshots: true}.Plan(facts(1, 1, withoutSafety, func(f *plan.Facts) {
		f.Snapshot.Spec.Contents.EtcdVersion, f.Snapshot.Spec.Contents.Keys.ServiceAccount, f.Snapshot.Spec.Contents.SizeBytes = "", "", 1024
		f.Machines[0].Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "x"}
		f.Machines[1].Spec.Approval = "Pending"
	}))
	codes := map[string]string{}
	for _, warning := range made.Warnings {
		codes[warning.Code] = warning.Message
	}
	g.Expect(codes).To(And(
		HaveKey("Outage"), HaveKey("Rewinds"), HaveKeyWithValue("NoSnapshot", "no snapshot of what runs now is taken: there is no way back"),
		HaveKeyWithValue("UnknownFacts", "the snapshot does not tell the version of etcd, the key of service accounts: that is not compared"),
		HaveKey("RawCopy"), HaveKeyWithValue("HoldIgnored", "held machines are taken as well: cp-1"), HaveKey("PendingWorkers"), HaveLen(7),
	))
	g.Expect(made.Losses).To(ConsistOf(ContainSubstring("partition EPHEMERAL"), "whatever was written to the Kubernetes API since 2026-11-30T03:00:00Z (revision 1234 of etcd)"))
	g.Expect(made.Changes["cp-1"].Effect).To(BeEquivalentTo("Reboot"))
	made, _ = Planner{StoresSnapshots: true}.Plan(facts(1, 0, func(f *plan.Facts) { f.Snapshot = nil }))
	g.Expect(made.Losses).To(HaveLen(1))
}

// A snapshot of a newer minor version of Kubernetes is taken, with a warning.
func TestNewerKubernetes(t *testing.T) {
	const code = "NewerKubernetes"
	for name, row := range map[string]struct {
		snapshot, runs string
		warns          bool
	}{
		"the same": {"v1.36.2", "v1.36.1", false}, "newer": {"v1.36.0", "v1.35.9", true}, "older": {"v1.35.0", "v1.36.0", false},
		"the snapshot does not tell": {"", "v1.36.0", false}, "nobody knows what runs": {"v1.36.0", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			made, refusals := Planner{StoresSnapshots: true}.Plan(facts(1, 0, func(f *plan.Facts) {
				f.Snapshot.Spec.Contents.KubernetesVersion, f.Cluster.Status.KubernetesVersion = row.snapshot, row.runs
			}))
			NewWithT(t).Expect(refusals).To(BeEmpty())
			NewWithT(t).Expect(slices.ContainsFunc(made.Warnings, func(w plan.Warning) bool { return w.Code == code })).To(Equal(row.warns))
		})
	}
}

// What watches the cluster and is not restarted by the operation is named.
func TestRewindsNamesWhatHasToBeRestarted(t *testing.T) {
	made, _ := Planner{StoresSnapshots: true}.Plan(facts(1, 1))
	NewWithT(t).Expect(made.Warnings).To(ContainElement(And(HaveField("Code", "Rewinds"), HaveField("Message", ContainSubstring("kubectl -n kube-system rollout restart")))))
}
