// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/storage"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
)

// world is one control plane of a target, and the sequence that acts on it.
type world struct {
	Sequence

	talos *talosfake.Talos
	kube  *kubefake.Kube
	scope kind.Scope
}

func newWorld() *world {
	w := &world{talos: talosfake.New(), kube: kubefake.New(), scope: scope(3)}
	w.Sequence = New(w.talos, w.kube)
	w.scope.Guard = func(context.Context) error { return nil }
	seen := well("old", leading)
	w.talos.Add("10.0.0.1", seen.Talos, seen.Etcd)
	w.kube.Set(*seen.Node)
	return w
}

func (w *world) do(t *testing.T, step v1alpha1.OperationStep) error {
	t.Helper()
	_, err := w.Do(t.Context(), w.scope, at(step), step)
	return err
}

func (w *world) undo(t *testing.T, step v1alpha1.OperationStep, cause error) error {
	t.Helper()
	return w.Undo(t.Context(), w.scope, at(step), step, cause)
}

func TestDo(t *testing.T) {
	w := newWorld()
	for _, row := range []struct {
		step v1alpha1.OperationStep
		want []string
	}{
		{"Forfeiting", []string{"ForfeitLeadership 10.0.0.1"}},
		{"Draining", []string{"Cordon cp-1", "Drain cp-1"}},
		{"Rebooting", []string{"Reboot 10.0.0.1"}},
		{"Uncordoning", []string{"Uncordon cp-1"}},
	} {
		g := NewWithT(t)
		before := len(w.talos.Calls()) + len(w.kube.Calls())
		g.Expect(w.do(t, row.step)).To(Succeed())
		calls := append(w.talos.Calls(), w.kube.Calls()...)
		g.Expect(calls).To(ContainElements(row.want))
		g.Expect(calls).To(HaveLen(before + len(row.want)))
	}
	g := NewWithT(t)
	g.Expect(w.do(t, "Verifying")).To(MatchError("step Verifying makes no call"))
	g.Expect(w.kube.Get("cp-1").Unschedulable).To(BeFalse())
}

// Case B10: another machine at the recorded address is left alone, and so is one that does not tell who it is.
func TestCaseB10NothingIsDoneToAnotherMachine(t *testing.T) {
	for _, step := range []v1alpha1.OperationStep{"Forfeiting", "Rebooting"} {
		for uuid, want := range map[string]struct {
			message string
			class   v1alpha1.ErrorClass
		}{
			"uuid-2": {`but c1-cp-1 has UUID "uuid-1"`, "Permanent"},
			"":       {"does not tell its UUID yet", "Retryable"}, // It is on its way up.
		} {
			g := NewWithT(t)
			w := newWorld()
			w.talos.Change("10.0.0.1", func(m *talos.Machine, _ *talos.Etcd) { m.UUID = uuid })
			err := w.do(t, step)
			g.Expect(err).To(MatchError(ContainSubstring(want.message)))
			g.Expect(Classify(err)).To(Equal(want.class))
			g.Expect(w.talos.Calls()).To(BeEmpty())
		}
	}
}

// A request whose answer was lost has arrived if the machine is on its way down: a second one would take it down twice.
func TestDoesNotAskWhatRebootsAlready(t *testing.T) {
	for stage, calls := range map[string][]string{
		"rebooting": nil,
		"upgrading": nil,
		"running":   {"Reboot 10.0.0.1"},
		"booting":   {"Reboot 10.0.0.1"},
	} {
		t.Run(stage, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			w.talos.Change("10.0.0.1", func(m *talos.Machine, _ *talos.Etcd) { m.Stage = stage })
			g.Expect(w.do(t, "Rebooting")).To(Succeed())
			g.Expect(w.talos.Calls()).To(Equal(calls))
		})
	}
}

// Case E6: a reboot that has happened since the claim is not asked for again.
func TestCaseE6RebootsOnce(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	g.Expect(w.do(t, "Rebooting")).To(Succeed())
	g.Expect(w.do(t, "Rebooting")).To(Succeed())
	g.Expect(w.talos.Calls()).To(Equal([]string{"Reboot 10.0.0.1"}))
}

// Cases D2 and D3: a drain that failed may be tried again, so its cordon stays. Once it has failed for good, the cordon goes if it is
// its own, and no other does.
func TestCaseD2D3FailedDrainUncordons(t *testing.T) {
	for name, row := range map[string]struct {
		before kube.Node
		stays  bool
	}{
		"own cordon":      {kube.Node{Name: "cp-1"}, false},
		"cordon of admin": {kube.Node{Name: "cp-1", Unschedulable: true}, true},
		"cordon of other": {kube.Node{Name: "cp-1", Unschedulable: true, CordonedBy: "default/op-0"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			w.kube.Set(row.before)
			w.kube.FailNext("Drain", "cp-1", errors.New("a budget keeps pods"))
			err := w.do(t, "Draining")
			g.Expect(err).To(MatchError("a budget keeps pods"))
			g.Expect(w.kube.Get("cp-1").Unschedulable).To(BeTrue(), "the cordon does not flap between attempts")
			g.Expect(w.undo(t, "Draining", err)).To(Succeed())
			g.Expect(w.kube.Get("cp-1").Unschedulable).To(Equal(row.stays))
			g.Expect(w.kube.Get("cp-1").CordonedBy).To(Equal(row.before.CordonedBy))
		})
	}
}

// A drain that was told to end leaves the cordon to Undo, which has a time of its own.
func TestCancelledDrainUncordons(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	stop := w.kube.HangBefore("Drain", "cp-1")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.Do(ctx, w.scope, at("Draining"), "Draining")
		ended <- err
	}()
	<-stop.Reached
	cancel()
	err := <-ended
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(w.kube.Get("cp-1").CordonedBy).To(Equal("default/op-1"))
	g.Expect(w.undo(t, "Draining", err)).To(Succeed())
	g.Expect(w.kube.Get("cp-1").Unschedulable).To(BeFalse())
}

// A request to reboot that failed leaves the cordon: where it is asked for again, the machine must not have taken pods since. Where
// the machine refused it, Undo takes the cordon off; where nobody knows what becomes of it, pods must not come to a machine that may
// yet go away.
func TestCordonAfterARebootThatFailed(t *testing.T) {
	for name, row := range map[string]struct {
		err   error
		class v1alpha1.ErrorClass
		stays bool
	}{
		"refused":         {status.Error(codes.PermissionDenied, "no"), "Permanent", false},
		"not possible":    {status.Error(codes.FailedPrecondition, "not installed"), "Permanent", false},
		"not known":       {status.Error(codes.Unimplemented, "no such method"), "Permanent", false},
		"nobody knows":    {status.Error(codes.Unavailable, "connection lost"), "Retryable", true},
		"out of time":     {status.Error(codes.DeadlineExceeded, "after 5s"), "Retryable", true},
		"it broke":        {status.Error(codes.Internal, "panic"), "Retryable", true},
		"it says no more": {status.Error(codes.Unknown, "x"), "Retryable", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			g.Expect(w.do(t, "Draining")).To(Succeed())
			w.talos.FailNext("Reboot", "10.0.0.1", row.err)
			err := w.do(t, "Rebooting")
			g.Expect(err).To(MatchError(row.err))
			g.Expect(Classify(err)).To(Equal(row.class))
			g.Expect(w.kube.Get("cp-1").CordonedBy).To(Equal("default/op-1"))
			g.Expect(w.undo(t, "Rebooting", err)).To(Succeed())
			g.Expect(w.kube.Get("cp-1").Unschedulable).To(Equal(row.stays))
		})
	}
	t.Run("another machine answers (B10)", func(t *testing.T) {
		g := NewWithT(t)
		w := newWorld()
		g.Expect(w.do(t, "Draining")).To(Succeed())
		w.talos.Change("10.0.0.1", func(m *talos.Machine, _ *talos.Etcd) { m.UUID = "uuid-2" })
		err := w.do(t, "Rebooting")
		g.Expect(Classify(err)).To(BeEquivalentTo("Permanent"))
		g.Expect(w.undo(t, "Rebooting", err)).To(Succeed())
		g.Expect(w.kube.Get("cp-1").Unschedulable).To(BeFalse(), "nothing was asked of it")
		g.Expect(w.talos.Calls()).To(BeEmpty())
	})
	for name, row := range map[string]struct {
		err   error
		class v1alpha1.ErrorClass
	}{
		"the guard refused":            {errors.New("the lock is held by another"), "Interrupted"},
		"the guard could not find out": {fmt.Errorf("%w: the management API does not answer", guard.ErrUndecided), "Retryable"},
		"the guard may not find out":   {fmt.Errorf("%w: %w", guard.ErrUndecided, apierrors.NewUnauthorized("the token has ended")), "Retryable"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			g.Expect(w.do(t, "Draining")).To(Succeed())
			w.scope.Guard = func(context.Context) error { return row.err }
			err := w.do(t, "Rebooting")
			g.Expect(Classify(err)).To(Equal(row.class))
			w.scope.Guard = func(context.Context) error { return nil }
			g.Expect(w.undo(t, "Rebooting", err)).To(Succeed())
			g.Expect(w.kube.Get("cp-1").Unschedulable).To(BeTrue(), "the machine is asked again, and is drained then")
			g.Expect(w.talos.Calls()).To(BeEmpty())
		})
	}
}

// Only what the steps before the reboot left is taken back, and of that only the own cordon.
func TestUndo(t *testing.T) {
	const own = "default/op-1"
	refused, lost := status.Error(codes.PermissionDenied, "no"), status.Error(codes.Unavailable, "connection lost")
	other := fmt.Errorf("x: %w", &IdentityError{})
	uncordon := []string{"Uncordon cp-1"}
	for _, row := range []struct {
		step       v1alpha1.OperationStep
		cause      error
		cordonedBy string
		calls      []string
		stays      bool
	}{
		{"Evacuating", lost, own, uncordon, false},
		{"Draining", lost, own, uncordon, false},
		{"Draining", refused, own, uncordon, false},
		{"Draining", lost, "default/op-0", uncordon, true},
		{"Draining", lost, "", uncordon, true},
		{"Rebooting", refused, own, uncordon, false},
		{"Rebooting", fmt.Errorf("rebooting: %w", refused), own, uncordon, false},
		{"Rebooting", other, own, uncordon, false},
		{"Rebooting", refused, "default/op-0", uncordon, true},
		{"Rebooting", refused, "", uncordon, true},
		{"Rebooting", lost, own, nil, true},
		{"Rebooting", status.Error(codes.Internal, "panic"), own, nil, true},
		{"Rebooting", errors.New("connection refused"), own, nil, true},
		{"Rebooting", context.DeadlineExceeded, own, nil, true},
		{"Rebooting", guard.ErrNotAllowed, own, nil, true},
		{"Rebooting", guard.ErrUndecided, own, nil, true},
		{"Pulling", refused, own, nil, true},
		{"Installing", refused, own, nil, true},
		{"Forfeiting", refused, own, nil, true},
		{"Verifying", other, own, nil, true},
		{"Uncordoning", refused, own, nil, true},
	} {
		t.Run(fmt.Sprintf("%s, cordoned by %q, %v", row.step, row.cordonedBy, row.cause), func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			w.kube.Set(kube.Node{Name: "cp-1", Unschedulable: true, CordonedBy: row.cordonedBy})
			g.Expect(w.undo(t, row.step, row.cause)).To(Succeed())
			g.Expect(w.kube.Calls()).To(Equal(row.calls))
			g.Expect(w.talos.Calls()).To(BeEmpty())
			g.Expect(w.kube.Get("cp-1").Unschedulable).To(Equal(row.stays))
		})
	}
	t.Run("tells why it could not", func(t *testing.T) {
		g := NewWithT(t)
		w := newWorld()
		g.Expect(w.do(t, "Draining")).To(Succeed())
		w.kube.FailNext("Uncordon", "cp-1", errors.New("no answer"))
		g.Expect(w.undo(t, "Draining", lost)).To(MatchError("no answer"))
	})
}

// evacuated is the world's Node with so many replicas, evacuated by an operation or by nobody.
func (w *world) evacuated(count, by string) {
	node := w.kube.Get("cp-1")
	node.Storage = map[string]string{v1alpha1.StorageReplicasAnnotation: count}
	if by != "" {
		node.Storage[v1alpha1.StorageEvacuatedByAnnotation] = by
	}
	w.kube.Set(node)
}

// Evacuating asks once, tells what is left as long as something is, and is over when the storage has moved it.
func TestEvacuating(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	w.evacuated("2", "")
	for range 2 {
		err := w.do(t, "Evacuating")
		g.Expect(err).To(MatchError("waiting for the storage to move 2 replicas off Node cp-1"))
		g.Expect(Classify(err)).To(BeEquivalentTo("Retryable"))
	}
	g.Expect(w.Observe(t.Context(), w.scope, at("")).Storage).To(Equal(storage.State{Replicas: 2, EvacuatedBy: owner}))
	w.evacuated("0", owner)
	g.Expect(w.do(t, "Evacuating")).To(Succeed())
	g.Expect(w.kube.Calls()).To(Equal([]string{"Annotate cp-1"}))
}

// A step that failed before the reboot, and a machine that is back, give the Node back to the storage; what another evacuates stays so.
func TestStorageIsRestored(t *testing.T) {
	for name, back := range map[string]func(*testing.T, *world) error{
		"replicas did not leave": func(t *testing.T, w *world) error { return w.undo(t, "Evacuating", errors.New("timed out")) },
		"the drain failed":       func(t *testing.T, w *world) error { return w.undo(t, "Draining", errors.New("timed out")) },
		"the reboot was refused": func(t *testing.T, w *world) error {
			return w.undo(t, "Rebooting", status.Error(codes.PermissionDenied, "no"))
		},
		"the machine is back": func(t *testing.T, w *world) error { return w.do(t, "Uncordoning") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			w.evacuated("1", owner)
			g.Expect(back(t, w)).To(Succeed())
			g.Expect(w.kube.Get("cp-1").Storage).To(Equal(map[string]string{v1alpha1.StorageReplicasAnnotation: "1"}))
			w.evacuated("1", "default/op-0")
			g.Expect(back(t, w)).To(Succeed())
			g.Expect(w.kube.Get("cp-1").Storage).To(HaveKey(v1alpha1.StorageEvacuatedByAnnotation))
		})
	}
}

func TestObserveStorageThatCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	w.evacuated("many", "")
	seen := w.Observe(t.Context(), w.scope, at(""))
	g.Expect(seen.StorageTrouble).To(HavePrefix("annotation ichor.maesh.dev/storage-replicas of Node cp-1 is"))
	g.Expect(seen.Storage).To(BeZero())
}

// Case C7: what was put on a Node is taken off that Node, whatever the machine calls itself since.
func TestCaseC7TheOldNodeIsGivenBack(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	g.Expect(w.do(t, "Draining")).To(Succeed())
	unit := at("Uncordoning", func(u *v1alpha1.UnitStatus) { u.NodeName = "cp-1" })
	unit.Machine.Status.NodeName = "talos-x1"
	g.Expect(w.Observe(t.Context(), w.scope, unit).Node.Name).To(Equal("cp-1"))
	_, err := w.Do(t.Context(), w.scope, unit, "Uncordoning")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.kube.Get("cp-1").Unschedulable).To(BeFalse())
}

func TestNothingIsDoneAgainstTheGuard(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	w.scope.Guard = func(context.Context) error { return errors.New("the lock is held by another") }
	for _, step := range []v1alpha1.OperationStep{"Forfeiting", "Draining", "Rebooting", "Uncordoning"} {
		err := w.do(t, step)
		g.Expect(err).To(MatchError(guard.ErrNotAllowed), "%s", step)
		g.Expect(Classify(err)).To(BeEquivalentTo("Interrupted"))
	}
	for _, step := range []v1alpha1.OperationStep{"Draining", "Rebooting"} {
		g.Expect(w.undo(t, step, status.Error(codes.PermissionDenied, "no"))).To(MatchError(guard.ErrNotAllowed), "undoing %s", step)
	}
	g.Expect(w.talos.Calls()).To(BeEmpty())
	g.Expect(w.kube.Calls()).To(BeEmpty())
}

func TestClassify(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, row := range map[string]struct {
		err  error
		want v1alpha1.ErrorClass
	}{
		"Talos is away":          {status.Error(codes.Unavailable, "x"), "Retryable"},
		"Talos refuses":          {fmt.Errorf("rebooting: %w", status.Error(codes.InvalidArgument, "x")), "Permanent"},
		"Kubernetes refuses":     {apierrors.NewForbidden(nodes, "cp-1", nil), "Permanent"},
		"Kubernetes is busy":     {apierrors.NewTooManyRequests("x", 1), "Retryable"},
		"the network":            {errors.New("connection refused"), "Retryable"},
		"another machine":        {errors.Join(&IdentityError{}), "Permanent"},
		"the guard":              {fmt.Errorf("x: %w", guard.ErrNotAllowed), "Interrupted"},
		"the guard is at a loss": {fmt.Errorf("x: %w", guard.ErrUndecided), "Retryable"},
		"the guard, joined with an answer of Talos": {
			errors.Join(fmt.Errorf("x: %w", guard.ErrNotAllowed), status.Error(codes.Unavailable, "y")), "Interrupted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Classify(row.err)).To(Equal(row.want))
		})
	}
}

func TestObserve(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	seen := w.Observe(t.Context(), w.scope, at(""))
	g.Expect(seen).To(Equal(well("old", leading)))
	g.Expect(w.Observe(t.Context(), w.scope, at(""))).To(Equal(seen), "two observations of the same state are equal")

	worker := at("")
	worker.Machine.Spec.Role = "Worker"
	g.Expect(w.Observe(t.Context(), w.scope, worker).Etcd).To(BeNil())

	w.talos.Silence("10.0.0.1", true)
	seen = w.Observe(t.Context(), w.scope, at(""))
	g.Expect(seen.TalosTrouble).To(Equal("no answer"))
	g.Expect(seen.Node).NotTo(BeNil(), "the one API does not wait for the other")

	unregistered := at("")
	unregistered.Machine.Status.NodeName = "cp-9"
	seen = w.Observe(t.Context(), w.scope, unregistered)
	g.Expect(seen.Node).To(BeNil())
	g.Expect(seen.NodeTrouble).To(BeEmpty(), "a Node that does not exist is no trouble")
	g.Expect(w.talos.Calls()).To(BeEmpty())
	g.Expect(w.kube.Calls()).To(BeEmpty())
}
