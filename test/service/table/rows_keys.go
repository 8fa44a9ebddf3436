// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// keysOf orders a rotation of keys of the cluster.
func keysOf(keys ...string) *pb.OperationOrder {
	return &pb.OperationOrder{
		Cluster: ref(Cluster), Kind: pb.OperationKind_OPERATION_KIND_KEY_ROTATION,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_KeyRotation{KeyRotation: &pb.KeyRotationParameters{Keys: keys}}},
	}
}

// keyOrders are orders to rotate keys that nobody can mean.
func keyOrders() []Row {
	return []Row{
		invalid("order/keys of another kind", `order.parameters.key_rotation "[Secretbox]": goes with kind key-rotation only`,
			plan(upgrade(func(o *pb.OperationOrder) { o.Parameters = keysOf("Secretbox").GetParameters() }))),
		invalid("order/no key", "order.parameters.key_rotation.keys is missing: one or more of ServiceAccount, Secretbox", plan(keysOf())),
		invalid("order/a key that is none", `order.parameters.key_rotation.keys[1] "Skeleton": one of ServiceAccount, Secretbox`, plan(keysOf("Secretbox", "Skeleton"))),
		invalid("order/a key twice", `order.parameters.key_rotation.keys[1] "Secretbox": each key once`, plan(keysOf("Secretbox", "Secretbox"))),
	}
}

// able are the machines of the cluster, with control planes whose configs hold more than one key.
func able() []client.Object {
	var machines []client.Object
	for _, name := range []string{"c1-cp-1", "c1-cp-2", "c1-cp-3"} {
		m := Machine(name, v1alpha1.ControlPlaneRole)
		m.Status.TalosVersion = "v1.14.1"
		machines = append(machines, m)
	}
	return machines
}

// keyPlans are plans of rotations (H8).
func keyPlans() []Row {
	return []Row{
		{
			Name: "plan/a rotation of keys", Given: given(able()...), Call: plan(keysOf("ServiceAccount", "Secretbox")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_KEY_ROTATION))
				g.Expect(groupsOf(p.GetStages()[2])).To(gomega.Equal("c1-cp-2 | c1-cp-3 | c1-cp-1"))
				g.Expect(warningsOf(p)).To(gomega.Equal([]string{"APIServersRestart", "TokensExpire", "NoSnapshot", "KeyName"}))
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor cluster rotate-keys c1 --key service-account --key secretbox --namespace default"))
			},
		},
		{
			Name: "plan/a rotation of keys where there is no overlap (H8)", Call: plan(keysOf("Secretbox")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()[0].GetGate()).To(gomega.Equal("KeyOverlap"))
				g.Expect(planOf(answer).GetRefusals()[0].GetHelp()).To(gomega.ContainSubstring("ichor upgrade talos v1.14.0"))
			},
		},
	}
}

func confirm(name, stage string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.ConfirmOperation(ctx, connect.NewRequest(&pb.ConfirmOperationRequest{Ref: ref(name), Stage: stage})))
	}
}

// rotates is a rotation in a stage.
func rotates(name, stage string, keys ...v1alpha1.RotatedKey) *v1alpha1.TalosOperation {
	op := Operation(name, Cluster)
	op.Spec.Kind, op.Spec.KeyRotation = v1alpha1.KeyRotationKind, &v1alpha1.KeyRotationParameters{Keys: keys}
	op.Status.Stage = stage
	return op
}

// confirms are words of people that operations wait for.
func confirms() []Row {
	const name = "c1-keys-x"
	waits := func() *v1alpha1.TalosOperation { return rotates(name, "RefreshTokens", v1alpha1.ServiceAccountKey) }
	is := func(want bool) func(gomega.Gomega, proto.Message, *World) {
		return func(g gomega.Gomega, answer proto.Message, w *World) {
			g.Expect(answer.(*pb.ConfirmOperationResponse).GetChanged()).To(gomega.Equal(want))
			g.Expect(read(g, w, &v1alpha1.TalosOperation{}, name).Annotations).To(gomega.HaveKeyWithValue("ichor.maesh.dev/confirm-stage", "RefreshTokens"))
		}
	}
	return []Row{
		{Name: "confirm/what is waited for", Given: given(waits()), Call: confirm(name, "RefreshTokens"), Writes: patched, Check: is(true)},
		{
			Name: "confirm/once more", Given: given(changed(waits(), func(op *v1alpha1.TalosOperation) {
				op.Annotations = map[string]string{v1alpha1.ConfirmStageAnnotation: "RefreshTokens"}
			})), Call: confirm(name, "RefreshTokens"), Check: is(false),
		},
		{
			Name: "confirm/too early", Given: given(rotates(name, "SwapServiceAccount", v1alpha1.ServiceAccountKey)), Call: confirm(name, "RefreshTokens"),
			Code:    connect.CodeFailedPrecondition,
			Message: `operation c1-keys-x is in stage "SwapServiceAccount" and not in RefreshTokens; see: ichor operation get c1-keys-x`,
		},
		invalid("confirm/what waits for nobody", `stage "SwapServiceAccount": of kind key-rotation, PublishKeys, RefreshTokens, BackRefreshTokens`, confirm(name, "SwapServiceAccount")).given(given(waits())),
		invalid("confirm/what has no such stage", `stage "RefreshTokens": kind talos waits for nobody's word`, confirm("c1-talos-x", "RefreshTokens")).
			given(given(Operation("c1-talos-x", Cluster))),
		{
			Name: "confirm/what is over", Given: given(changed(waits(), func(op *v1alpha1.TalosOperation) { op.Status = completed("x").Status })), Call: confirm(name, "RefreshTokens"),
			Code: connect.CodeFailedPrecondition, Message: "there is nothing to confirm: operation c1-keys-x is completed; list others with: ichor operation list",
		},
	}
}
