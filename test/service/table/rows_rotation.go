// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// rotateCA rotates certificate authorities of the cluster.
func rotateCA(authorities ...string) *pb.OperationOrder {
	return &pb.OperationOrder{
		Cluster: ref(Cluster), Kind: pb.OperationKind_OPERATION_KIND_CA_ROTATION,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_CaRotation{CaRotation: &pb.CARotationParameters{Authorities: authorities}}},
	}
}

const rotation = "c1-ca-rotation-x"

// rotating is a rotation of both authorities in a stage.
func rotating(stage string, units ...v1alpha1.UnitStatus) *v1alpha1.TalosOperation {
	op := Operation(rotation, Cluster)
	op.Spec.Kind = v1alpha1.CARotationKind
	op.Spec.CARotation = &v1alpha1.CARotationParameters{Authorities: []v1alpha1.CAAuthority{v1alpha1.TalosCA, v1alpha1.KubernetesCA}}
	op.Status.Stage, op.Status.Units = stage, units
	return op
}

// awaiting is a rotation that waits for people.
func awaiting() *v1alpha1.TalosOperation {
	const stage = "TalosAwaitingCredentials"
	return rotating(stage, v1alpha1.UnitStatus{Name: stage, Stage: stage, Phase: v1alpha1.UnitInProgress, Step: v1alpha1.AwaitingCredentialsStep})
}

func turnBack(name string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.TurnBackOperation(ctx, connect.NewRequest(&pb.TurnBackOperationRequest{Ref: ref(name)})))
	}
}

func confirmStage(name, stage string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Operations.ConfirmOperation(ctx, connect.NewRequest(&pb.ConfirmOperationRequest{Ref: ref(name), Stage: stage})))
	}
}

func exportBundle(name string) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.ExportBundle(ctx, connect.NewRequest(&pb.ExportBundleRequest{Ref: ref(name)})))
	}
}

// bundled is the Secret with the bundle of the cluster's secrets.
func bundled() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Cluster + "-talos"},
		Data:       map[string][]byte{"bundle": []byte("cluster:\n    id: hunter2\n")},
	}
}

// rotations are requests about rotations of authorities.
func rotations() []Row {
	const noWayBack = "operation c1-ca-rotation-x cannot be turned back: machines have begun to drop the old Talos authority: there is no way back, and the rotation goes on " +
		"to its end; see how far it is: ichor operation get c1-ca-rotation-x"
	return []Row{
		{
			Name: "plan/a rotation of both", Call: plan(rotateCA("Talos", "Kubernetes")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_CA_ROTATION))
				g.Expect(p.GetConfirmation()).To(gomega.Equal(pb.Confirmation_CONFIRMATION_NAME))
				g.Expect(p.GetStages()).To(gomega.HaveLen(13))
				g.Expect(groupsOf(p.GetStages()[1])).To(gomega.Equal("c1-cp-2 | c1-cp-3 | c1-cp-1 | c1-w-1 | c1-w-2"))
				g.Expect(warningsOf(p)).To(gomega.Equal([]string{"NotRotated", "CredentialsChange", "ComponentsRestart"}))
				g.Expect(p.GetLosses()).To(gomega.HaveLen(1))
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor cluster rotate-ca c1 --authority talos,kubernetes --namespace default"))
			},
		},
		invalid("plan/a rotation of nothing", "order.parameters.ca_rotation.authorities is missing: one or both of Talos, Kubernetes", plan(rotateCA())),
		invalid("plan/a rotation of another", `order.parameters.ca_rotation.authorities "etcd": one or both of Talos, Kubernetes`, plan(rotateCA("etcd"))),
		invalid("plan/a rotation of one twice", `order.parameters.ca_rotation.authorities "Talos": each once`, plan(rotateCA("Talos", "Talos"))),
		{
			Name: "turn back/one that swaps", Given: given(rotating("TalosSwap")), Call: turnBack(rotation), Writes: patched,
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(answer.(*pb.TurnBackOperationResponse).GetChanged()).To(gomega.BeTrue())
				g.Expect(answer.(*pb.TurnBackOperationResponse).GetOperation().GetTurnBackRequested()).To(gomega.BeTrue())
				g.Expect(read(g, w, &v1alpha1.TalosOperation{}, rotation).Annotations).To(gomega.And(
					gomega.HaveKeyWithValue("ichor.maesh.dev/turn-back", "true"), gomega.Not(gomega.HaveKey("ichor.maesh.dev/retry"))))
			},
		},
		{
			Name: "turn back/one that failed", Call: turnBack(rotation), Writes: patched,
			Given: given(changed(rotating("TalosSwap"), func(op *v1alpha1.TalosOperation) { op.Status.FailureReason = "machine c1-w-1: it broke" })),
			Check: func(g gomega.Gomega, _ proto.Message, w *World) {
				g.Expect(read(g, w, &v1alpha1.TalosOperation{}, rotation).Annotations).To(gomega.HaveKeyWithValue("ichor.maesh.dev/retry", "true"))
			},
		},
		{
			Name: "turn back/twice", Given: given(rotating("TalosSwap")), Call: twice(turnBack(rotation), turnBack(rotation)), Writes: patched,
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(answer.(*pb.TurnBackOperationResponse).GetChanged()).To(gomega.BeFalse())
			},
		},
		{
			Name: "turn back/one that drops", Call: turnBack(rotation), Code: connect.CodeFailedPrecondition, Message: noWayBack,
			Given: given(changed(rotating("TalosDrop"), func(op *v1alpha1.TalosOperation) {
				op.Status.Machines = []v1alpha1.UnitStatus{{Name: "c1-cp-2", Stage: "TalosDrop", Phase: v1alpha1.UnitInProgress, Step: v1alpha1.ApplyingStep}}
			})),
		},
		{
			Name: "turn back/another kind", Given: given(Operation("c1-talos-x", Cluster)), Call: turnBack("c1-talos-x"), Code: connect.CodeFailedPrecondition,
			Message: "operation c1-talos-x is of kind talos, which nobody can turn back; pause it with: ichor operation pause c1-talos-x",
		},
		{
			Name: "turn back/what others may start", Given: with(denied("start", "ca-rotation"), rotating("TalosSwap")), Call: turnBack(rotation),
			Code: connect.CodePermissionDenied, Message: "jane@example.org may not start talosoperations/ca-rotation in namespace default",
		},
		{
			Name: "confirm/credentials that are waited for", Given: given(awaiting()), Call: confirmStage(rotation, "TalosAwaitingCredentials"), Writes: patched,
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(answer.(*pb.ConfirmOperationResponse).GetChanged()).To(gomega.BeTrue())
				g.Expect(read(g, w, &v1alpha1.TalosOperation{}, rotation).Annotations).To(gomega.HaveKeyWithValue("ichor.maesh.dev/confirm-stage", "TalosAwaitingCredentials"))
			},
		},
		{
			Name: "confirm/credentials of another authority", Given: given(awaiting()), Call: confirmStage(rotation, "KubernetesAwaitingCredentials"), Code: connect.CodeFailedPrecondition,
			Message: `operation c1-ca-rotation-x is in stage "TalosAwaitingCredentials" and not in KubernetesAwaitingCredentials; see: ichor operation get c1-ca-rotation-x`,
		},
		{
			Name: "bundle/export", Call: exportBundle(Cluster), Writes: []string{"patch TalosCluster"},
			Given: given(bundled(), cluster(func(c *v1alpha1.TalosCluster) {
				c.Annotations = map[string]string{v1alpha1.BundleChangedAnnotation: "2026-01-02T03:04:05Z"}
			})),
			Check: func(g gomega.Gomega, answer proto.Message, w *World) {
				g.Expect(answer.(*pb.ExportBundleResponse).GetChanged()).To(gomega.BeTrue())
				g.Expect(string(answer.(*pb.ExportBundleResponse).GetBundle())).To(gomega.ContainSubstring("hunter2"))
				g.Expect(read(g, w, &v1alpha1.TalosCluster{}, Cluster).Annotations).To(gomega.HaveKeyWithValue(v1alpha1.BundleExportedAnnotation, "2026-01-02T03:04:05Z"))
			},
		},
		{
			Name: "bundle/export what has not changed", Given: given(bundled()), Call: exportBundle(Cluster),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(answer.(*pb.ExportBundleResponse).GetChanged()).To(gomega.BeFalse())
			},
		},
		{
			Name: "bundle/nobody keeps one", Call: exportBundle(Cluster), Code: connect.CodeNotFound,
			Message: "nobody keeps a bundle of the secrets of cluster c1: there is no Secret c1-talos; the hub makes one when it rotates authorities; until then, " +
				"of a control plane's machine config: talosctl gen secrets --from-controlplane-config FILE",
		},
		{
			Name: "bundle/of no cluster", Call: exportBundle("c9"), Code: connect.CodeNotFound,
			Message: `there is no cluster "c9" in namespace "default"; list them with: ichor cluster list`,
		},
	}
}
