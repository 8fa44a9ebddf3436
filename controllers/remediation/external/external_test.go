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
	member := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m1", UID: "m"}, Spec: clusterv1.MachineSpec{ClusterName: "c1"}}
	remediation := &v1alpha1.TalosRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "m1", Labels: labels, CreationTimestamp: metav1.NewTime(begun),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m1", UID: "m"}},
	}}
	talos := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
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
		}, "False RebootFailed", 1},
		"where somebody deleted the operation": {func(w *world) {
			op := w.operations()[0]
			w.g.Expect(w.Delete(context.Background(), &op)).To(Succeed())
		}, "False RebootFailed", 0},
		"where the operation waits for too long": {func(w *world) { w.clock.SetTime(begun.Add(21 * time.Minute)) }, "False TimedOut", 0},
		"where the reboot takes too long": {func(w *world) {
			w.change(func(op *v1alpha1.TalosOperation) { op.Status.StartTime = metav1.NewTime(begun) })
			w.clock.SetTime(begun.Add(21 * time.Minute))
		}, "False TimedOut", 1},
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
			w.g.Expect(w.operations()).To(HaveLen(row.ops), "one that has not begun goes")
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
		}, "Unknown Paused", false},
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
