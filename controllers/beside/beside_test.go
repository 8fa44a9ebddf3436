// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/node"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/providers/capi"
)

const (
	hook    = "pre-drain.delete.hook.machine.cluster.x-k8s.io/ichor"
	theirs  = "pre-drain.delete.hook.machine.cluster.x-k8s.io/theirs"
	upgrade = "before-upgrade.hook.cluster.cluster.x-k8s.io/ichor"
	block   = "clusterctl.cluster.x-k8s.io/block-move"
	owner   = "ichor-controller/op/default/o1"

	// theirFinalizer is Cluster API's on Machines: they are there until it has deleted them.
	theirFinalizer = "machine.cluster.x-k8s.io"
)

var (
	c1  = client.ObjectKey{Namespace: "default", Name: "c1"}
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// world is what there is of cluster c1: control planes m1 and m2, a worker m3, and their TalosMachines c1-m1 and so on.
type world struct {
	client.WithWatch

	g        *WithT
	recorder *events.FakeRecorder

	// writes are left before every write fails; negative means any number. Conditions are noted, since the fake API cannot merge them.
	writes  int
	applied []string

	// trouble is what writes of objects of a name fail with; conditionTrouble is what the condition does.
	trouble          map[string]error
	conditionTrouble error

	// filter is which clusters the hub watches; empty is all.
	filter string
}

var errKilled = errors.New("killed")

func newWorld(t *testing.T, changes ...func(*clusterv1.Cluster, *v1alpha1.TalosCluster)) *world {
	t.Helper()
	w := &world{g: NewWithT(t), writes: -1, recorder: events.NewFakeRecorder(64)}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1", UID: "cluster"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c1"}
	talos := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	for _, change := range changes {
		change(cluster, talos)
	}
	objects := []client.Object{cluster}
	if talos.Name != "" {
		objects = append(objects, talos)
	}
	for _, name := range []string{"m1", "m2", "m3"} {
		machine := &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{theirFinalizer},
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}, Annotations: map[string]string{theirs: ""},
			},
			Spec: clusterv1.MachineSpec{ClusterName: "c1"},
		}
		if name != "m3" {
			machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		}
		objects = append(objects, machine, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "c1-" + name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: machine.UID}},
		}})
	}
	w.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return w.write(func() error { return c.Create(ctx, object, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return w.write(func() error { return c.Update(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := w.trouble[object.GetName()]; err != nil {
				return err
			}
			return w.write(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourceApply: func(_ context.Context, _ client.Client, _ string, object runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
			if w.conditionTrouble != nil {
				return w.conditionTrouble
			}
			return w.write(func() error {
				w.applied = append(w.applied, conditionIn(object))
				return nil
			})
		},
	})
	return w
}

// conditionIn is what condition is applied; empty if none is.
func conditionIn(object runtime.ApplyConfiguration) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err.Error()
	}
	status, _ := content["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	text := ""
	for _, each := range conditions {
		condition, _ := each.(map[string]any)
		text += condition["type"].(string) + "=" + condition["status"].(string) + " " + condition["reason"].(string) //nolint:forcetypeassert // Conditions have them.
	}
	return text
}

func (w *world) write(write func() error) error {
	if w.writes == 0 {
		return errKilled
	}
	w.writes--
	return write()
}

// hub is a new process.
func (w *world) hub(epoch string) *Reconciler {
	locks := &lock.Locks{Client: w, Reader: w, Epoch: epoch, Clock: clocktesting.NewFakePassiveClock(now)}
	operations := operation.New(context.Background(), operation.Options{
		Client: w, APIReader: w, Executors: map[v1alpha1.OperationKind]kind.Executor{v1alpha1.NodeKind: node.New(nil, nil)},
	})
	return New(Options{
		Client: w, Live: w, Locks: locks, Operations: operations, Recorder: w.recorder, Watched: &capi.Filter{Reader: w, Value: w.filter},
	})
}

// reconcile goes on until a reconcile writes nothing more, as events would have it.
func (w *world) reconcile(r *Reconciler) error {
	for {
		before := w.writes
		if _, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: c1}); err != nil {
			return err
		}
		if len(w.applied) > 0 || w.writes == before {
			w.applied = w.applied[:min(len(w.applied), 1)]
			return nil
		}
	}
}

func (w *world) machine(name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{}
	w.g.Expect(w.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, machine)).To(Succeed())
	return machine
}

// held are the Machines whose deletion waits for the hub.
func (w *world) held() []string {
	list := &clusterv1.MachineList{}
	w.g.Expect(w.List(context.Background(), list)).To(Succeed())
	var names []string
	for _, machine := range list.Items {
		w.g.Expect(machine.Annotations).To(HaveKey(theirs), "hooks of others stay")
		if _, is := machine.Annotations[hook]; is {
			names = append(names, machine.Name)
		}
	}
	return names
}

func (w *world) holder() string {
	lease := &coordinationv1.Lease{}
	err := w.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "c1-ichor-lock"}, lease)
	w.g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// operationHolds makes an operation hold the lock.
func (w *world) operationHolds(changes ...func(*v1alpha1.TalosOperation)) *v1alpha1.TalosOperation {
	ctx := context.Background()
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "o1"}, Spec: v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: v1alpha1.NodeKind}}
	for _, change := range changes {
		change(op)
	}
	w.g.Expect(w.Create(ctx, op)).To(Succeed())
	locks := &lock.Locks{Client: w, Reader: w, Epoch: "e0", Clock: clocktesting.NewFakePassiveClock(now)}
	_, err := locks.Acquire(ctx, c1, metav1.OwnerReference{APIVersion: "v1", Kind: "Cluster", Name: "c1", UID: "cluster"}, lock.Operation(op), nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	return op
}

func (w *world) operationLetsGo() {
	locks := &lock.Locks{Client: w, Reader: w, Clock: clocktesting.NewFakePassiveClock(now)}
	w.g.Expect(locks.Release(context.Background(), c1, lock.Holder{Identity: owner}, 0)).To(Succeed())
}

// deleteMachine asks Cluster API to delete a Machine.
func (w *world) deleteMachine(name string) {
	w.g.Expect(w.Delete(context.Background(), w.machine(name))).To(Succeed())
}

// deleted ends what Cluster API does with a Machine: it is gone, and its TalosMachine with it.
func (w *world) deleted(name string) {
	machine := w.machine(name)
	machine.Finalizers = nil
	w.g.Expect(w.WithWatch.Update(context.Background(), machine)).To(Succeed())
	w.g.Expect(w.Delete(context.Background(), &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-" + name}})).To(Succeed())
}

func TestControlPlanesAreHeld(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*clusterv1.Cluster, *v1alpha1.TalosCluster)
		want   []string
	}{
		"of an adopted cluster":            {func(*clusterv1.Cluster, *v1alpha1.TalosCluster) {}, []string{"m1", "m2"}},
		"not of a paused one":              {func(c *clusterv1.Cluster, _ *v1alpha1.TalosCluster) { c.Spec.Paused = ptr.To(true) }, nil},
		"not of an imported one":           {func(c *clusterv1.Cluster, _ *v1alpha1.TalosCluster) { c.Spec = clusterv1.ClusterSpec{} }, nil},
		"not of one that is not the hub's": {func(_ *clusterv1.Cluster, talos *v1alpha1.TalosCluster) { talos.Name = "" }, nil},
		"not of one that is kept from the hub": {func(c *clusterv1.Cluster, _ *v1alpha1.TalosCluster) {
			c.Annotations = map[string]string{"ichor.maesh.dev/opt-out": ""}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.change)
			w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
			w.g.Expect(w.held()).To(Equal(row.want))
		})
	}
}

func TestTheConditionFollowsTheTalosCluster(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*clusterv1.Cluster, *v1alpha1.TalosCluster)
		want   []string
	}{
		"that has said nothing": {func(*clusterv1.Cluster, *v1alpha1.TalosCluster) {}, []string{"ichor.maesh.dev/TalosAvailable=Unknown NotYetObserved"}},
		"that is available": {func(_ *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
			talos.Status.Conditions = []metav1.Condition{{Type: "Available", Status: "True", Reason: "Available"}}
		}, []string{"ichor.maesh.dev/TalosAvailable=True Available"}},
		"that says what is written": {func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
			talos.Status.Conditions = []metav1.Condition{{Type: "Available", Status: "True", Reason: "Available"}}
			c.Status.Conditions = []metav1.Condition{{Type: "ichor.maesh.dev/TalosAvailable", Status: "True", Reason: "Available"}}
		}, nil},
		"that is not there": {func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
			talos.Name = ""
			c.Status.Conditions = []metav1.Condition{{Type: "ichor.maesh.dev/TalosAvailable", Status: "True", Reason: "Available"}}
		}, []string{""}},
		"that is not there, and never was": {func(_ *clusterv1.Cluster, talos *v1alpha1.TalosCluster) { talos.Name = "" }, nil},
		"of a paused cluster": {func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
			c.Spec.Paused = ptr.To(true)
			talos.Status.Conditions = []metav1.Condition{{Type: "Available", Status: "True", Reason: "Available"}}
		}, []string{"ichor.maesh.dev/TalosAvailable=Unknown Paused"}},
		"of a paused cluster that is not the hub's": {func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
			c.Spec.Paused, talos.Name = ptr.To(true), ""
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.change)
			_, err := w.hub("e1").Reconcile(t.Context(), ctrl.Request{NamespacedName: c1})
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(w.applied).To(Equal(row.want))
		})
	}
}

func TestHooksGoWithTheHub(t *testing.T) {
	w := newWorld(t)
	w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
	w.g.Expect(w.held()).To(HaveLen(2))
	w.g.Expect(w.Delete(t.Context(), &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}})).To(Succeed())
	w.g.Expect(w.reconcile(w.hub("e2"))).To(Succeed())
	w.g.Expect(w.held()).To(BeEmpty())
}

// A deletion goes on at once where nothing else works on the cluster, and one goes at a time.
func TestDeletionsGoOneByOne(t *testing.T) {
	w := newWorld(t)
	hub := w.hub("e1")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.deleteMachine("m2")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.holder()).To(Equal("ichor-controller/machine/default/c1-m2"))
	w.g.Expect(w.held()).To(Equal([]string{"m1"}))

	w.deleteMachine("m1")
	w.deleteMachine("m3")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.held()).To(Equal([]string{"m1"}), "it waits for the other")
	w.deleted("m2")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.held()).To(BeEmpty())
	w.g.Expect(w.holder()).To(Equal("ichor-controller/machine/default/c1-m1"))
	w.deleted("m1")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.holder()).To(BeEmpty())
}

func TestADeletionWaitsForAnOperation(t *testing.T) {
	w := newWorld(t)
	hub := w.hub("e1")
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.operationHolds()
	w.deleteMachine("m1")
	for range 2 {
		w.g.Expect(w.reconcile(hub)).To(Succeed())
	}
	w.g.Expect(w.held()).To(Equal([]string{"m1", "m2"}))
	w.g.Expect(w.recorder.Events).To(HaveLen(1), "once")
	w.g.Expect(<-w.recorder.Events).To(ContainSubstring(`the deletion waits for TalosOperation "default/o1", which holds the lock of cluster c1`))

	w.operationLetsGo()
	w.g.Expect(w.reconcile(hub)).To(Succeed())
	w.g.Expect(w.held()).To(Equal([]string{"m2"}))
}

func TestADeletionTakesOverFromWhoNeedsTheLockNoMore(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.TalosOperation){
		"one that is over": func(op *v1alpha1.TalosOperation) { op.Status.CompletionTime = metav1.NewTime(now) },
		"one that failed":  func(op *v1alpha1.TalosOperation) { op.Status.FailureReason = "x" },
		"one that failed half-way with that very machine": halfWay("c1-m1"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
			w.operationHolds(change)
			w.deleteMachine("m1")
			w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
			w.g.Expect(w.held()).To(Equal([]string{"m2"}))
		})
	}
}

// The lock of a machine that joins or leaves by other ways is not this package's to give back.
func TestTheLockOfAnotherMachineStays(t *testing.T) {
	w := newWorld(t)
	locks := &lock.Locks{Client: w, Reader: w, Epoch: "e0", Clock: clocktesting.NewFakePassiveClock(now)}
	_, err := locks.Acquire(t.Context(), c1, metav1.OwnerReference{APIVersion: "v1", Kind: "Cluster", Name: "c1", UID: "cluster"}, lock.Machine(client.ObjectKey{Namespace: "default", Name: "c1-m3"}), nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.deleteMachine("m1")
	w.g.Expect(w.reconcile(w.hub("e1"))).To(Succeed())
	w.g.Expect(w.holder()).To(Equal("ichor-controller/machine/default/c1-m3"))
}

// Killed before any of its writes, the next hub brings it to the same end: one control plane goes, its lock goes with it, no other hook is
// lost.
func TestKilledAnywhereInADeletion(t *testing.T) {
	for kill := 0; ; kill++ {
		w := newWorld(t)
		w.g.Expect(w.reconcile(w.hub("e0"))).To(Succeed())
		w.deleteMachine("m1")
		w.writes = kill
		err := w.reconcile(w.hub("e1"))
		w.writes = -1
		if err == nil {
			w.g.Expect(kill).To(BeNumerically(">=", 2), "the lock, then the hook")
			return
		}
		w.g.Expect(err).To(MatchError(errKilled))
		if kill < 2 {
			w.g.Expect(w.held()).To(ContainElement("m1"), "without the lock nothing goes")
		}
		w.g.Expect(w.reconcile(w.hub("e2"))).To(Succeed())
		w.g.Expect(w.holder()).To(Equal("ichor-controller/machine/default/c1-m1"))
		w.g.Expect(w.held()).To(Equal([]string{"m2"}))
		w.deleted("m1")
		w.writes = 0 // Not even the release.
		w.g.Expect(w.reconcile(w.hub("e2"))).To(MatchError(errKilled))
		w.writes = -1
		w.g.Expect(w.reconcile(w.hub("e3"))).To(Succeed())
		w.g.Expect(w.holder()).To(BeEmpty())
	}
}

// What an operation put there that is gone, with its hub, is taken back, and what one put there that works is not.
func TestLeftovers(t *testing.T) {
	left := func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
		c.Annotations = map[string]string{upgrade: owner, "before-upgrade.hook.cluster.cluster.x-k8s.io/theirs": ""}
		talos.Annotations = map[string]string{block: "talosoperation/o1"}
	}
	const theirHook = "before-upgrade.hook.cluster.cluster.x-k8s.io/theirs"
	waits := func(change func(*v1alpha1.TalosOperation)) func(*world) {
		return func(w *world) {
			w.operationHolds(change)
			w.operationLetsGo()
		}
	}
	for name, row := range map[string]struct {
		change func(*clusterv1.Cluster, *v1alpha1.TalosCluster)
		works  bool
		want   []string
		waits  func(*world) // An operation that does not hold the lock.
	}{
		"of one that waits to begin": {left, false, []string{block, theirHook}, waits(func(*v1alpha1.TalosOperation) {})},
		"of one that waits to begin, while somebody waits to move the cluster": {func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
			left(c, talos)
			c.Spec.Paused = ptr.To(true)
		}, false, []string{theirHook}, waits(func(*v1alpha1.TalosOperation) {})},
		"of one that has failed": {left, false, []string{theirHook}, waits(func(op *v1alpha1.TalosOperation) { op.Status.FailureReason = "x" })},
		"of one that works":      {left, true, []string{block, "before-upgrade.hook.cluster.cluster.x-k8s.io/theirs", upgrade}, nil},
		"of one that is gone":    {left, false, []string{"before-upgrade.hook.cluster.cluster.x-k8s.io/theirs"}, nil},
		"of one that is gone, while somebody waits to move the cluster": {func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
			left(c, talos)
			c.Spec.Paused = ptr.To(true)
		}, false, []string{"before-upgrade.hook.cluster.cluster.x-k8s.io/theirs"}, nil},
		"of others": {func(c *clusterv1.Cluster, talos *v1alpha1.TalosCluster) {
			c.Annotations, talos.Annotations = map[string]string{upgrade: "mine"}, map[string]string{block: "mine"}
		}, false, []string{block, upgrade}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for kill := range 3 {
				w := newWorld(t, row.change)
				if row.works {
					w.operationHolds()
				}
				if row.waits != nil {
					row.waits(w)
				}
				w.writes = kill
				_ = w.reconcile(w.hub("e1"))
				w.writes = -1
				w.g.Expect(w.reconcile(w.hub("e2"))).To(Succeed())
				cluster, talos := &clusterv1.Cluster{}, &v1alpha1.TalosCluster{}
				w.g.Expect(w.Get(t.Context(), c1, cluster)).To(Succeed())
				w.g.Expect(w.Get(t.Context(), c1, talos)).To(Succeed())
				w.g.Expect(append(slices.Collect(maps.Keys(talos.Annotations)), slices.Collect(maps.Keys(cluster.Annotations))...)).To(ConsistOf(row.want))
			}
		})
	}
}
