// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/guard"
)

var (
	start   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cluster = client.ObjectKey{Namespace: "default", Name: "c1"}
	belongs = metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: "u1"}

	first  = Holder{Identity: "ichor-controller/op/default/first", OperationID: "id-1"}
	second = Holder{Identity: "ichor-controller/op/default/second", OperationID: "id-2"}
	helm   = Holder{Identity: "ichor-controller/cni-helm"}
	addOn  = Holder{Identity: "somebody-else"}
)

type world struct {
	*Locks

	clock *clocktesting.FakePassiveClock
	g     *WithT
	ctx   context.Context
}

func newWorld(t *testing.T, funcs ...interceptor.Funcs) *world {
	t.Helper()
	builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
	for _, f := range funcs {
		builder = builder.WithInterceptorFuncs(f)
	}
	c := builder.Build()
	clock := clocktesting.NewFakePassiveClock(start)
	return &world{
		Locks: &Locks{Client: c, Reader: c, Epoch: "epoch-1", Clock: clock}, clock: clock, g: NewWithT(t), ctx: t.Context(),
	}
}

func never(context.Context, Holder) (bool, error)  { return false, nil }
func always(context.Context, Holder) (bool, error) { return true, nil }

func (w *world) acquire(want Holder, mayTakeOver TakeOver) Holder {
	holder, err := w.Acquire(w.ctx, cluster, belongs, want, mayTakeOver)
	w.g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return holder
}

func (w *world) lease() *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	w.g.ExpectWithOffset(1, w.Client.Get(w.ctx, client.ObjectKey{Namespace: "default", Name: "c1-ichor-lock"}, lease)).To(Succeed())
	return lease
}

func TestAcquireCreatesTheLease(t *testing.T) {
	w := newWorld(t)
	w.g.Expect(w.acquire(first, never)).To(Equal(first))

	lease := w.lease()
	w.g.Expect(lease.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"), "the label lets waiters be woken, and the Lease be moved")
	w.g.Expect(lease.OwnerReferences).To(Equal([]metav1.OwnerReference{belongs}))
	w.g.Expect(lease.Annotations).To(Equal(map[string]string{"ichor.maesh.dev/lock-epoch": "epoch-1", "ichor.maesh.dev/operation-id": "id-1"}))
	w.g.Expect(lease.Spec.HolderIdentity).To(HaveValue(Equal("ichor-controller/op/default/first")))
	w.g.Expect(lease.Spec.AcquireTime.Time).To(BeTemporally("==", start))
	w.g.Expect(lease.Spec.RenewTime.Time).To(BeTemporally("==", start))
	w.g.Expect(lease.Spec.LeaseDurationSeconds).To(HaveValue(BeEquivalentTo(300)))
	w.g.Expect(lease.Spec.LeaseTransitions).To(HaveValue(BeEquivalentTo(1)))
}

// Case E4: one lock per cluster for all kinds of work. Case E1: who has it is told.
func TestCaseE1E4SecondIsTold(t *testing.T) {
	w := newWorld(t)
	w.acquire(first, never)
	before := w.lease()
	w.g.Expect(w.acquire(second, never)).To(Equal(first))
	w.g.Expect(w.acquire(helm, never)).To(Equal(first))
	w.g.Expect(w.lease()).To(Equal(before), "asking writes nothing")
}

func TestHolderEntersAgain(t *testing.T) {
	w := newWorld(t)
	w.acquire(first, never)
	before := w.lease()
	w.clock.SetTime(start.Add(time.Hour))
	w.g.Expect(w.acquire(first, never)).To(Equal(first))
	w.g.Expect(w.lease()).To(Equal(before), "the process that has it writes nothing")

	w.Epoch = "epoch-2"
	w.g.Expect(w.acquire(first, never)).To(Equal(first))
	after := w.lease()
	w.g.Expect(after.Annotations).To(HaveKeyWithValue("ichor.maesh.dev/lock-epoch", "epoch-2"))
	w.g.Expect(after.Spec.AcquireTime.Time).To(BeTemporally("==", start), "it is the same holder")
	w.g.Expect(after.Spec.LeaseTransitions).To(HaveValue(BeEquivalentTo(1)))
}

// Case E2: for operations and machines the holder object decides, never the time.
func TestCaseE2TakeOver(t *testing.T) {
	machine := Holder{Identity: "ichor-controller/machine/default/c1-w-1"}
	for name, row := range map[string]struct {
		holder      Holder
		mayTakeOver TakeOver
		after       time.Duration
		taken       bool
	}{
		"operation, at work for a day": {first, never, 24 * time.Hour, false},
		"operation, gone":              {first, always, 0, true},
		"machine, at work for a day":   {machine, never, 24 * time.Hour, false},
		"machine, gone":                {machine, always, 0, true},
		"helm, in time":                {helm, always, 5 * time.Minute, false},
		"helm, expired":                {helm, never, 5*time.Minute + time.Second, true},
		"anybody, in time":             {addOn, always, time.Minute, false},
		"anybody, expired":             {addOn, never, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.acquire(row.holder, never)
			w.clock.SetTime(start.Add(row.after))
			got := w.acquire(second, row.mayTakeOver)
			if !row.taken {
				w.g.Expect(got).To(Equal(row.holder))
				return
			}
			w.g.Expect(got).To(Equal(second))
			lease := w.lease()
			w.g.Expect(HolderOf(lease)).To(Equal(second))
			w.g.Expect(lease.Spec.LeaseTransitions).To(HaveValue(BeEquivalentTo(2)))
			w.g.Expect(lease.Spec.AcquireTime.Time).To(BeTemporally("==", start.Add(row.after)))
		})
	}
}

// An operation of the same name is another operation: the generated ID tells.
func TestSameNameIsNotTheSameOperation(t *testing.T) {
	w := newWorld(t)
	w.acquire(first, never)
	recreated := Holder{Identity: first.Identity, OperationID: "id-9"}
	w.g.Expect(w.acquire(recreated, never)).To(Equal(first))
	w.g.Expect(w.Release(w.ctx, cluster, recreated, 0)).To(Succeed())
	w.g.Expect(HolderOf(w.lease())).To(Equal(first), "it cannot give back what it does not have")
	w.g.Expect(w.Guard(cluster, recreated)(w.ctx)).To(MatchError(ContainSubstring("is held by")))
}

func TestLeaseOfSomebodyElseWithOwnDuration(t *testing.T) {
	w := newWorld(t)
	seconds, identity, renewed := int32(30), "somebody-else", metav1.NewMicroTime(start)
	w.g.Expect(w.Client.Create(w.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-ichor-lock"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	})).To(Succeed())
	w.clock.SetTime(start.Add(29 * time.Second))
	w.g.Expect(w.acquire(first, never)).To(Equal(addOn))
	w.clock.SetTime(start.Add(31 * time.Second))
	w.g.Expect(w.acquire(first, never)).To(Equal(first))
}

// Who waits is found by the label, so it is there again after every change of the Lease.
func TestTheLabelComesBack(t *testing.T) {
	for name, row := range map[string]struct {
		labels map[string]string
		next   func(*world)
		want   map[string]string
	}{
		"when another process enters": {nil, func(w *world) {
			w.Epoch = "epoch-2"
			w.acquire(first, never)
		}, map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}},
		"when it is taken over": {nil, func(w *world) { w.acquire(second, always) }, map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}},
		"when it says something else": {map[string]string{"cluster.x-k8s.io/cluster-name": "c2", "a": "b"}, func(w *world) {
			w.acquire(second, always)
		}, map[string]string{"cluster.x-k8s.io/cluster-name": "c1", "a": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.acquire(first, never)
			lease := w.lease()
			lease.Labels = row.labels
			w.g.Expect(w.Client.Update(w.ctx, lease)).To(Succeed())
			row.next(w)
			w.g.Expect(w.lease().Labels).To(Equal(row.want))
		})
	}
}

// The Lease belongs to the Cluster, beside what else it belongs to.
func TestOtherOwnersStay(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "Fleet", Name: "f", UID: "u9"}
	for name, row := range map[string]struct {
		before []metav1.OwnerReference
		next   func(*world)
		want   []metav1.OwnerReference
	}{
		"when it is taken over": {[]metav1.OwnerReference{other}, func(w *world) { w.acquire(second, always) }, []metav1.OwnerReference{other, belongs}},
		"when it has both":      {[]metav1.OwnerReference{belongs, other}, func(w *world) { w.acquire(second, always) }, []metav1.OwnerReference{belongs, other}},
		"when it has none":      {nil, func(w *world) { w.acquire(second, always) }, []metav1.OwnerReference{belongs}},
		"when another process enters": {[]metav1.OwnerReference{other}, func(w *world) {
			w.Epoch = "epoch-2"
			w.acquire(first, never)
		}, []metav1.OwnerReference{other, belongs}},
		"when it is given back": {[]metav1.OwnerReference{other}, func(w *world) {
			w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed())
		}, []metav1.OwnerReference{other}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.acquire(first, never)
			lease := w.lease()
			lease.OwnerReferences = row.before
			w.g.Expect(w.Client.Update(w.ctx, lease)).To(Succeed())
			row.next(w)
			w.g.Expect(w.lease().OwnerReferences).To(Equal(row.want))
		})
	}
}

func TestRelease(t *testing.T) {
	t.Run("lets the next one in", func(t *testing.T) {
		w := newWorld(t)
		w.acquire(first, never)
		w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed())
		lease := w.lease()
		w.g.Expect(HolderOf(lease)).To(BeZero())
		w.g.Expect(lease.Annotations).To(BeEmpty())
		w.g.Expect(lease.Spec.RenewTime).To(BeNil())
		w.g.Expect(w.acquire(second, never)).To(Equal(second))
	})
	t.Run("twice", func(t *testing.T) {
		w := newWorld(t)
		w.acquire(first, never)
		w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed())
		w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed())
	})
	t.Run("of another is left alone", func(t *testing.T) {
		w := newWorld(t)
		w.acquire(first, never)
		w.g.Expect(w.Release(w.ctx, cluster, second, 0)).To(Succeed())
		w.g.Expect(HolderOf(w.lease())).To(Equal(first))
	})
	t.Run("says who ran last, and how far", func(t *testing.T) {
		w := newWorld(t)
		w.g.Expect(w.GaveBackLast(w.ctx, cluster, first.OperationID, 7)).To(BeFalse())
		w.acquire(first, never)
		w.g.Expect(w.Release(w.ctx, cluster, first, 7)).To(Succeed())
		w.g.Expect(w.GaveBackLast(w.ctx, cluster, first.OperationID, 7)).To(BeTrue())
		w.g.Expect(w.GaveBackLast(w.ctx, cluster, first.OperationID, 8)).To(BeFalse())
		w.g.Expect(w.GaveBackLast(w.ctx, cluster, second.OperationID, 7)).To(BeFalse())
	})
	t.Run("of nothing", func(t *testing.T) {
		w := newWorld(t)
		w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed())
	})
}

// lost makes another process take the lock between our read and our write.
func lost(w **world) interceptor.Funcs {
	return interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
		lease := &coordinationv1.Lease{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), lease); err != nil {
			return err
		}
		other := &Locks{Epoch: "epoch-2", Clock: (*w).clock}
		other.stamp(lease, "c1", second, HolderOf(lease))
		if err := c.Update(ctx, lease); err != nil {
			return err
		}
		return c.Update(ctx, object, options...)
	}}
}

func TestConflicts(t *testing.T) {
	t.Run("while taking over", func(t *testing.T) {
		var w *world
		w = newWorld(t, lost(&w))
		w.acquire(helm, never)
		w.clock.SetTime(start.Add(time.Hour))
		_, err := w.Acquire(w.ctx, cluster, belongs, first, never)
		w.g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		w.g.Expect(HolderOf(w.lease())).To(Equal(second))
	})
	t.Run("while releasing", func(t *testing.T) {
		var w *world
		w = newWorld(t, lost(&w))
		w.acquire(first, never)
		w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed(), "somebody else holds it by now")
		w.g.Expect(HolderOf(w.lease())).To(Equal(second))
	})
	t.Run("while releasing, and the lock is still ours", func(t *testing.T) {
		var w *world
		touched := false
		w = newWorld(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if lease := w.lease(); !touched {
				touched = true
				lease.Labels["touched"] = "yes"
				w.g.Expect(c.Update(ctx, lease)).To(Succeed())
			}
			return c.Update(ctx, object, options...)
		}})
		w.acquire(first, never)
		w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed())
		w.g.Expect(HolderOf(w.lease())).To(BeZero())
	})
	t.Run("while creating", func(t *testing.T) {
		w := newWorld(t, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(coordinationv1.Resource("leases"), key.Name)
		}})
		w.acquire(first, never)
		_, err := w.Acquire(w.ctx, cluster, belongs, second, never)
		w.g.Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
	})
}

func TestAcquireDoesNotGuess(t *testing.T) {
	w := newWorld(t)
	w.acquire(first, never)
	broken := errors.New("no answer")
	_, err := w.Acquire(w.ctx, cluster, belongs, second, func(context.Context, Holder) (bool, error) { return true, broken })
	w.g.Expect(err).To(MatchError(broken))
	w.g.Expect(err).To(MatchError(ContainSubstring(`asking whether TalosOperation "default/first" still needs the lock default/c1-ichor-lock`)))
	w.g.Expect(HolderOf(w.lease())).To(Equal(first))
}

// The guard is the fence before every changing call.
func TestGuard(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*world)
		err    string
	}{
		"holds":      {func(*world) {}, ""},
		"released":   {func(w *world) { w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed()) }, `the lock of cluster default/c1 is held by ""`},
		"taken over": {func(w *world) { w.acquire(second, always) }, `the lock of cluster default/c1 is held by TalosOperation "default/second"`},
		"another process": {func(w *world) {
			other := &Locks{Client: w.Client, Reader: w.Reader, Epoch: "epoch-2", Clock: w.clock}
			w.g.Expect(other.Acquire(w.ctx, cluster, belongs, first, never)).To(Equal(first))
		}, `another hub process acts for TalosOperation "default/first"`},
		"the Lease is gone": {func(w *world) { w.g.Expect(w.Client.Delete(w.ctx, w.lease())).To(Succeed()) }, "the lock of cluster default/c1 is gone"},
		"cannot be read": {func(w *world) {
			w.Reader = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("no answer")
			}})
		}, "whether the change is allowed is not known: reading the lock of cluster default/c1: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.acquire(first, never)
			check := w.Guard(cluster, first)
			row.change(w)
			if row.err == "" {
				w.g.Expect(check(w.ctx)).To(Succeed())
				return
			}
			err := check(w.ctx)
			w.g.Expect(err).To(MatchError(row.err))
			w.g.Expect(errors.Is(err, guard.ErrUndecided)).To(Equal(name == "cannot be read"), "all others are refusals")
		})
	}
}

func TestWhoHoldsTheLock(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*world)
		want   Holder
		err    string
	}{
		"nobody ever did": {func(*world) {}, Holder{}, ""},
		"an operation":    {func(w *world) { w.acquire(first, never) }, first, ""},
		"somebody else":   {func(w *world) { w.acquire(addOn, never) }, addOn, ""},
		"nobody any more": {func(w *world) {
			w.acquire(first, never)
			w.g.Expect(w.Release(w.ctx, cluster, first, 0)).To(Succeed())
		}, Holder{}, ""},
		"cannot be read": {func(w *world) {
			w.acquire(first, never)
			w.Reader = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("no answer")
			}})
		}, Holder{}, "reading the lock of cluster default/c1: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			row.change(w)
			holder, err := w.Holder(w.ctx, cluster)
			w.g.Expect(holder).To(Equal(row.want))
			if row.err == "" {
				w.g.Expect(err).NotTo(HaveOccurred())
				return
			}
			w.g.Expect(err).To(MatchError(row.err))
		})
	}
}

func TestHolder(t *testing.T) {
	g := NewWithT(t)
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "first", Annotations: map[string]string{"ichor.maesh.dev/operation-id": "id-1"},
	}}
	g.Expect(Operation(op)).To(Equal(first))
	g.Expect(LeaseName("c1")).To(Equal("c1-ichor-lock"))

	for identity, row := range map[string]struct {
		text      string
		operation types.NamespacedName
		ok        bool
	}{
		"ichor-controller/op/default/first":        {`TalosOperation "default/first"`, types.NamespacedName{Namespace: "default", Name: "first"}, true},
		"ichor-controller/machine/default/c1-cp-1": {`TalosMachine "default/c1-cp-1"`, types.NamespacedName{}, false},
		"ichor-controller/cni-helm":                {`"ichor-controller/cni-helm"`, types.NamespacedName{}, false},
		"ichor-controller/op/nameless":             {`TalosOperation "nameless"`, types.NamespacedName{}, false},
		"":                                         {`""`, types.NamespacedName{}, false},
	} {
		holder := Holder{Identity: identity}
		g.Expect(holder.String()).To(Equal(row.text))
		key, ok := holder.OperationKey()
		g.Expect(ok).To(Equal(row.ok), identity)
		if ok {
			g.Expect(key).To(Equal(row.operation))
		}
	}
}

// What began has its identity in status, and is the same operation when somebody takes its annotations away.
func TestOperationID(t *testing.T) {
	for name, row := range map[string]struct{ annotation, status, want string }{
		"new":                            {"", "", ""},
		"not begun":                      {"id-1", "", "id-1"},
		"begun":                          {"id-1", "id-1", "id-1"},
		"begun, the annotation was lost": {"", "id-1", "id-1"},
		"begun, the annotation differs":  {"id-9", "id-1", "id-1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"}}
			if row.annotation != "" {
				op.Annotations = map[string]string{"ichor.maesh.dev/operation-id": row.annotation}
			}
			op.Status.OperationID = row.status
			g.Expect(OperationID(op)).To(Equal(row.want))
			g.Expect(Operation(op)).To(Equal(Holder{Identity: "ichor-controller/op/default/first", OperationID: row.want}))
		})
	}
}

// Operations and machines are there or not. All others renew.
func TestExpires(t *testing.T) {
	for identity, want := range map[string]bool{
		"ichor-controller/op/default/first":        false,
		"ichor-controller/machine/default/c1-cp-1": false,
		"ichor-controller/cni-helm":                true,
		"ichor-controller/operator":                true,
		"somebody-else":                            true,
	} {
		NewWithT(t).Expect(Holder{Identity: identity}.Expires()).To(Equal(want), identity)
	}
}
