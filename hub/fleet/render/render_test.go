// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(now)}
}

func operation(name string, phase v1alpha1.OperationPhase, conditions ...metav1.Condition) *v1alpha1.TalosOperation {
	return &v1alpha1.TalosOperation{
		ObjectMeta: named(name),
		Spec:       v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: v1alpha1.TalosKind},
		Status:     v1alpha1.TalosOperationStatus{Phase: phase, Conditions: conditions},
	}
}

func running(name string) *v1alpha1.TalosOperation {
	return operation(name, "InProgress", conditionOf("LockHeld", "True", "Held", ""), conditionOf("Progressing", "True", "Progressing", "c1-w-1: Draining"))
}

func failed(name string) *v1alpha1.TalosOperation {
	op := operation(name, "Paused", conditionOf("LockHeld", "True", "Held", ""), conditionOf("Paused", "True", "StepFailed", "c1-w-1: Draining: a pod stays; nothing is repeated"))
	op.Status.FailureReason = "c1-w-1: Draining: a pod stays"
	return op
}

func machine(name string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: named(name),
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: "c1", Role: role, Approval: v1alpha1.Approved},
		Status: v1alpha1.TalosMachineStatus{
			NodeName: strings.TrimPrefix(name, "c1-"), TalosVersion: "v1.13.9", KubeletVersion: "v1.35.2", SchematicID: "s1",
			Conditions: []metav1.Condition{conditionOf("Ready", "True", "Ready", "")},
		},
	}
}

func TestOperation(t *testing.T) {
	g := NewWithT(t)
	op := running("up")
	op.UID = "u-1"
	op.Labels = map[string]string{"team": "a"}
	op.Annotations = map[string]string{v1alpha1.CreatedByAnnotation: "ada", v1alpha1.RetryAnnotation: "true"}
	op.Spec.MaxUnavailable = ptr.To(intstr.FromString("30%"))
	op.Spec.Overrides = []v1alpha1.GateOverride{{Gate: "TalosVersionPath", Reason: "tested"}}
	op.Spec.ExpectedTarget = &v1alpha1.OperationTarget{TalosVersion: "v1.14.0"}
	op.Status.Stage, op.Status.CompletedStages = "Upgrade", []string{"Pull"}
	op.Status.StartTime = metav1.NewTime(now.Add(time.Second))
	op.Status.Machines = []v1alpha1.UnitStatus{
		{Name: "c1-cp-1", Phase: "Completed", Stage: "Upgrade", Steps: []v1alpha1.StepRecord{
			{Step: "Pulling", Stage: "Pull", StartTime: metav1.NewTime(now), CompletionTime: metav1.NewTime(now.Add(time.Minute))},
		}},
		{Name: "c1-w-1", Phase: "InProgress", Stage: "Upgrade", Step: "Draining", StepStartTime: metav1.NewTime(now), Message: "a budget keeps pods", FailureTime: metav1.NewTime(now)},
	}
	rendered := Operation(op)
	g.Expect(rendered.GetRef()).To(BeEquivalentTo(Reference("default", "up")))
	g.Expect(rendered.GetCluster().GetName()).To(Equal("c1"))
	g.Expect(rendered.GetUid()).To(Equal("u-1"))
	g.Expect(rendered.GetKind()).To(Equal(pb.OperationKind_OPERATION_KIND_TALOS))
	g.Expect(rendered.GetPhase()).To(Equal(pb.OperationPhase_OPERATION_PHASE_IN_PROGRESS))
	g.Expect(rendered.GetTarget().GetTalosVersion()).To(Equal("v1.14.0"), "what it expects, since it has no target yet")
	g.Expect(rendered.GetCreatedBy()).To(Equal("ada"))
	g.Expect(rendered.GetRetryRequested()).To(BeTrue())
	g.Expect(rendered.GetLockHeld()).To(BeTrue())
	g.Expect(rendered.GetMaxUnavailable()).To(Equal("30%"))
	g.Expect(rendered.GetOverrides()[0].GetReason()).To(Equal("tested"))
	g.Expect(rendered.GetLabels()).To(HaveKeyWithValue("team", "a"))
	g.Expect(rendered.GetStartTime().AsTime()).To(Equal(now.Add(time.Second)))
	g.Expect(rendered.GetCompletionTime()).To(BeNil())
	g.Expect(rendered.GetCompletedStages()).To(Equal([]string{"Pull"}))
	g.Expect(rendered.GetMachines()[0].GetPhase()).To(Equal(pb.UnitPhase_UNIT_PHASE_COMPLETED))
	g.Expect(rendered.GetMachines()[0].GetSteps()[0].GetStage()).To(Equal("Pull"))
	g.Expect(rendered.GetMachines()[0].GetSteps()[0].GetEndTime().AsTime()).To(Equal(now.Add(time.Minute)))
	g.Expect(rendered.GetMachines()[1].GetFailed()).To(BeTrue())
	g.Expect(rendered.GetMachines()[1].GetMessage()).To(Equal("a budget keeps pods"))

	op.Status.Target = &v1alpha1.OperationTarget{TalosVersion: "v1.14.1"}
	g.Expect(Operation(op).GetTarget().GetTalosVersion()).To(Equal("v1.14.1"))
}

func TestProgress(t *testing.T) {
	held, pending := machine("c1-w-2", v1alpha1.WorkerRole), machine("c1-w-3", v1alpha1.WorkerRole)
	held.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "a disk is slow"}
	pending.Spec.Approval = v1alpha1.ApprovalPending
	machines := []*v1alpha1.TalosMachine{machine("c1-cp-1", v1alpha1.ControlPlaneRole), machine("c1-w-1", v1alpha1.WorkerRole), held, pending}
	selected := []v1alpha1.UnitStatus{{Name: "c1-cp-1", Phase: "Completed"}}
	for name, row := range map[string]struct {
		change           func(*v1alpha1.TalosOperation)
		total, completed int32
	}{
		"not begun": {func(*v1alpha1.TalosOperation) {}, 2, 0},
		"begun":     {func(op *v1alpha1.TalosOperation) { op.Status.Machines = selected }, 2, 1},
		"over": {func(op *v1alpha1.TalosOperation) {
			op.Status.Machines = selected
			op.Status.CompletionTime = metav1.NewTime(now)
		}, 1, 1},
		"one machine": {func(op *v1alpha1.TalosOperation) { op.Spec.Node = &v1alpha1.NodeParameters{Machine: "c1-w-2"} }, 1, 0},
		"a stop takes held ones as well": {func(op *v1alpha1.TalosOperation) {
			op.Spec.Shutdown = &v1alpha1.ShutdownParameters{Action: "Stop", Snapshot: "None"}
		}, 3, 0},
		"a restore takes held ones as well": {func(op *v1alpha1.TalosOperation) {
			op.Spec.EtcdRestore = &v1alpha1.EtcdRestoreParameters{SnapshotName: "s", SafetySnapshot: "None"}
		}, 3, 0},
		"a start takes none": {func(op *v1alpha1.TalosOperation) { op.Spec.Shutdown = &v1alpha1.ShutdownParameters{Action: "Start"} }, 0, 0},
		"without machines":   {func(op *v1alpha1.TalosOperation) { op.Spec.Kind = v1alpha1.CNIKind }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			op := operation("up", "InProgress")
			row.change(op)
			rendered := Operation(op, machines...)
			NewWithT(t).Expect([]int32{rendered.GetMachinesTotal(), rendered.GetMachinesCompleted()}).To(Equal([]int32{row.total, row.completed}))
		})
	}
}

// What waits for a retry that somebody asked for has had its person.
func TestAttentionOfARetry(t *testing.T) {
	g := NewWithT(t)
	op := failed("up")
	g.Expect(Operation(op).GetAttention()).To(Equal(pb.Attention_ATTENTION_FAILED))
	op.Annotations = map[string]string{v1alpha1.RetryAnnotation: "true"}
	g.Expect(Operation(op).GetAttention()).To(Equal(pb.Attention_ATTENTION_WAITING))
}

func TestMachine(t *testing.T) {
	for name, row := range map[string]struct {
		change    func(*v1alpha1.TalosMachine)
		work      Work
		attention pb.Attention
	}{
		"ready":   {func(*v1alpha1.TalosMachine) {}, Work{}, pb.Attention_ATTENTION_NONE},
		"pending": {func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending }, Work{}, pb.Attention_ATTENTION_PERSON},
		"another machine": {func(m *v1alpha1.TalosMachine) {
			m.Status.Conditions = append(m.Status.Conditions, conditionOf("IdentityConfirmed", "False", "Mismatch", ""))
		}, Work{}, pb.Attention_ATTENTION_PERSON},
		"not ready": {func(m *v1alpha1.TalosMachine) { m.Status.Conditions[0].Status = "False" }, Work{}, pb.Attention_ATTENTION_SOON},
		"does not answer": {func(m *v1alpha1.TalosMachine) {
			m.Status.Conditions[0] = conditionOf("Ready", "Unknown", "NotReachable", "")
		}, Work{}, pb.Attention_ATTENTION_SOON},
		"being rebooted":   {func(m *v1alpha1.TalosMachine) { m.Status.Conditions[0].Status = "False" }, Work{Operation: Reference("default", "up"), Step: "Rebooting", Moves: true}, pb.Attention_ATTENTION_WAITING},
		"failed":           {func(*v1alpha1.TalosMachine) {}, Work{Operation: Reference("default", "up"), Step: "Rebooting", Failed: true}, pb.Attention_ATTENTION_FAILED},
		"not observed yet": {func(m *v1alpha1.TalosMachine) { m.Status.Conditions = nil }, Work{}, pb.Attention_ATTENTION_NONE},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := machine("c1-w-1", v1alpha1.WorkerRole)
			row.change(m)
			rendered := Machine(m, row.work)
			g.Expect(rendered.GetAttention()).To(Equal(row.attention))
			g.Expect(rendered.GetNode()).To(Equal("w-1"))
			g.Expect(rendered.GetRole()).To(Equal(pb.MachineRole_MACHINE_ROLE_WORKER))
			g.Expect(rendered.GetStep()).To(Equal(row.work.Step))
			g.Expect(rendered.GetOperation().GetName()).To(Equal(row.work.Operation.GetName()))
		})
	}
}

// A machine that a failed operation still has in hand may be in hand of the one that took the lock over: that is the one that works on it.
func TestWorks(t *testing.T) {
	g := NewWithT(t)
	first, second, over := failed("first"), running("second"), running("over")
	first.Status.Conditions[0].Status = "False"
	first.Status.Machines = []v1alpha1.UnitStatus{{Name: "c1-w-1", Phase: "InProgress", Step: "Draining", FailureTime: metav1.NewTime(now)}, {Name: "c1-w-2", Phase: "InProgress", Stage: "Pull"}}
	second.Status.Machines = []v1alpha1.UnitStatus{{Name: "c1-w-1", Phase: "InProgress", Step: "Rebooting"}, {Name: "c1-cp-1", Phase: "Completed", Step: "Uncordoning"}}
	over.Status.Machines, over.Status.CompletionTime = []v1alpha1.UnitStatus{{Name: "c1-w-3", Phase: "InProgress", Step: "Draining"}}, metav1.NewTime(now)
	operations := []*pb.Operation{Operation(first), Operation(second), Operation(over)}
	works := Works(operations)
	g.Expect(works).To(HaveLen(1), "between two steps nothing works on a machine")
	g.Expect(works["c1-w-1"].Same(Work{Operation: Reference("default", "second"), Step: "Rebooting", Moves: true})).To(BeTrue())
	operations[0], operations[1] = operations[1], operations[0]
	g.Expect(Works(operations)["c1-w-1"].Same(works["c1-w-1"])).To(BeTrue(), "in whatever order")
}

// facts are a cluster with which nothing is wrong.
func facts() Facts {
	cluster := &v1alpha1.TalosCluster{ObjectMeta: named("c1"), Spec: v1alpha1.TalosClusterSpec{TalosVersion: "v1.13.9"}}
	cluster.Annotations = map[string]string{v1alpha1.MembersApprovedAtAnnotation: "2026-01-01T00:00:00Z"}
	cluster.Status.KubernetesVersion = "v1.35.2"
	for _, kind := range []string{"Available", "CredentialsValid", "KubernetesReachable", "TalosReachable", "MachinesDiscovered", "Owned", "EtcdHealthy", "SpecInSync"} {
		cluster.Status.Conditions = append(cluster.Status.Conditions, conditionOf(kind, "True", kind, ""))
	}
	return Facts{Cluster: cluster, Machines: []*v1alpha1.TalosMachine{machine("c1-cp-1", v1alpha1.ControlPlaneRole), machine("c1-w-1", v1alpha1.WorkerRole)}}
}

func (of *Facts) set(kind string, status metav1.ConditionStatus, reason, message string) {
	for i, condition := range of.Cluster.Status.Conditions {
		if condition.Type == kind {
			of.Cluster.Status.Conditions[i] = conditionOf(kind, status, reason, message)
		}
	}
}

func TestClusterAttention(t *testing.T) {
	reboots := func(of *Facts) { of.Operations = []*pb.Operation{Operation(running("up"))} }
	for name, row := range map[string]struct {
		change    func(*Facts)
		attention pb.Attention
		why       string
	}{
		"nothing is wrong":   {func(*Facts) {}, pb.Attention_ATTENTION_NONE, ""},
		"nothing is known":   {func(of *Facts) { of.Cluster.Status.Conditions = nil }, pb.Attention_ATTENTION_WAITING, "the hub has not looked at the cluster yet"},
		"not yet observed":   {func(of *Facts) { of.set("Available", "Unknown", "NotYetObserved", "") }, pb.Attention_ATTENTION_WAITING, "Available: NotYetObserved"},
		"a failed operation": {func(of *Facts) { of.Operations = []*pb.Operation{Operation(failed("up"))} }, pb.Attention_ATTENTION_FAILED, "operation up: c1-w-1: Draining: a pod stays"},
		"a failed operation comes before drift": {func(of *Facts) {
			of.set("SpecInSync", "False", "OutOfSync", "machines run another")
			of.Operations = []*pb.Operation{Operation(failed("up"))}
		}, pb.Attention_ATTENTION_FAILED, "operation up: c1-w-1: Draining: a pod stays"},
		"credentials are refused": {func(of *Facts) { of.set("CredentialsValid", "False", "KubeconfigExpired", "kubeconfig: it ended") }, pb.Attention_ATTENTION_PERSON, "CredentialsValid: kubeconfig: it ended"},
		"the last snapshot is old": {func(of *Facts) {
			of.Cluster.Status.Conditions = append(of.Cluster.Status.Conditions, conditionOf("EtcdBackedUp", "False", "TooOld", "of last year"))
		}, pb.Attention_ATTENTION_SOON, "EtcdBackedUp: of last year"},
		"credentials end soon":                   {func(of *Facts) { of.set("CredentialsValid", "True", "ExpiringSoon", "talosconfig: 12 days") }, pb.Attention_ATTENTION_SOON, "CredentialsValid: talosconfig: 12 days"},
		"another hub's":                          {func(of *Facts) { of.set("Owned", "False", "OwnedByAnotherHub", "it is x's") }, pb.Attention_ATTENTION_PERSON, "Owned: it is x's"},
		"unreachable":                            {func(of *Facts) { of.set("KubernetesReachable", "False", "NotReachable", "no answer") }, pb.Attention_ATTENTION_PERSON, "KubernetesReachable: no answer"},
		"unreachable while it moves":             {func(of *Facts) { of.set("KubernetesReachable", "False", "NotReachable", "no answer"); reboots(of) }, pb.Attention_ATTENTION_WAITING, "KubernetesReachable: no answer"},
		"credentials are refused while it moves": {func(of *Facts) { of.set("CredentialsValid", "False", "KubeconfigExpired", "it ended"); reboots(of) }, pb.Attention_ATTENTION_PERSON, "CredentialsValid: it ended"},
		"one machine is silent":                  {func(of *Facts) { of.set("TalosReachable", "False", "PartlyReachable", "10.0.0.1: no answer") }, pb.Attention_ATTENTION_SOON, "TalosReachable: 10.0.0.1: no answer"},
		"etcd is not healthy":                    {func(of *Facts) { of.set("EtcdHealthy", "False", "NotHealthy", "no leader") }, pb.Attention_ATTENTION_PERSON, "EtcdHealthy: no leader"},
		"two records of a machine":               {func(of *Facts) { of.set("MachinesDiscovered", "False", "Duplicate", "two have a UUID") }, pb.Attention_ATTENTION_PERSON, "MachinesDiscovered: two have a UUID"},
		"a machine is unmatched":                 {func(of *Facts) { of.set("MachinesDiscovered", "False", "Unmatched", "w-2 has no machine") }, pb.Attention_ATTENTION_SOON, "MachinesDiscovered: w-2 has no machine"},
		"discovery never ended": {func(of *Facts) {
			of.set("MachinesDiscovered", "False", "Unmatched", "w-2 has no machine")
			of.Cluster.Annotations = nil
		}, pb.Attention_ATTENTION_PERSON, "MachinesDiscovered: w-2 has no machine"},
		"a machine waits for approval": {func(of *Facts) { of.Machines[1].Spec.Approval = v1alpha1.ApprovalPending }, pb.Attention_ATTENTION_PERSON, "waiting for an approval: c1-w-1"},
		"a machine is not ready": {func(of *Facts) {
			of.Machines[1].Status.Conditions = []metav1.Condition{conditionOf("Ready", "False", "NotReady", "")}
		}, pb.Attention_ATTENTION_SOON, "not ready: c1-w-1"},
		"another machine answers": {func(of *Facts) {
			of.Machines[1].Status.Conditions = []metav1.Condition{conditionOf("IdentityConfirmed", "False", "Mismatch", "")}
		}, pb.Attention_ATTENTION_PERSON, "another machine answers at the address of c1-w-1"},
		"drift": {func(of *Facts) {
			of.Cluster.Spec.TalosVersion = "v1.14.0"
			of.set("SpecInSync", "False", "OutOfSync", "the machines run Talos v1.13.9")
		}, pb.Attention_ATTENTION_SOON, "SpecInSync: the machines run Talos v1.13.9"},
		"drift of Kubernetes":          {func(of *Facts) { of.Cluster.Spec.KubernetesVersion = "v1.36.0" }, pb.Attention_ATTENTION_SOON, "kubernetesVersion: v1.35.2 runs, and the spec asks for v1.36.0"},
		"drift that is being upgraded": {func(of *Facts) { of.Cluster.Spec.TalosVersion = "v1.14.0"; reboots(of) }, pb.Attention_ATTENTION_NONE, ""},
		"off on purpose": {func(of *Facts) {
			of.power("Stopped")
			of.set("KubernetesReachable", "False", "Stopped", "the cluster was stopped on purpose")
			of.set("TalosReachable", "False", "NotReachable", "no machine answers")
			of.set("EtcdHealthy", "False", "NotHealthy", "no leader")
			of.Machines[1].Status.Conditions = []metav1.Condition{conditionOf("Ready", "False", "NotReady", "")}
		}, pb.Attention_ATTENTION_WAITING, `the cluster was stopped on purpose by TalosOperation "default/off" at 2026-01-02T03:04:05Z; power its machines on, then: ichor cluster start c1`},
		"being stopped": {func(of *Facts) {
			of.power("Stopping")
			of.set("KubernetesReachable", "False", "NotReachable", "no answer")
		}, pb.Attention_ATTENTION_WAITING, `the cluster is being stopped on purpose by TalosOperation "default/off"`},
		"being started": {func(of *Facts) {
			of.power("Starting")
			of.set("TalosReachable", "False", "NotReachable", "no machine answers")
		}, pb.Attention_ATTENTION_WAITING, `the cluster was stopped on purpose by TalosOperation "default/off" at 2026-01-02T03:04:05Z, and is being started`},
		"off on purpose, and its credentials are refused": {func(of *Facts) {
			of.power("Stopped")
			of.set("CredentialsValid", "False", "KubeconfigExpired", "it ended")
		}, pb.Attention_ATTENTION_PERSON, "CredentialsValid: it ended"},
		"long": {func(of *Facts) { of.set("Owned", "False", "OwnedByAnotherHub", strings.Repeat("é", 200)) }, pb.Attention_ATTENTION_PERSON, "Owned: " + strings.Repeat("é", 123) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			of := facts()
			row.change(&of)
			rendered := Cluster(of)
			g.Expect(rendered.GetAttention()).To(Equal(row.attention))
			g.Expect(rendered.GetAttentionReason()).To(Equal(row.why))
		})
	}
}

// power makes a planned shutdown of the cluster be so far.
func (of *Facts) power(is string) {
	of.Cluster.Annotations = map[string]string{
		v1alpha1.MembersApprovedAtAnnotation: "2026-01-01T00:00:00Z",
		v1alpha1.PowerAnnotation:             is, v1alpha1.StoppedByAnnotation: "default/off", v1alpha1.StoppedAtAnnotation: "2026-01-02T03:04:05Z",
	}
}

func TestCluster(t *testing.T) {
	g := NewWithT(t)
	of := facts()
	of.Cluster.Spec.TalosVersion, of.Cluster.Spec.SchematicID = "v1.14.0", "s2"
	of.Cluster.Spec.ControlPlaneEndpoint = &v1alpha1.APIEndpoint{Host: "fd00::1", Port: 6443}
	of.Machines[0].Status.TalosVersion, of.Machines[0].Status.SchematicID = "v1.9.10", "s2"
	of.Machines[0].Status.KubeletVersion = "v1.36.0"
	of.Machines[1].Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: ""}
	stranger := machine("c1-w-9", v1alpha1.WorkerRole)
	stranger.Spec.Approval, stranger.Status.TalosVersion, stranger.Status.Conditions = v1alpha1.ApprovalPending, "v1.8.0", nil
	of.Machines = append(of.Machines, stranger)
	of.Operations = []*pb.Operation{Operation(running("up"), of.Machines...)}

	rendered := Cluster(of)
	g.Expect(rendered.GetEndpoint()).To(Equal("[fd00::1]:6443"))
	g.Expect(rendered.GetMode()).To(Equal(pb.ClusterMode_CLUSTER_MODE_IMPORTED))
	g.Expect(rendered.GetDesired().GetTalosVersion()).To(Equal("v1.14.0"))
	g.Expect(rendered.GetTalosVersions()).To(BeEquivalentTo(&pb.VersionRange{Lowest: "v1.8.0", Highest: "v1.13.9"}))
	g.Expect(rendered.GetKubernetesVersions()).To(BeEquivalentTo(&pb.VersionRange{Lowest: "v1.35.2", Highest: "v1.36.0"}))
	g.Expect([]int32{rendered.GetControlPlanes(), rendered.GetWorkers(), rendered.GetMachinesReady(), rendered.GetMachinesPending(), rendered.GetMachinesHeld()}).To(Equal([]int32{1, 2, 2, 1, 1}))
	g.Expect(rendered.GetDrift()).To(BeEquivalentTo([]*pb.Drift{
		{Field: "talosVersion", Desired: "v1.14.0", Observed: "v1.9.10, v1.13.9", Machines: []string{"c1-cp-1", "c1-w-1"}},
		{Field: "schematicID", Desired: "s2", Observed: "s1", Machines: []string{"c1-w-1"}},
	}), "of machines that the hub may touch")
	g.Expect(rendered.GetOperations()).To(HaveLen(1))
	g.Expect(rendered.GetOperations()[0].GetMachinesTotal()).To(BeEquivalentTo(1))

	adopted := clusterv1.Cluster{Spec: clusterv1.ClusterSpec{ControlPlaneRef: clusterv1.ContractVersionedObjectReference{Kind: "TalosControlPlane", Name: "c1", APIGroup: "x"}}}
	adopted.Spec.Paused = ptr.To(true)
	adopted.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}
	of.CAPICluster, of.Cluster.Spec.ControlPlaneEndpoint = &adopted, nil
	rendered = Cluster(of)
	g.Expect(rendered.GetMode()).To(Equal(pb.ClusterMode_CLUSTER_MODE_ADOPTED))
	g.Expect(rendered.GetPaused()).To(BeTrue())
	g.Expect(rendered.GetEndpoint()).To(Equal("10.0.0.1:6443"))
}

func TestLockHolder(t *testing.T) {
	g := NewWithT(t)
	of := facts()
	g.Expect(Cluster(of).GetLock()).To(BeNil())
	of.Cluster.Status.LockHolder = "ichor-controller/op/default/up"
	g.Expect(Cluster(of).GetLock()).To(BeEquivalentTo(&pb.LockHolder{Holder: "ichor-controller/op/default/up", Operation: Reference("default", "up")}))
	of.Lease = &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("ichor-controller/machine/default/c1-w-1"), AcquireTime: ptr.To(metav1.NewMicroTime(now)),
	}}
	lock := Cluster(of).GetLock()
	g.Expect(lock.GetHolder()).To(Equal("ichor-controller/machine/default/c1-w-1"), "the Lease knows it first")
	g.Expect(lock.GetOperation()).To(BeNil())
	g.Expect(lock.GetSince().AsTime()).To(Equal(now))
	of.Lease.Spec = coordinationv1.LeaseSpec{}
	g.Expect(Cluster(of).GetLock()).To(BeNil())
}

// What one message says is what another one is read as, for every kind.
func TestKindsAndTargets(t *testing.T) {
	g := NewWithT(t)
	g.Expect(kinds).To(HaveLen(len(pb.OperationKind_name) - 1))
	for number := range pb.OperationKind_name {
		kind, ok := KindOf(pb.OperationKind(number))
		g.Expect(ok).To(Equal(number != 0))
		g.Expect(Kind(kind)).To(Equal(pb.OperationKind(number)))
	}
	target := v1alpha1.OperationTarget{TalosVersion: "v1", SchematicID: "s", KubernetesVersion: "v2", CiliumVersion: "v3", KubeProxy: "Replaced"}
	g.Expect(TargetOf(Target(target))).To(Equal(target))
	g.Expect(TargetOf(nil)).To(BeZero())
}
