// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
)

var (
	begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m1    = client.ObjectKey{Namespace: "default", Name: "m1"}

	errKilled = errors.New("killed")
)

// world is a machine that a health check wants to have helped.
type world struct {
	client.WithWatch

	g     *WithT
	clock *clocktesting.FakePassiveClock

	// writes are left before every write fails; negative means any number.
	writes int

	// mayNot says that the hub may not make operations.
	mayNot bool
}

func newWorld(t *testing.T, changes ...func(*clusterv1.Cluster, *v1alpha1.TalosMachine)) *world {
	t.Helper()
	w := &world{g: NewWithT(t), clock: clocktesting.NewFakePassiveClock(begun), writes: -1}
	labels := map[string]string{clusterv1.ClusterNameLabel: "c1"}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1", UID: "c"}}
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-w-1", Labels: labels},
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: "c1", Approval: v1alpha1.Approved},
		Status:     v1alpha1.TalosMachineStatus{MachineName: "m1"},
	}
	for _, change := range changes {
		change(cluster, machine)
	}
	member := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m1", UID: "m", Labels: labels}, Spec: clusterv1.MachineSpec{ClusterName: "c1"}}
	member.Status.Conditions = []metav1.Condition{{Type: "NodeReady", Status: "True", Reason: "x", LastTransitionTime: metav1.NewTime(begun)}}
	remediation := &v1alpha1.TalosRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "m1", Labels: labels, CreationTimestamp: metav1.NewTime(begun),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m1", UID: "m"}},
	}}
	talos := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "c1", Annotations: map[string]string{v1alpha1.MembersApprovedAtAnnotation: "2026-01-01T00:00:00Z"},
	}}
	built := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(cluster, machine, member, remediation, talos).
		WithStatusSubresource(remediation, member).Build()
	w.WithWatch = interceptor.NewClient(built, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if w.mayNot {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "talosoperations"}, object.GetName(), nil)
			}
			return w.write(func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return w.write(func() error { return c.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return w.write(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return w.write(func() error { return c.SubResource(sub).Patch(ctx, object, patch, options...) })
		},
	})
	return w
}

func (w *world) write(write func() error) error {
	if w.writes == 0 {
		return errKilled
	}
	w.writes--
	return write()
}

// reconcile reconciles as a new process, as often as its own writes wake it.
func (w *world) reconcile() (result ctrl.Result, err error) {
	for {
		before := w.writes
		r := &Reconciler{Client: w, Live: w, Clock: w.clock}
		result, err = r.Reconcile(context.Background(), ctrl.Request{NamespacedName: m1})
		if err != nil || w.writes == before {
			return result, err
		}
	}
}

func (w *world) settle() ctrl.Result {
	w.g.THelper()
	result, err := w.reconcile()
	w.g.Expect(err).NotTo(HaveOccurred())
	return result
}

func (w *world) remediation() *v1alpha1.TalosRemediation {
	remediation := &v1alpha1.TalosRemediation{}
	w.g.Expect(w.Get(context.Background(), m1, remediation)).To(Succeed())
	return remediation
}

func (w *world) says() string {
	found := meta.FindStatusCondition(w.remediation().Status.Conditions, "Remediated")
	if found == nil {
		return "nothing"
	}
	return string(found.Status) + " " + found.Reason
}

func (w *world) operations() []v1alpha1.TalosOperation {
	list := &v1alpha1.TalosOperationList{}
	w.g.Expect(w.List(context.Background(), list)).To(Succeed())
	return list.Items
}

// left says whether the Machine is left to its owner.
func (w *world) left() bool {
	machine := &clusterv1.Machine{}
	w.g.Expect(w.Get(context.Background(), m1, machine)).To(Succeed())
	return meta.IsStatusConditionFalse(machine.Status.Conditions, "OwnerRemediated")
}

func (w *world) change(change func(*v1alpha1.TalosOperation)) {
	op := w.operations()[0]
	change(&op)
	w.g.Expect(w.Update(context.Background(), &op)).To(Succeed())
}

func TestAMachineIsRebootedOnce(t *testing.T) {
	w := newWorld(t)
	result := w.settle()
	ops := w.operations()
	w.g.Expect(ops).To(HaveLen(1))
	w.g.Expect(ops[0].Spec.Kind).To(Equal(v1alpha1.NodeKind))
	w.g.Expect(*ops[0].Spec.Node).To(Equal(v1alpha1.NodeParameters{Machine: "c1-w-1", Action: v1alpha1.RebootAction}))
	w.g.Expect(ops[0].OwnerReferences).To(ConsistOf(HaveField("Kind", "Cluster")), "it stays when the remediation goes")
	w.g.Expect(w.says()).To(Equal("Unknown Rebooting"))
	w.g.Expect(w.remediation().Status.OperationName).To(Equal(ops[0].Name))
	w.g.Expect(result.RequeueAfter).To(Equal(20 * time.Minute))

	w.change(func(op *v1alpha1.TalosOperation) { op.Status.CompletionTime = metav1.NewTime(begun) })
	w.settle()
	w.g.Expect(w.says()).To(Equal("True Rebooted"))
	w.g.Expect(w.left()).To(BeFalse())
	w.g.Expect(w.operations()).To(HaveLen(1))
}

func TestAMachineIsLeftToItsOwner(t *testing.T) {
	for name, row := range map[string]struct {
		change func(w *world)
		want   string
		ops    int
	}{
		"where the reboot failed": {func(w *world) {
			w.change(func(op *v1alpha1.TalosOperation) { op.Status.FailureReason = "x" })
		}, "False RebootFailed", 0},
		"where it failed half-way": {func(w *world) {
			w.change(func(op *v1alpha1.TalosOperation) {
				op.Status.FailureReason, op.Status.StartTime = "x", metav1.NewTime(begun)
			})
		}, "False RebootFailed", 0},
		"where somebody deleted the operation": {func(w *world) {
			op := w.operations()[0]
			w.g.Expect(w.Delete(context.Background(), &op)).To(Succeed())
		}, "False RebootFailed", 0},
		"where the operation waits for too long": {func(w *world) { w.clock.SetTime(begun.Add(21 * time.Minute)) }, "False TimedOut", 0},
		"where the reboot takes too long": {func(w *world) {
			w.change(func(op *v1alpha1.TalosOperation) { op.Status.StartTime = metav1.NewTime(begun) })
			w.clock.SetTime(begun.Add(21 * time.Minute))
		}, "False TimedOut", 0},
		"where the reboot does not help": {func(w *world) {
			w.change(func(op *v1alpha1.TalosOperation) { op.Status.CompletionTime = metav1.NewTime(begun) })
			w.clock.SetTime(begun.Add(21 * time.Minute))
		}, "False TimedOut", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			row.change(w)
			w.settle()
			w.g.Expect(w.says()).To(Equal(row.want))
			w.g.Expect(w.left()).To(BeTrue())
			w.g.Expect(w.operations()).To(HaveLen(row.ops), "one that is not over goes, and settles where it has begun")
			w.clock.SetTime(begun)
			w.settle()
			w.g.Expect(w.says()).To(Equal(row.want), "it stays with that")
			w.g.Expect(w.operations()).To(HaveLen(row.ops))
		})
	}
}

func TestMachinesThatAreNotHelped(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*clusterv1.Cluster, *v1alpha1.TalosMachine)
		want   string
		left   bool
	}{
		"unknown":         {func(_ *clusterv1.Cluster, m *v1alpha1.TalosMachine) { m.Status.MachineName = "m2" }, "False NotManaged", true},
		"not approved":    {func(_ *clusterv1.Cluster, m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending }, "False NotManaged", true},
		"of a paused one": {func(c *clusterv1.Cluster, _ *v1alpha1.TalosMachine) { c.Spec.Paused = ptr.To(true) }, "Unknown Paused", false},
		"kept from us all": {func(c *clusterv1.Cluster, _ *v1alpha1.TalosMachine) {
			c.Annotations = map[string]string{"ichor.maesh.dev/opt-out": ""}
		}, "False NotManaged", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.change)
			w.settle()
			w.g.Expect(w.says()).To(Equal(row.want))
			w.g.Expect(w.left()).To(Equal(row.left))
			w.g.Expect(w.operations()).To(BeEmpty())
		})
	}
}

// What the hub does not know yet may be its own. Nothing waits for longer than the remediation has time.
func TestAMachineThatMayBecomeKnown(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"while initial discovery goes on": func(w *world) {
			talos := &v1alpha1.TalosCluster{}
			w.g.Expect(w.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "c1"}, talos)).To(Succeed())
			talos.Annotations = nil
			w.g.Expect(w.Update(context.Background(), talos)).To(Succeed())
		},
		"while its TalosCluster is on its way": func(w *world) {
			w.g.Expect(w.Delete(context.Background(), &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}})).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(_ *clusterv1.Cluster, m *v1alpha1.TalosMachine) { m.Status.MachineName = "" })
			change(w)
			result := w.settle()
			w.g.Expect(w.says()).To(Equal("Unknown NotManaged"))
			w.g.Expect(w.left()).To(BeFalse())
			w.g.Expect(result.RequeueAfter).To(Equal(20 * time.Minute))
			w.clock.SetTime(begun.Add(21 * time.Minute))
			w.settle()
			w.g.Expect(w.says()).To(Equal("False NotManaged"))
			w.g.Expect(w.left()).To(BeTrue())
		})
	}
}

// A move takes along whose a TalosMachine is, with the new UID, and leaves its status behind.
func TestAMachineThatWasMoved(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Cluster, *v1alpha1.TalosMachine){
		"is known by its owner": func(_ *clusterv1.Cluster, m *v1alpha1.TalosMachine) {
			m.Status = v1alpha1.TalosMachineStatus{}
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m1", UID: "m"}}
		},
		"is known by its address": func(_ *clusterv1.Cluster, m *v1alpha1.TalosMachine) {
			m.Status, m.Spec.Address = v1alpha1.TalosMachineStatus{}, "10.0.0.1"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			member := &clusterv1.Machine{}
			w.g.Expect(w.Get(t.Context(), m1, member)).To(Succeed())
			member.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"}}
			w.g.Expect(w.Status().Update(t.Context(), member)).To(Succeed())
			w.settle()
			w.g.Expect(w.says()).To(Equal("Unknown Rebooting"))
			w.g.Expect(w.operations()).To(HaveLen(1))
			w.g.Expect(w.operations()[0].Spec.Node.Machine).To(Equal("c1-w-1"))
			w.g.Expect(w.left()).To(BeFalse())
		})
	}
}

// A machine that is not well is not drained, and its own etcd member not waited for.
func TestASickMachineIsForced(t *testing.T) {
	for name, row := range map[string]struct {
		role   v1alpha1.MachineRole
		node   metav1.ConditionStatus
		etcd   metav1.ConditionStatus
		forced bool
	}{
		"a worker":                          {v1alpha1.WorkerRole, "True", "True", false},
		"a worker, while etcd is not well":  {v1alpha1.WorkerRole, "True", "False", false},
		"a worker that is silent":           {v1alpha1.WorkerRole, "Unknown", "True", true},
		"a worker that is not ready":        {v1alpha1.WorkerRole, "False", "True", true},
		"a control plane":                   {v1alpha1.ControlPlaneRole, "True", "True", false},
		"a control plane that is silent":    {v1alpha1.ControlPlaneRole, "Unknown", "True", true},
		"a control plane whose etcd is not": {v1alpha1.ControlPlaneRole, "True", "False", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(_ *clusterv1.Cluster, m *v1alpha1.TalosMachine) { m.Spec.Role = row.role })
			member, talos := &clusterv1.Machine{}, &v1alpha1.TalosCluster{}
			w.g.Expect(w.Get(t.Context(), m1, member)).To(Succeed())
			member.Status.Conditions[0].Status = row.node
			w.g.Expect(w.Status().Update(t.Context(), member)).To(Succeed())
			w.g.Expect(w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "c1"}, talos)).To(Succeed())
			talos.Status.Conditions = []metav1.Condition{{Type: "EtcdHealthy", Status: row.etcd, Reason: "x", LastTransitionTime: metav1.NewTime(begun)}}
			w.g.Expect(w.Update(t.Context(), talos)).To(Succeed())
			w.settle()
			want := map[bool]v1alpha1.RebootMode{true: v1alpha1.RebootModeForce}[row.forced]
			w.g.Expect(w.operations()).To(ConsistOf(HaveField("Spec.Node.RebootMode", want)))
		})
	}
}

// Killed before any of its writes, or moved in between, there is one operation in the end.
func TestKilledAnywhere(t *testing.T) {
	for kill := 0; ; kill++ {
		w := newWorld(t)
		w.writes = kill
		_, err := w.reconcile()
		w.writes = -1
		if err == nil {
			w.g.Expect(kill).To(BeNumerically(">=", 3), "identity, operation, status")
			return
		}
		w.g.Expect(err).To(MatchError(errKilled))
		moved := w.remediation()
		moved.Status = v1alpha1.TalosRemediationStatus{} // A move leaves it behind.
		w.g.Expect(w.Status().Update(t.Context(), moved)).To(Succeed())
		w.settle()
		w.g.Expect(w.operations()).To(HaveLen(1))
		w.g.Expect(w.says()).To(Equal("Unknown Rebooting"))
	}
}

// By itself the hub starts nothing.
func TestWithoutTheRightToReboot(t *testing.T) {
	w := newWorld(t)
	w.mayNot = true
	w.settle()
	w.g.Expect(w.says()).To(Equal("False Forbidden"))
	w.g.Expect(w.left()).To(BeTrue())
}

func TestNothingIsDoneForAMachineThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.g.Expect(w.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m1"}})).To(Succeed())
	w.settle()
	w.g.Expect(w.says()).To(Equal("nothing"))
	w.g.Expect(w.operations()).To(BeEmpty())
	w.g.Expect(w.Delete(t.Context(), w.remediation())).To(Succeed())
	w.settle()
	w.g.Expect(apierrors.IsNotFound(w.Get(t.Context(), m1, &v1alpha1.TalosRemediation{}))).To(BeTrue())
}
