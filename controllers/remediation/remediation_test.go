// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/providers/capi"
)

const (
	skip  = "cluster.x-k8s.io/skip-remediation"
	owner = "ichor-controller/op/default/o1"
)

var (
	now = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	c1  = client.ObjectKey{Namespace: "default", Name: "c1"}
)

// working is an operation that holds the lock and has machine c1-w-1 in hand.
func working(changes ...func(*v1alpha1.TalosOperation)) *v1alpha1.TalosOperation {
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "o1"}}
	op.Spec.ClusterName, op.Spec.Kind = "c1", v1alpha1.NodeKind
	op.Spec.Node = &v1alpha1.NodeParameters{Action: v1alpha1.RebootAction}
	op.Status.Conditions = []metav1.Condition{{Type: v1alpha1.LockHeldCondition, Status: metav1.ConditionTrue, Reason: "LockHeld", LastTransitionTime: now}}
	op.Status.Machines = []v1alpha1.UnitStatus{{Name: "c1-w-1", Phase: v1alpha1.UnitInProgress, Stage: "reboot", Step: "Draining"}}
	for _, change := range changes {
		change(op)
	}
	return op
}

func noLock(op *v1alpha1.TalosOperation) { op.Status.Conditions[0].Status = metav1.ConditionFalse }

func parked(op *v1alpha1.TalosOperation) {
	op.Status.Machines[0].Stage, op.Status.Machines[0].Step = "", ""
}

func finished(op *v1alpha1.TalosOperation) {
	op.Status.Machines[0] = v1alpha1.UnitStatus{Name: "c1-w-1", Phase: v1alpha1.UnitCompleted, Stage: "reboot", CompletedStage: "reboot"}
}

func over(op *v1alpha1.TalosOperation) { op.Status.CompletionTime = now }

func paused(op *v1alpha1.TalosOperation) { op.Spec.Paused = ptr.To(true) }

func broken(op *v1alpha1.TalosOperation) {
	op.Status.FailureReason, op.Status.Machines[0].FailureTime = "machine c1-w-1: it did not come back", now
}

func switchingOff(op *v1alpha1.TalosOperation) { op.Spec.Node.Action = v1alpha1.ShutdownAction }

// since is the Machine of c1-w-1, whose Node has been Ready or not since some time.
func since(status metav1.ConditionStatus, when time.Time) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "m1", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}, Annotations: map[string]string{skip: owner},
		},
		Spec:   clusterv1.MachineSpec{ClusterName: "c1"},
		Status: clusterv1.MachineStatus{Conditions: []metav1.Condition{{Type: "NodeReady", Status: status, Reason: "x", LastTransitionTime: metav1.NewTime(when)}}},
	}
}

func ready() *clusterv1.Machine { return since(metav1.ConditionTrue, now.Add(-time.Hour)) }

func away() *clusterv1.Machine { return since(metav1.ConditionFalse, now.Add(-time.Minute)) }

// world is a Reconciler on a fake API with a Cluster of somebody's, its machine and the operations that there are.
func world(t *testing.T, capiMachine *clusterv1.Machine, ops ...*v1alpha1.TalosOperation) *Reconciler {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c1"}
	machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-w-1", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	machine.Status.MachineName = "m1"
	c := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(cluster, machine, capiMachine).Build()
	for _, op := range ops {
		if op != nil {
			NewWithT(t).Expect(c.Create(t.Context(), op)).To(Succeed())
		}
	}
	return &Reconciler{
		Client: c, Machines: capi.Machines{Client: c, Live: c}, Clock: clocktesting.NewFakeClock(now.Time), begin: func() error { return nil },
	}
}

func (r *Reconciler) reconcile(t *testing.T) (ctrl.Result, string) {
	t.Helper()
	g := NewWithT(t)
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: c1})
	g.Expect(err).NotTo(HaveOccurred())
	machine := &clusterv1.Machine{}
	g.Expect(r.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "m1"}, machine)).To(Succeed())
	return result, machine.Annotations[skip]
}

func TestGivingBack(t *testing.T) {
	for name, row := range map[string]struct {
		op      *v1alpha1.TalosOperation
		machine *clusterv1.Machine
		kept    bool
		again   time.Duration
	}{
		"in hand":                                   {working(), away(), true, 0},
		"in hand, and still up":                     {working(), ready(), true, 0},
		"in hand, while somebody paused":            {working(paused), away(), true, 0},
		"in hand, after the lock was lost":          {working(noLock), away(), true, 0},
		"claimed next":                              {working(parked), ready(), true, 0},
		"put back by a pause":                       {working(parked, paused), ready(), false, 0},
		"put back, and the lock is free":            {working(parked, noLock), ready(), false, 0},
		"finished, while others follow":             {working(finished), ready(), false, 0},
		"finished, and not seen Ready yet":          {working(finished), away(), true, 2 * time.Minute},
		"over, and not seen Ready yet":              {working(finished, over), away(), true, 2 * time.Minute},
		"over":                                      {working(finished, over), ready(), false, 0},
		"failed":                                    {working(broken), away(), false, 0},
		"of an operation that is gone":              {nil, ready(), false, 0},
		"of an operation that is gone, and away":    {nil, away(), true, 2 * time.Minute},
		"switched off, looks up for a while":        {working(finished, over, switchingOff), ready(), true, 0},
		"switched off":                              {working(finished, over, switchingOff), away(), true, 0},
		"switched off, and on again":                {working(finished, over, switchingOff), since(metav1.ConditionTrue, now.Add(time.Hour)), false, 0},
		"being switched off":                        {working(switchingOff), ready(), true, 0},
		"of an operation that waits with its lock":  {working(parked, func(op *v1alpha1.TalosOperation) { op.Status.Machines = nil }), ready(), true, 0},
		"of one that failed before it got anywhere": {working(parked, func(op *v1alpha1.TalosOperation) { op.Status.FailureReason = "x" }), ready(), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			result, left := world(t, row.machine, row.op).reconcile(t)
			g.Expect(left).To(Equal(map[bool]string{true: owner, false: ""}[row.kept]))
			g.Expect(result.RequeueAfter).To(Equal(row.again))
		})
	}
}

// A Node that Cluster API does not see Ready is away after all, and health checks are what it needs.
func TestPatienceEnds(t *testing.T) {
	g := NewWithT(t)
	r := world(t, away(), working(finished, over))
	clock := clocktesting.NewFakeClock(now.Time)
	r.Clock = clock
	_, left := r.reconcile(t)
	g.Expect(left).To(Equal(owner))
	clock.Step(90 * time.Second)
	result, left := r.reconcile(t)
	g.Expect(left).To(Equal(owner))
	g.Expect(result.RequeueAfter).To(Equal(30 * time.Second))
	clock.Step(30 * time.Second)
	_, left = r.reconcile(t)
	g.Expect(left).To(BeEmpty())
}

// A machine that was taken in hand again waits anew.
func TestPatienceBeginsAnew(t *testing.T) {
	g := NewWithT(t)
	r := world(t, away(), working(finished))
	clock := clocktesting.NewFakeClock(now.Time)
	r.Clock = clock
	r.reconcile(t)
	again := working()
	g.Expect(r.Client.Get(t.Context(), client.ObjectKeyFromObject(again), again)).To(Succeed())
	again.Status = working().Status
	g.Expect(r.Client.Update(t.Context(), again)).To(Succeed())
	clock.Step(3 * time.Minute)
	result, left := r.reconcile(t)
	g.Expect(left).To(Equal(owner))
	g.Expect(result.RequeueAfter).To(BeZero())
}

func TestWhatIsNotTheHubs(t *testing.T) {
	for _, value := range []string{"", "true", "ichor-controller/machine/default/c1-w-1"} {
		t.Run(value, func(t *testing.T) {
			g := NewWithT(t)
			machine := ready()
			machine.Annotations[skip] = value
			r := world(t, machine, working(finished, over))
			_, left := r.reconcile(t)
			g.Expect(left).To(Equal(value))
			found := &clusterv1.Machine{}
			g.Expect(r.Client.Get(t.Context(), client.ObjectKeyFromObject(machine), found)).To(Succeed())
			g.Expect(found.Annotations).To(HaveKey(skip))
		})
	}
}

func TestNothingIsGivenBackOfAPausedCluster(t *testing.T) {
	g := NewWithT(t)
	r := world(t, ready(), working(finished, over))
	cluster := &clusterv1.Cluster{}
	g.Expect(r.Client.Get(t.Context(), c1, cluster)).To(Succeed())
	cluster.Spec.Paused = ptr.To(true)
	g.Expect(r.Client.Update(t.Context(), cluster)).To(Succeed())
	_, left := r.reconcile(t)
	g.Expect(left).To(Equal(owner))
}

// The cache may show an operation as it was before the claim: what it wrote since is asked for once more.
func TestACacheThatIsBehind(t *testing.T) {
	g := NewWithT(t)
	r := world(t, ready(), working(parked, noLock))
	live := world(t, ready(), working(parked))
	r.Machines.Live = live.Client
	_, left := r.reconcile(t)
	g.Expect(left).To(Equal(owner))
}

func TestWithoutCluster(t *testing.T) {
	g := NewWithT(t)
	r := world(t, ready())
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "gone"}})
	g.Expect(err).NotTo(HaveOccurred())
}
