// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/node"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// looked is what the target looks like.
type looked gate.View

// View implements Viewer.
func (l looked) View(context.Context, target.Target, []*v1alpha1.TalosMachine) gate.View {
	return gate.View(l)
}

// newStanding is an operation that holds the lock and has stood at gate EtcdHealthy for so long, while Cluster API is asked to delete a
// control plane of its cluster.
func newStanding(t *testing.T, stood time.Duration, view gate.View, units ...v1alpha1.UnitStatus) *guarding {
	t.Helper()
	gomega := NewWithT(t)
	g := newGuarding(t, nil, units...)
	client := g.Client
	executor := node.New(nil, nil)
	g.Reconciler = New(t.Context(), Options{
		Client: client, APIReader: client, Clock: clock.RealClock{}, Viewer: looked(view),
		Executors: map[v1alpha1.OperationKind]kind.Executor{v1alpha1.NodeKind: executor},
		Locks:     &lock.Locks{Client: client, Reader: client, Epoch: "e1", Clock: clock.RealClock{}},
		Looks:     observe.Options{Interval: 10 * time.Millisecond, Timeout: time.Minute, AtOnce: 1},
	})
	g.scope.op.Spec.Kind = v1alpha1.NodeKind
	gomega.Expect(client.Update(t.Context(), g.scope.op)).To(Succeed())
	g.scope.op.Status.Machines, g.scope.executor, g.scope.wanted = units, executor, map[string]bool{}
	g.scope.op.Status.Conditions = []metav1.Condition{
		{Type: "LockHeld", Status: "True", Reason: "Held"},
		{Type: "Progressing", Status: "False", Reason: "EtcdHealthy", LastTransitionTime: metav1.NewTime(time.Now().Add(-stood))},
	}
	machine := &clusterv1.Machine{}
	gomega.Expect(client.Get(t.Context(), key("m1"), machine)).To(Succeed())
	machine.Labels[clusterv1.MachineControlPlaneLabel], machine.UID = "", "uid-m1"
	machine.Finalizers = []string{"machine.cluster.x-k8s.io"}
	gomega.Expect(client.Update(t.Context(), machine)).To(Succeed())
	gomega.Expect(client.Delete(t.Context(), machine)).To(Succeed())
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Cluster", Name: "c1", UID: "1"}
	_, err := g.Locks.Acquire(t.Context(), g.scope.clusterKey(), owner, lock.Operation(g.scope.op), nil)
	gomega.Expect(err).NotTo(HaveOccurred())
	memory := g.remember(g.scope.key)
	memory.entered, memory.trusted = true, true
	return g
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "default", Name: name} }

func (g *guarding) holds(t *testing.T) bool {
	t.Helper()
	holder, err := g.Locks.Holder(t.Context(), g.scope.clusterKey())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return holder == lock.Operation(g.scope.op)
}

// begun is a unit that has begun with a stage.
func begun(stage string, step v1alpha1.OperationStep) v1alpha1.UnitStatus {
	return v1alpha1.UnitStatus{
		Name: "c1-w-1", NodeName: "w-1", Phase: v1alpha1.UnitInProgress, Stage: stage, Step: step, Steps: []v1alpha1.StepRecord{{Step: step, Stage: stage}},
	}
}

// What an operation waits for may be the very deletion that waits for its lock.
func TestAnOperationAtAGateStandsAside(t *testing.T) {
	done := begun("reboot", "")
	done.CompletedStage = "reboot"
	for name, row := range map[string]struct {
		stood  time.Duration
		change func(*scope)
		units  []v1alpha1.UnitStatus
		gives  bool
		again  time.Duration // At most.
	}{
		"after a while":                         {stood: 11 * time.Second, gives: true, again: quietWait},
		"between two machines":                  {stood: 11 * time.Second, units: []v1alpha1.UnitStatus{done}, gives: true, again: quietWait},
		"not at once":                           {stood: time.Second, again: quietWait},
		"not with a machine in hand":            {stood: time.Hour, units: []v1alpha1.UnitStatus{begun("reboot", v1alpha1.DrainingStep)}},
		"not while it moves":                    {stood: time.Hour, change: func(s *scope) { s.op.Status.Conditions[1].Status = "True" }},
		"not in a cluster that is the hub's":    {stood: time.Hour, change: func(s *scope) { s.CAPICluster.Spec = clusterv1.ClusterSpec{} }},
		"not within a window":                   {stood: time.Hour, units: []v1alpha1.UnitStatus{done}, change: unsafeReboot},
		"before a window that has not begun":    {stood: time.Hour, change: unsafeReboot, gives: true, again: quietWait},
		"not where nobody deletes what it has":  {stood: time.Hour, change: func(s *scope) { s.op.Spec.ClusterName = "c2" }, again: quietWait},
		"and comes back to see, where it waits": {stood: 4 * time.Second, again: 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			gomega := NewWithT(t)
			g := newStanding(t, row.stood, gate.View{}, row.units...)
			if row.change != nil {
				row.change(g.scope)
			}
			gives, err := g.standAside(t.Context(), g.scope)
			gomega.Expect(err).NotTo(HaveOccurred())
			gomega.Expect(gives).To(Equal(row.gives))
			gomega.Expect(g.scope.requeue).To(BeNumerically("<=", row.again))
			gomega.Expect(g.scope.requeue > 0).To(Equal(row.again > 0))
			if row.gives {
				gomega.Expect(g.holds(t)).To(BeFalse())
				gomega.Expect(g.scope.why.message).To(ContainSubstring(`Machine "m1", a control plane, is being deleted and goes first`))
				return
			}
			g.scope.op.Spec.ClusterName = "c1"
			gomega.Expect(g.holds(t)).To(BeTrue())
		})
	}
}

func unsafeReboot(s *scope) {
	s.stages[1].Unsafe = true
	s.op.Status.Stage = "reboot"
}

// Who is paused by a person keeps the lock, but not from a deletion.
func TestAPausedOperationStandsAside(t *testing.T) {
	for name, row := range map[string]struct {
		units []v1alpha1.UnitStatus
		keeps bool
	}{
		"with nothing in hand":                {nil, false},
		"with a machine that failed half-way": {[]v1alpha1.UnitStatus{failedLate(begun("reboot", v1alpha1.VerifyingStep))}, true},
	} {
		t.Run(name, func(t *testing.T) {
			gomega := NewWithT(t)
			g := newStanding(t, time.Hour, gate.View{}, row.units...)
			g.scope.op.Spec.Paused = ptr.To(true)
			stop, err := g.halt(t.Context(), g.scope)
			gomega.Expect(err).NotTo(HaveOccurred())
			gomega.Expect(stop).To(BeTrue())
			gomega.Expect(g.holds(t)).To(Equal(row.keeps))
			gomega.Expect(g.scope.why.reason).To(Equal(v1alpha1.OperatorPausedReason), "whatever happens to the lock")
		})
	}
}

// failedLate makes a unit one of which nobody knows how far it has come.
func failedLate(unit v1alpha1.UnitStatus) v1alpha1.UnitStatus {
	unit.FailureTime = metav1.Now()
	unit.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorTimeout}
	return unit
}

// The deletion of the machine that an operation has failed with takes its lock over, and nobody else does.
func TestWhoTakesOverFromAnOperationThatFailedHalfWay(t *testing.T) {
	inHand := begun("reboot", v1alpha1.RebootingStep)
	inHand.Name = "c1-w-2"
	half := failedLate(begun("reboot", v1alpha1.VerifyingStep))
	for name, row := range map[string]struct {
		machine string // Empty is another operation.
		units   []v1alpha1.UnitStatus
		free    bool
	}{
		"the machine itself":                           {"c1-w-1", []v1alpha1.UnitStatus{half}, true},
		"the machine itself, while another is in hand": {"c1-w-1", []v1alpha1.UnitStatus{inHand, half}, false},
		"another machine":                              {"c1-w-2", []v1alpha1.UnitStatus{half}, false},
		"another operation":                            {"", []v1alpha1.UnitStatus{half}, false},
	} {
		t.Run(name, func(t *testing.T) {
			gomega := NewWithT(t)
			g := newStanding(t, time.Hour, gate.View{}, row.units...)
			g.scope.op.Status.FailureReason = "x"
			gomega.Expect(g.Client.Status().Update(t.Context(), g.scope.op)).To(Succeed())
			asks := g.MayTakeOver
			if row.machine != "" {
				asks = g.MayTakeOverToDelete(key(row.machine))
			}
			free, err := asks(t.Context(), lock.Operation(g.scope.op))
			gomega.Expect(err).NotTo(HaveOccurred())
			gomega.Expect(free).To(Equal(row.free))
		})
	}
}

// A machine that Cluster API has deleted is in the middle of nothing. One whose TalosMachine somebody deleted may be.
func TestMachinesThatAreCertainlyGone(t *testing.T) {
	there := gate.View{Nodes: map[string]kube.Node{"w-1": {}}}
	for name, row := range map[string]struct {
		unit   v1alpha1.UnitStatus
		view   gate.View
		change func(*guarding)
		buried bool
	}{
		"one that is gone":                   {unit: failedLate(begun("reboot", v1alpha1.VerifyingStep)), buried: true},
		"one that has not failed":            {unit: begun("reboot", v1alpha1.VerifyingStep)},
		"one whose Node is nobody's to know": {unit: failedLate(v1alpha1.UnitStatus{Name: "c1-w-1", Phase: v1alpha1.UnitInProgress, Stage: "reboot", Step: v1alpha1.VerifyingStep})},
		"one whose Node is there":            {unit: failedLate(begun("reboot", v1alpha1.VerifyingStep)), view: there},
		"one whose Node cannot be seen":      {unit: failedLate(begun("reboot", v1alpha1.VerifyingStep)), view: gate.View{NodesTrouble: "silent"}},
		"one of a cluster that is the hub's": {unit: failedLate(begun("reboot", v1alpha1.VerifyingStep)), change: func(g *guarding) { g.scope.CAPICluster.Spec = clusterv1.ClusterSpec{} }},
		"one whose TalosMachine is there":    {unit: failedLate(begun("reboot", v1alpha1.VerifyingStep)), change: func(g *guarding) { g.scope.Machines = g.known }},
		"one whose Machine is still going":   {unit: failedLate(begun("reboot", v1alpha1.VerifyingStep)), change: func(g *guarding) { g.nodeOf(t, "w-1") }},
		"one whose TalosMachine is back again": {unit: failedLate(begun("reboot", v1alpha1.VerifyingStep)), change: func(g *guarding) {
			NewWithT(t).Expect(g.Client.Create(t.Context(), g.known[0].DeepCopy())).To(Succeed())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			gomega := NewWithT(t)
			g := newStanding(t, time.Hour, row.view, row.unit)
			g.known, g.scope.Machines = g.scope.Machines, nil
			g.scope.op.Status.FailureReason = "x"
			if row.change != nil {
				row.change(g)
			}
			gomega.Eventually(func() bool { _, fresh := g.view(g.scope); return fresh }).Should(BeTrue())
			gomega.Expect(g.bury(t.Context(), g.scope)).To(Succeed())
			unit := g.scope.op.Status.Machines[0]
			gomega.Expect(unit.Step == "").To(Equal(row.buried))
			gomega.Expect(isFailed(unit)).To(Equal(isFailed(row.unit)))
			gomega.Expect(g.unsafe(g.scope.op) == "").To(Equal(row.buried))
			if row.buried { // Who is asked to delete the operation puts it away.
				g.scope.givingUp = true
				gomega.Expect(g.settle(g.scope)).To(BeTrue())
			}
		})
	}
}

// nodeOf makes the Machine that of a Node.
func (g *guarding) nodeOf(t *testing.T, name string) {
	t.Helper()
	machine := &clusterv1.Machine{}
	NewWithT(t).Expect(g.Client.Get(t.Context(), key("m1"), machine)).To(Succeed())
	machine.Status.NodeRef.Name = name
	NewWithT(t).Expect(g.Client.Update(t.Context(), machine)).To(Succeed())
}

// A provider may take a member out of etcd before it deletes the Machine: then whatever goes on with others has to let the rest be done.
func TestAControlPlaneThatIsHalfDeleted(t *testing.T) {
	of := func(ids ...uint64) gate.EtcdView {
		view := gate.EtcdView{}
		for _, id := range ids {
			view.Members = append(view.Members, talos.EtcdMember{ID: id})
		}
		return view
	}
	for name, row := range map[string]struct {
		etcd   map[string]gate.EtcdView
		change func(*scope)
		stands bool
	}{
		"whose member is gone":                    {etcd: map[string]gate.EtcdView{"a": of(1, 2), "b": of(1, 2)}, stands: true},
		"whose member is there":                   {etcd: map[string]gate.EtcdView{"a": of(1, 2, 0xab)}},
		"whose member is there, as one tells":     {etcd: map[string]gate.EtcdView{"a": of(1, 2), "b": of(1, 2, 0xab)}},
		"whose member nobody tells of":            {etcd: map[string]gate.EtcdView{"a": {Trouble: "silent"}}},
		"whose member was never known":            {etcd: map[string]gate.EtcdView{"a": of(1, 2)}, change: func(s *scope) { s.Machines[0].Status.EtcdMemberID = "" }},
		"that nobody deletes":                     {etcd: map[string]gate.EtcdView{"a": of(1, 2)}, change: func(s *scope) { s.Machines[0].OwnerReferences[0].UID = "another" }},
		"while the lock is not this operation's":  {etcd: map[string]gate.EtcdView{"a": of(1, 2)}, change: func(s *scope) { s.op.Status.Conditions[0].Status = "False" }},
		"within a window that nobody may leave":   {etcd: map[string]gate.EtcdView{"a": of(1, 2)}, change: func(s *scope) { unsafeReboot(s); s.op.Status.Machines = []v1alpha1.UnitStatus{begun("reboot", "")} }},
		"in a cluster that is the hub's to keep":  {etcd: map[string]gate.EtcdView{"a": of(1, 2)}, change: func(s *scope) { s.CAPICluster.Spec = clusterv1.ClusterSpec{} }},
		"for work on workers alone, in any stage": {etcd: map[string]gate.EtcdView{"a": of(1, 2)}, change: func(s *scope) { s.op.Status.Stage = "pull" }, stands: true},
	} {
		t.Run(name, func(t *testing.T) {
			gomega := NewWithT(t)
			g := newStanding(t, time.Hour, gate.View{Etcd: row.etcd})
			machine := &clusterv1.Machine{}
			gomega.Expect(g.Client.Get(t.Context(), key("m1"), machine)).To(Succeed())
			g.scope.Machines[0].Status.EtcdMemberID = "ab"
			g.scope.Machines[0].OwnerReferences = []metav1.OwnerReference{{Kind: "Machine", Name: "m1", UID: machine.UID}}
			if row.change != nil {
				row.change(g.scope)
			}
			gomega.Eventually(func() bool { _, fresh := g.view(g.scope); return fresh }).Should(BeTrue())
			why, err := g.transitioning(t.Context(), g.scope)
			gomega.Expect(err).NotTo(HaveOccurred())
			gomega.Expect(why != nil).To(Equal(row.stands))
			if row.stands {
				gomega.Expect(why.reason).To(Equal(v1alpha1.ControlPlaneTransitioningReason))
				gomega.Expect(why.message).To(ContainSubstring(`Machine "m1", a control plane, is being deleted, and its etcd member is gone already`))
			}
		})
	}
}
