// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"
	"strings"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func pause(name string, paused bool) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.SetOperationPaused(ctx, connect.NewRequest(&pb.SetOperationPausedRequest{Ref: ref(name), Paused: paused})))
	}
}

// retry asks to retry operation c1-talos-x.
func retry() func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.RetryOperation(ctx, connect.NewRequest(&pb.RetryOperationRequest{Ref: ref("c1-talos-x")})))
	}
}

func remove(name string, force bool, reason string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.DeleteOperation(ctx, connect.NewRequest(&pb.DeleteOperationRequest{Ref: ref(name), Force: force, Reason: reason})))
	}
}

func hold(name string, held bool, note string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.HoldMachine(ctx, connect.NewRequest(&pb.HoldMachineRequest{Ref: ref(name), Held: held, Note: note})))
	}
}

func approve(name string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.ApproveMachine(ctx, connect.NewRequest(&pb.ApproveMachineRequest{Ref: ref(name)})))
	}
}

func failed(name string) *v1alpha1.TalosOperation {
	op := Operation(name, Cluster)
	op.Status.Phase, op.Status.FailureReason = v1alpha1.OperationPaused, "machine c1-w-1: it broke"
	return op
}

// lost is a reboot whose status was lost.
func lost(name string) *v1alpha1.TalosOperation {
	op := failed(name)
	op.Spec.Kind, op.Spec.Node = v1alpha1.NodeKind, &v1alpha1.NodeParameters{Machine: "c1-w-1", Action: v1alpha1.RebootAction}
	op.Status.Conditions = []metav1.Condition{{Type: "Paused", Status: "True", Reason: "StatusLost"}}
	return op
}

func completed(name string) *v1alpha1.TalosOperation {
	op := Operation(name, Cluster)
	op.Status.Phase, op.Status.CompletionTime = v1alpha1.OperationCompleted, metav1.NewTime(now)
	return op
}

func changed(op *v1alpha1.TalosOperation, change func(*v1alpha1.TalosOperation)) *v1alpha1.TalosOperation {
	change(op)
	return op
}

var patched = []string{"patch TalosOperation"}

// steers are requests about operations that there are.
func steers() []Row {
	paused := func(op *v1alpha1.TalosOperation) { op.Spec.Paused = ptr.To(true) }
	const name = "c1-talos-x"
	is := func(wantChanged, wantPaused bool) func(gomega.Gomega, proto.Message, *World) {
		return func(g gomega.Gomega, answer proto.Message, w *World) {
			g.Expect(answer.(*pb.SetOperationPausedResponse).GetChanged()).To(gomega.Equal(wantChanged))
			g.Expect(answer.(*pb.SetOperationPausedResponse).GetOperation().GetPaused()).To(gomega.Equal(wantPaused))
			g.Expect(read(g, w, &v1alpha1.TalosOperation{}, name).Paused()).To(gomega.Equal(wantPaused))
		}
	}
	retried := func(want bool) func(gomega.Gomega, proto.Message, *World) {
		return func(g gomega.Gomega, answer proto.Message, _ *World) {
			g.Expect(answer.(*pb.RetryOperationResponse).GetChanged()).To(gomega.Equal(want))
		}
	}
	return []Row{
		{Name: "pause/one that runs", Given: given(Operation(name, Cluster)), Call: pause(name, true), Writes: patched, Check: is(true, true)},
		{Name: "pause/one that failed", Given: given(failed(name)), Call: pause(name, true), Writes: patched, Check: is(true, true)},
		{Name: "pause/one that is", Given: given(changed(Operation(name, Cluster), paused)), Call: pause(name, true), Check: is(false, true)},
		{Name: "pause/go on", Given: given(changed(Operation(name, Cluster), paused)), Call: pause(name, false), Writes: patched, Check: is(true, false)},
		{Name: "pause/go on with what goes on", Given: given(Operation(name, Cluster)), Call: pause(name, false), Check: is(false, false)},
		{
			Name: "pause/what is over", Given: given(completed(name)), Call: pause(name, true), Code: connect.CodeFailedPrecondition,
			Message: "there is nothing to pause: operation c1-talos-x is completed; list others with: ichor operation list",
		},
		{
			Name: "pause/nothing", Call: pause("c1-talos-9", true), Code: connect.CodeNotFound,
			Message: `there is no operation "c1-talos-9" in namespace "default"; list them with: ichor operation list`,
		},
		invalid("pause/no name", "ref.name is missing: the name of an object", pause("", true)),
		{
			Name: "retry/what failed", Given: given(failed(name)), Call: retry(), Writes: patched,
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				retried(true)(g, answer, w)
				g.Expect(read(g, w, &v1alpha1.TalosOperation{}, name).Annotations).To(gomega.HaveKeyWithValue("ichor.maesh.dev/retry", "true"))
			},
		},
		{Name: "retry/what did not fail", Given: given(Operation(name, Cluster)), Call: retry(), Check: retried(false)},
		{Name: "retry/twice", Given: given(failed(name)), Call: twice(retry(), retry()), Writes: patched, Check: retried(false)},
		{
			Name: "retry/what is over", Given: given(completed(name)), Call: retry(), Code: connect.CodeFailedPrecondition,
			Message: "there is nothing to retry: operation c1-talos-x is completed; list others with: ichor operation list",
		},
		{
			Name: "retry/what may not be repeated", Given: given(lost(name)), Call: retry(), Code: connect.CodeFailedPrecondition,
			Message: "operation c1-talos-x has lost its status, and kind node cannot be repeated without it; look at the machines, " +
				"delete it with: ichor operation delete c1-talos-x, and start another one",
		},
		{
			Name: "retry/a kind of a newer hub", Given: given(changed(failed(name), func(op *v1alpha1.TalosOperation) { op.Spec.Kind = v1alpha1.CNIKind })), Call: retry(),
			Code: connect.CodeFailedPrecondition, Message: "this hub does not know kind cni of operation c1-talos-x; upgrade the hub",
		},
		{
			Name: "delete/one", Given: given(Operation(name, Cluster)), Call: remove(name, false, ""), Writes: []string{"delete TalosOperation"},
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(answer.(*pb.DeleteOperationResponse).GetGone()).To(gomega.BeTrue())
			},
		},
		{
			Name: "delete/one that settles first", Given: given(settling()), Call: remove(name, false, ""), Writes: []string{"delete TalosOperation"},
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(answer.(*pb.DeleteOperationResponse).GetGone()).To(gomega.BeFalse())
			},
		},
		{
			Name: "delete/by force", Given: given(settling()), Call: remove(name, true, "its machine burnt"), Writes: []string{"patch TalosOperation", "delete TalosOperation"},
			Check: func(g gomega.Gomega, _ proto.Message, w *World) {
				g.Expect(read(g, w, &v1alpha1.TalosOperation{}, name).Annotations).To(gomega.And(
					gomega.HaveKeyWithValue("ichor.maesh.dev/force-delete", "true"), gomega.HaveKeyWithValue("ichor.maesh.dev/force-delete-reason", "its machine burnt")))
			},
		},
		invalid("delete/by force, without a reason", "reason is missing: force needs one, of 1 to 256 bytes", remove(name, true, "")).given(given(settling())),
		{
			Name: "delete/nothing", Call: remove("c1-talos-9", false, ""), Code: connect.CodeNotFound,
			Message: `there is no operation "c1-talos-9" in namespace "default"; list them with: ichor operation list`,
		},
	}
}

// settling is operation c1-talos-x, which does not go at once.
func settling() *v1alpha1.TalosOperation {
	return changed(Operation("c1-talos-x", Cluster), func(op *v1alpha1.TalosOperation) { op.Finalizers = []string{v1alpha1.TalosOperationFinalizer} })
}

// machines are requests about machines, by either of their names.
func machines() []Row {
	held := machine("c1-w-1", func(m *v1alpha1.TalosMachine) {
		m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "disk"}
	})
	pending := machine("c1-w-1", func(m *v1alpha1.TalosMachine) { m.Spec.Approval = "Pending" })
	is := func(wantChanged, wantHeld bool, note string) func(gomega.Gomega, proto.Message, *World) {
		return func(g gomega.Gomega, answer proto.Message, w *World) {
			response := answer.(*pb.HoldMachineResponse)
			g.Expect(response.GetChanged()).To(gomega.Equal(wantChanged))
			g.Expect(response.GetMachine().GetHeld()).To(gomega.Equal(wantHeld))
			after := read(g, w, &v1alpha1.TalosMachine{}, "c1-w-1")
			g.Expect(after.Held()).To(gomega.Equal(wantHeld))
			g.Expect(after.Annotations[v1alpha1.UpgradeHoldAnnotation]).To(gomega.Equal(note))
		}
	}
	approved := func(want bool) func(gomega.Gomega, proto.Message, *World) {
		return func(g gomega.Gomega, answer proto.Message, w *World) {
			g.Expect(answer.(*pb.ApproveMachineResponse).GetChanged()).To(gomega.Equal(want))
			g.Expect(answer.(*pb.ApproveMachineResponse).GetMachine().GetApproved()).To(gomega.BeTrue())
			g.Expect(read(g, w, &v1alpha1.TalosMachine{}, "c1-w-1").Spec.Approval).To(gomega.Equal(v1alpha1.Approved))
		}
	}
	patch := []string{"patch TalosMachine"}
	return []Row{
		{Name: "hold/by its name", Call: hold("c1-w-1", true, "disk"), Writes: patch, Check: is(true, true, "disk")},
		{Name: "hold/by its Node", Call: hold("W-1", true, ""), Writes: patch, Check: is(true, true, "")},
		{Name: "hold/another note", Given: given(held.DeepCopy()), Call: hold("c1-w-1", true, "power"), Writes: patch, Check: is(true, true, "power")},
		{Name: "hold/what is held", Given: given(held.DeepCopy()), Call: hold("c1-w-1", true, "disk"), Check: is(false, true, "disk")},
		{Name: "hold/no more", Given: given(held.DeepCopy()), Call: hold("c1-w-1", false, ""), Writes: patch, Check: is(true, false, "")},
		{Name: "hold/no more what is not", Call: hold("c1-w-1", false, ""), Check: is(false, false, "")},
		invalid("hold/no more, with a note", `note "disk": goes with held only`, hold("c1-w-1", false, "disk")),
		invalid("hold/a long note", `note "`+strings.Repeat("x", 80)+`"…: at most 256 bytes`, hold("c1-w-1", true, strings.Repeat("x", 257))),
		{
			Name: "hold/nobody", Call: hold("c1-w-9", true, ""), Code: connect.CodeNotFound, Message: `there is no machine "c1-w-9"; list them with: ichor machine list`,
		},
		{Name: "approve/by its name", Given: given(pending.DeepCopy()), Call: approve("c1-w-1"), Writes: patch, Check: approved(true)},
		{Name: "approve/by its Node", Given: given(pending.DeepCopy()), Call: approve("w-1"), Writes: patch, Check: approved(true)},
		{Name: "approve/twice", Call: approve("c1-w-1"), Check: approved(false)},
		{
			Name: "approve/while the API is away", Given: with(func(w *World) {
				w.Fails = func(string) error {
					return apierrors.NewServerTimeout(v1alpha1.GroupVersion.WithResource("talosmachines").GroupResource(), "patch", 1)
				}
			}, pending.DeepCopy()), Call: approve("c1-w-1"), Writes: patch, Code: connect.CodeUnavailable,
			Message: "approving machine c1-w-1: The patch operation against talosmachines.ichor.maesh.dev could not be completed at this time, please try again.",
		},
	}
}
