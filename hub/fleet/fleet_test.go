// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(now)}
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func cluster(name string) *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{ObjectMeta: named(name)}
}

func machine(name, cluster string) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{ObjectMeta: named(name), Spec: v1alpha1.TalosMachineSpec{ClusterName: cluster, Role: v1alpha1.WorkerRole, Approval: v1alpha1.Approved}}
}

func operation(name, cluster string) *v1alpha1.TalosOperation {
	return &v1alpha1.TalosOperation{ObjectMeta: named(name), Spec: v1alpha1.TalosOperationSpec{ClusterName: cluster, Kind: v1alpha1.TalosKind}}
}

// drains makes an operation drain a machine.
func drains(op *v1alpha1.TalosOperation, machine string) *v1alpha1.TalosOperation {
	op = op.DeepCopy()
	op.Status.Phase = v1alpha1.OperationInProgress
	op.Status.Machines = []v1alpha1.UnitStatus{{Name: machine, Phase: v1alpha1.UnitInProgress, Step: v1alpha1.DrainingStep}}
	return op
}

func newFleet() *Fleet {
	f := New()
	f.MarkSynced()
	return f
}

// since are the changes after a revision, in words, and the revision of the last of them.
func since(t *testing.T, f *Fleet, revision uint64) ([]string, uint64) {
	t.Helper()
	changes, _, ok := f.After(revision, make([]Change, 0, 100))
	NewWithT(t).Expect(ok).To(BeTrue())
	var words []string
	for _, change := range changes {
		words = append(words, inWords(change))
	}
	return words, revision + uint64(len(changes))
}

func inWords(c Change) string {
	verb := func(before, after bool) string {
		switch {
		case !before:
			return "new"
		case !after:
			return "gone"
		}
		return "changed"
	}
	switch {
	case c.OperationBefore != nil || c.Operation != nil:
		return verb(c.OperationBefore != nil, c.Operation != nil) + " operation " + c.Key.Name
	case c.MachineBefore != nil || c.Machine != nil:
		return verb(c.MachineBefore != nil, c.Machine != nil) + " machine " + c.Key.Name + " of " + c.Of.GetRef().GetName()
	}
	return verb(c.ClusterBefore != nil, c.Cluster != nil) + " cluster " + c.Key.Name
}

func TestChangesOfObjectsAreChangesOfMessages(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	f.Apply(cluster("c1"), machine("c1-w-1", "c1"), operation("up", "c1"))
	words, at := since(t, f, 0)
	g.Expect(words).To(Equal([]string{"new cluster c1", "changed cluster c1", "new machine c1-w-1 of c1", "new operation up", "changed cluster c1"}))
	g.Expect(f.Operation(key("up")).GetMachinesTotal()).To(BeEquivalentTo(1))
	g.Expect(f.Cluster(key("c1")).GetOperations()).To(HaveLen(1))
	g.Expect(f.MachinesOf(key("c1"))).To(HaveLen(1))
	g.Expect(f.Namespaces()).To(Equal([]string{"default"}))

	for name, step := range map[string]func(){
		"the same again":           func() { f.Apply(cluster("c1"), machine("c1-w-1", "c1"), operation("up", "c1")) },
		"what no message says":     func() { m := machine("c1-w-1", "c1"); m.ResourceVersion = "7"; f.Apply(m) },
		"what nobody knew is gone": func() { f.Delete(machine("x", "c1")); f.Delete(operation("x", "c1")); f.Delete(cluster("x")) },
		"a Lease that is no lock":  func() { f.Apply(&coordinationv1.Lease{ObjectMeta: named("c1-ichor-lock")}) },
		"a Secret is none of it":   func() { f.Apply(&clusterv1.Machine{ObjectMeta: named("c1")}) },
	} {
		step()
		words, _ = since(t, f, at)
		g.Expect(words).To(BeEmpty(), name)
	}

	f.Apply(drains(operation("up", "c1"), "c1-w-1"))
	words, at = since(t, f, at)
	g.Expect(words).To(Equal([]string{"changed operation up", "changed cluster c1", "changed machine c1-w-1 of c1"}))
	g.Expect(f.Machine(key("c1-w-1")).GetStep()).To(Equal("Draining"))

	pending := machine("c1-w-2", "c1")
	pending.Spec.Approval = v1alpha1.ApprovalPending
	f.Apply(pending)
	words, at = since(t, f, at)
	g.Expect(words).To(Equal([]string{"changed cluster c1", "new machine c1-w-2 of c1"}), "no operation takes it")
	f.Apply(machine("c1-w-2", "c1"))
	words, at = since(t, f, at)
	g.Expect(words).To(Equal([]string{"changed operation up", "changed cluster c1", "changed machine c1-w-2 of c1"}))

	over := operation("up", "c1")
	over.Status.CompletionTime = metav1.NewTime(now)
	f.Apply(over)
	words, at = since(t, f, at)
	g.Expect(words).To(Equal([]string{"changed operation up", "changed cluster c1", "changed machine c1-w-1 of c1"}))
	g.Expect(f.Cluster(key("c1")).GetOperations()).To(BeEmpty())

	f.Delete(operation("up", "c1"))
	f.Delete(machine("c1-w-2", "c1"))
	f.Delete(cluster("c1"))
	words, _ = since(t, f, at)
	g.Expect(words).To(Equal([]string{"gone operation up", "changed cluster c1", "gone machine c1-w-2 of c1", "gone cluster c1"}))
	f.Delete(machine("c1-w-1", "c1"))
	g.Expect(f.Namespaces()).To(BeEmpty())
	g.Expect(f.targets).To(BeEmpty(), "nothing is kept of what is gone")
	g.Expect(f.machineHomes).To(BeEmpty())
	g.Expect(f.operationHomes).To(BeEmpty())
}

func TestClusterAndLockAreSeenInTheCluster(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	f.Apply(cluster("c1"))
	paused := &clusterv1.Cluster{ObjectMeta: named("c1"), Spec: clusterv1.ClusterSpec{Paused: ptr.To(true)}}
	f.Apply(paused)
	g.Expect(f.Cluster(key("c1")).GetPaused()).To(BeTrue())
	lease := &coordinationv1.Lease{ObjectMeta: named("c1-ichor-lock"), Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("ichor-controller/op/default/up")}}
	lease.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	f.Apply(lease)
	g.Expect(f.Cluster(key("c1")).GetLock().GetOperation().GetName()).To(Equal("up"))
	f.Delete(lease)
	f.Delete(paused)
	g.Expect(f.Cluster(key("c1")).GetLock()).To(BeNil())
	g.Expect(f.Cluster(key("c1")).GetPaused()).To(BeFalse())
}

// An informer that was away may say "changed" of an object that was deleted and made anew under the same name.
func TestWhatIsMadeAnewForAnotherCluster(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	f.Apply(cluster("c1"), cluster("c2"), machine("m", "c1"), operation("up", "c1"))
	_, at := since(t, f, 0)
	f.Apply(machine("m", "c2"), operation("up", "c2"))
	words, _ := since(t, f, at)
	g.Expect(words).To(ContainElements("gone machine m of c1", "new machine m of c2"))
	g.Expect(f.MachinesOf(key("c1"))).To(BeEmpty())
	g.Expect(f.MachinesOf(key("c2"))).To(HaveLen(1))
	g.Expect(f.Cluster(key("c1")).GetOperations()).To(BeEmpty())
	g.Expect(f.Cluster(key("c2")).GetOperations()).To(HaveLen(1))
	g.Expect(f.Operation(key("up")).GetCluster().GetName()).To(Equal("c2"))
}

// Reading what there is in any order ends in the same messages, and does not render a cluster once for each of its machines.
func TestFirstReading(t *testing.T) {
	g := NewWithT(t)
	f, other := New(), newFleet()
	objects := []func(*Fleet){
		func(f *Fleet) { f.Apply(cluster("c1")) }, func(f *Fleet) { f.Apply(drains(operation("up", "c1"), "c1-w-7")) },
	}
	for i := range 20 {
		objects = append(objects, func(f *Fleet) { f.Apply(machine(fmt.Sprintf("c1-w-%d", i), "c1")) })
	}
	for _, apply := range objects {
		apply(f)
	}
	g.Expect(f.Synced()).To(BeFalse())
	f.MarkSynced()
	f.MarkSynced()
	g.Expect(f.Synced()).To(BeTrue())
	rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	for _, apply := range objects {
		apply(other)
	}
	g.Expect(f.Last()).To(BeNumerically("<=", 1+1+20+1), "an operation, the same with its machines, machines, a cluster")
	same := func(a, b proto.Message) { t.Helper(); g.Expect(proto.Equal(a, b)).To(BeTrue(), "%s\n%s", a, b) }
	same(f.Cluster(key("c1")), other.Cluster(key("c1")))
	same(f.Operation(key("up")), other.Operation(key("up")))
	for _, m := range f.MachinesOf(key("c1")) {
		same(m, other.Machine(key(m.GetRef().GetName())))
	}
	g.Expect(f.Machine(key("c1-w-7")).GetOperation().GetName()).To(Equal("up"))
}

func TestAMessageThatWasGivenOutDoesNotChange(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	f.Apply(cluster("c1"), machine("c1-w-1", "c1"), operation("up", "c1"))
	given := []proto.Message{f.Cluster(key("c1")), f.Machine(key("c1-w-1")), f.Operation(key("up"))}
	var before []proto.Message
	for _, message := range given {
		before = append(before, proto.Clone(message))
	}
	f.Apply(drains(operation("up", "c1"), "c1-w-1"))
	f.Delete(machine("c1-w-1", "c1"))
	for i, message := range given {
		g.Expect(proto.Equal(message, before[i])).To(BeTrue())
	}
}

func TestHistory(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	text := func(i int) *v1alpha1.TalosOperation {
		op := operation("up", "c1")
		op.Status.FailureReason = fmt.Sprint(i)
		return op
	}
	_, more, ok := f.After(0, nil)
	g.Expect(ok).To(BeTrue())
	select {
	case <-more:
		t.Fatal("nothing has changed")
	default:
	}
	f.Apply(text(1))
	g.Expect(more).To(BeClosed())
	_, _, ok = f.After(2, nil)
	g.Expect(ok).To(BeFalse(), "that never was")

	for i := 2; i <= kept; i++ {
		f.Apply(text(i))
	}
	changes, _, ok := f.After(0, make([]Change, 0, 3))
	g.Expect(ok).To(BeTrue(), "all of it is there")
	g.Expect(changes).To(HaveLen(3))
	g.Expect(changes[0].OperationBefore).To(BeNil())
	f.Apply(text(kept + 1))
	_, _, ok = f.After(0, nil)
	g.Expect(ok).To(BeFalse(), "the first one is gone")
	reason, buffer := 1, make([]Change, 0, 100)
	for at := uint64(1); ; {
		changes, _, ok := f.After(at, buffer)
		g.Expect(ok).To(BeTrue())
		if len(changes) == 0 {
			break
		}
		for _, change := range changes {
			g.Expect(change.OperationBefore.GetFailureReason()).To(Equal(fmt.Sprint(reason)))
			reason++
			g.Expect(change.Operation.GetFailureReason()).To(Equal(fmt.Sprint(reason)))
		}
		at += uint64(len(changes))
	}
	g.Expect(reason).To(Equal(kept + 1))
}

func TestTokens(t *testing.T) {
	g := NewWithT(t)
	f, other := New(), New()
	revision, ok := f.Revision(f.Token(42))
	g.Expect(ok).To(BeTrue())
	g.Expect(revision).To(BeEquivalentTo(42))
	for _, token := range []string{other.Token(42), "", ":", ":42", "42", strings.Replace(f.Token(42), "42", "x", 1), strings.Replace(f.Token(42), "42", "-1", 1)} {
		_, ok := f.Revision(token)
		g.Expect(ok).To(BeFalse(), token)
	}
	f.epoch = ""
	g.Expect(f.Token(42)).To(BeEmpty())
	_, ok = f.Revision(":42")
	g.Expect(ok).To(BeFalse())
}

func TestCloseHasOneCause(t *testing.T) {
	g := NewWithT(t)
	f := New()
	first := errors.New("first")
	f.Close(first)
	f.Close(errors.New("second"))
	g.Expect(f.Closed()).To(BeClosed())
	g.Expect(f.Cause()).To(MatchError(first))
	g.Expect(f.WaitForSync(t.Context())).To(MatchError(first))
}

// Many who read while one writes see every change once, in order, and what they then know is what there is.
func TestReadersFollowAWriter(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	const readers, writes = 20, 2000
	results := make(chan map[string]*pb.Operation, readers)
	for range readers {
		go func() {
			known := map[string]*pb.Operation{}
			all, at := f.Operations()
			for _, op := range all {
				known[op.GetRef().GetName()] = op
			}
			buffer := make([]Change, 0, 16)
			for {
				changes, more, ok := f.After(at, buffer)
				if !ok {
					results <- nil
					return
				}
				for _, change := range changes {
					at++
					if change.Operation == nil {
						delete(known, change.Key.Name)
					} else {
						known[change.Key.Name] = change.Operation
					}
				}
				if known["last"] != nil {
					results <- known
					return
				}
				if len(changes) == 0 {
					<-more
				}
			}
		}()
	}
	for i := range writes {
		op := operation(fmt.Sprintf("op-%d", i%50), "c1")
		if i%7 == 0 {
			f.Delete(op)
			continue
		}
		op.Status.FailureReason = fmt.Sprint(i)
		f.Apply(op)
	}
	f.Apply(operation("last", "c1"))
	all, _ := f.Operations()
	for range readers {
		known := <-results
		g.Expect(known).To(HaveLen(len(all)))
		g.Expect(slices.ContainsFunc(all, func(op *pb.Operation) bool { return known[op.GetRef().GetName()] != op })).To(BeFalse())
	}
}
