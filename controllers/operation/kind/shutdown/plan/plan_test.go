// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

func machine(name string, role v1alpha1.MachineRole, change ...func(*v1alpha1.TalosMachine)) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{Role: role, Approval: "Approved"}}
	for _, c := range change {
		c(&m)
	}
	return m
}

func held(m *v1alpha1.TalosMachine) {
	m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "broken fan"}
}
func unapproved(m *v1alpha1.TalosMachine) { m.Spec.Approval = "Pending" }

// facts are those of a cluster with so many machines, for a stop or a start.
func facts(action v1alpha1.ClusterPowerAction, snapshot v1alpha1.ShutdownSnapshot, controlPlanes, workers int) plan.Facts {
	f := plan.Facts{
		Spec: v1alpha1.TalosOperationSpec{
			ClusterName: "c1", Kind: "shutdown", Shutdown: &v1alpha1.ShutdownParameters{Action: action, Snapshot: snapshot},
		},
		Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Annotations: map[string]string{}}},
	}
	for i := range controlPlanes {
		f.Machines = append(f.Machines, machine("cp-"+string(rune('1'+i)), "ControlPlane"))
	}
	for i := range workers {
		f.Machines = append(f.Machines, machine("w-"+string(rune('1'+i)), "Worker"))
	}
	return f
}

func power(f plan.Facts, is v1alpha1.ClusterPower) plan.Facts {
	f.Cluster.Annotations = map[string]string{
		v1alpha1.PowerAnnotation: string(is), v1alpha1.StoppedByAnnotation: "default/c1-shutdown-x", v1alpha1.StoppedAtAnnotation: "2026-01-02T03:04:05Z",
	}
	return f
}

// Case D16: workers go before control planes, and no control plane goes before every worker has proved to be off.
func TestCaseD16StopStages(t *testing.T) {
	three := []string{"cp-1", "cp-2", "cp-3"}
	snapshot := plan.Stage{Name: "Snapshot", Whole: true, Gates: []string{"EtcdHealthy"}}
	cordon := plan.Stage{Name: "Cordon", Whole: true, TakenBack: true, Gates: []string{"TargetReachable", "EtcdHealthy"}}
	workers := func(atOnce int) plan.Stage {
		return plan.Stage{
			Name: "Workers", Machines: []string{"w-1", "w-2", "w-3", "w-4"}, Batch: plan.Batch{Parallel: atOnce}, Disruptive: true,
			Gates: []string{"MachinesDiscovered", "TargetReachable"},
		}
	}
	controlPlanes := func(names ...string) plan.Stage {
		return plan.Stage{Name: "ControlPlanes", Machines: names, Batch: plan.Batch{Tiered: true}, Disruptive: true, Gates: []string{"MachinesDiscovered"}}
	}
	workersOff, off := plan.Stage{Name: "WorkersOff", Whole: true}, plan.Stage{Name: "Off", Whole: true}
	led := facts("Stop", "None", 3, 0)
	led.Cluster.Status.EtcdLeader = "cp-2"
	batches := facts("Stop", "None", 3, 4)
	batches.Spec.MaxUnavailable = ptr.To(intstr.FromString("50%"))
	for name, row := range map[string]struct {
		facts plan.Facts
		want  []plan.Stage
	}{
		"3+4":               {facts("Stop", "None", 3, 4), []plan.Stage{cordon, workers(4), workersOff, controlPlanes(three...), off}},
		"3+4 in batches":    {batches, []plan.Stage{cordon, workers(2), workersOff, controlPlanes(three...), off}},
		"3+4 with snapshot": {facts("Stop", "Take", 3, 4), []plan.Stage{snapshot, cordon, workers(4), workersOff, controlPlanes(three...), off}},
		"3+0, the leader":   {led, []plan.Stage{cordon, controlPlanes("cp-1", "cp-3", "cp-2"), off}},
		"1+0":               {facts("Stop", "None", 1, 0), []plan.Stage{cordon, controlPlanes("cp-1"), off}},
		"2+0":               {facts("Stop", "None", 2, 0), []plan.Stage{cordon, controlPlanes("cp-1", "cp-2"), off}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			made, _ := Planner{StoresSnapshots: true}.Plan(row.facts)
			g.Expect(made.Stages).To(Equal(row.want))
			g.Expect(made.Effect).To(Equal(plan.EffectStop))
		})
	}
}

// What an even number of control planes means to others is none of its business (DESIGN 5.5).
func TestStopAsksNobodyAboutTheNumberOfControlPlanes(t *testing.T) {
	g := NewWithT(t)
	f := facts("Stop", "None", 2, 1)
	f.Cluster.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 1 * * *"}}
	made, refusals := Planner{}.Plan(f)
	g.Expect(refusals).To(BeEmpty())
	g.Expect(made.DisruptedControlPlanes(f.Approved())).To(BeEmpty())
	g.Expect(made.LiveGates(f.Cluster, f.Approved())).To(Equal([]string{
		"WaitingForWindow", "TargetOwned", "MachinesDiscovered", "TargetReachable", "EtcdHealthy",
	}))
}

func TestStopWarnings(t *testing.T) {
	codes := func(f plan.Facts) []string {
		made, _ := Planner{}.Plan(f)
		var list []string
		for _, warning := range made.Warnings {
			list = append(list, warning.Code)
		}
		return list
	}
	g := NewWithT(t)
	g.Expect(codes(facts("Stop", "Take", 3, 1))).To(Equal([]string{"Outage"}))
	g.Expect(codes(facts("Stop", "None", 3, 1))).To(Equal([]string{"Outage", "NoSnapshot"}))
	g.Expect(codes(facts("Stop", "None", 2, 1))).To(Equal([]string{"Outage", "NoSnapshot", "TwoControlPlanes"}))
	f := facts("Stop", "None", 1, 0)
	f.Machines = append(f.Machines, machine("w-1", "Worker", held))
	made, refusals := Planner{}.Plan(f)
	g.Expect(refusals).To(BeEmpty())
	g.Expect(made.Warnings).To(ContainElement(plan.Warning{Code: "HoldIgnored", Message: "held machines are powered off as well: w-1"}))
	g.Expect(made.Stages[1].Machines).To(Equal([]string{"w-1"}))
	g.Expect(made.Held).To(BeEmpty())
}

func TestRefusals(t *testing.T) {
	stored := func(f plan.Facts) plan.Facts {
		f.Cluster.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "s3://b/p"}
		return f
	}
	waiting := facts("Stop", "None", 1, 1)
	waiting.Machines = append(waiting.Machines, machine("w-9", "Worker", unapproved))
	by := `cluster c1 was stopped on purpose by TalosOperation "default/c1-shutdown-x" at 2026-01-02T03:04:05Z`
	for name, row := range map[string]struct {
		planner Planner
		facts   plan.Facts
		want    []string
	}{
		"a stop":                            {Planner{}, facts("Stop", "None", 3, 2), nil},
		"a machine that is not approved":    {Planner{}, waiting, []string{"MachineKnown: not approved, and so not touched: w-9; a cluster is stopped as a whole"}},
		"nobody is known":                   {Planner{}, facts("Stop", "None", 0, 1), []string{"MachineKnown: no control plane of cluster c1 is known"}},
		"a snapshot that nobody stores":     {Planner{}, stored(facts("Stop", "Take", 1, 0)), []string{"SnapshotStorage: this hub does not store snapshots of etcd"}},
		"a snapshot without a place for it": {Planner{StoresSnapshots: true}, facts("Stop", "Take", 1, 0), []string{"SnapshotStorage: spec.etcdBackup.bucketURL of TalosCluster c1 is not set: a snapshot could be stored nowhere"}},
		"a snapshot":                        {Planner{StoresSnapshots: true}, stored(facts("Stop", "Take", 1, 0)), nil},
		"stopped already":                   {Planner{}, power(facts("Stop", "None", 1, 0), "Stopped"), []string{"ClusterRunning: " + by}},
		"being stopped":                     {Planner{}, power(facts("Stop", "None", 1, 0), "Stopping"), nil},
		"a start of what runs":              {Planner{}, facts("Start", "", 1, 0), []string{"ClusterStopped: cluster c1 was not stopped by an operation: there is nothing to start"}},
		"a start":                           {Planner{}, power(facts("Start", "", 1, 0), "Stopped"), nil},
		"a start of what is half off":       {Planner{}, power(facts("Start", "", 1, 0), "Stopping"), nil},
		"a start once more":                 {Planner{}, power(facts("Start", "", 1, 0), "Starting"), nil},
		"an action of a later hub":          {Planner{}, facts("Hibernate", "", 1, 0), []string{`ActionKnown: this hub does not know action "Hibernate"; it knows "Stop" and "Start"`}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, refusals := plan.Judge(row.planner, row.facts)
			var said []string
			for _, refusal := range refusals {
				g.Expect(refusal.Help).NotTo(BeEmpty())
				g.Expect(refusal.Overridable).To(Equal(refusal.Gate == v1alpha1.ClusterRunningGate))
				said = append(said, refusal.Gate+": "+refusal.Message)
			}
			g.Expect(said).To(Equal(row.want))
		})
	}
}

// Who mends a cluster that does not start any more may go on, and it is kept who said so.
func TestStoppedMayBeOverridden(t *testing.T) {
	g := NewWithT(t)
	f := power(facts("Stop", "None", 1, 0), "Stopped")
	f.Spec.Overrides = []v1alpha1.GateOverride{{Gate: "ClusterRunning", Reason: "it runs again"}}
	made, refusals := plan.Judge(Planner{}, f)
	g.Expect(refusals).To(BeEmpty())
	g.Expect(made.Overridden).To(HaveLen(1))
	g.Expect(made.Warnings).NotTo(ContainElement(HaveField("Code", plan.OverrideUselessWarning)))
}

// A start takes nothing away and waits for people, whatever the windows say.
func TestStart(t *testing.T) {
	g := NewWithT(t)
	f := power(facts("Start", "", 3, 2), "Stopped")
	made, _ := Planner{}.Plan(f)
	g.Expect(made.Effect).To(Equal(plan.EffectNone))
	g.Expect(made.Stages).To(Equal([]plan.Stage{
		{Name: "PowerOn", Whole: true, Gates: []string{"MachinesPoweredOn"}}, {Name: "Verify", Whole: true}, {Name: "Uncordon", Whole: true},
	}))
	f.Cluster.Spec.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Schedule: "0 1 * * *"}}
	g.Expect(made.LiveGates(f.Cluster, f.Approved())).To(Equal([]string{"MachinesPoweredOn"}))
}

func TestTraits(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Planner{}.Traits(facts("Stop", "None", 1, 0).Spec)).To(Equal(plan.Traits{
		RecordOptional: true, Windows: plan.WindowsToBegin, Power: plan.PowerOff, StartVerb: "shutdown",
	}))
	g.Expect(Planner{}.Traits(facts("Start", "", 1, 0).Spec)).To(Equal(plan.Traits{
		Repeatable: true, RecordOptional: true, Windows: plan.WindowsNever, Power: plan.PowerOn, StartVerb: "shutdown",
	}))
	g.Expect(Planner{}.Narrow(v1alpha1.OperationTarget{TalosVersion: "v1.14.1"})).To(Equal(v1alpha1.OperationTarget{}))
	g.Expect(Planner{}.AtTarget(nil, v1alpha1.OperationTarget{})).To(BeFalse())
}
