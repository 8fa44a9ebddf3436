// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// subject is what a call is about. Nothing of it is a Secret.
type subject struct {
	namespace                   string
	cluster, operation, machine string
	snapshot                    string // It is in the detail, too.
	detail                      string
	overrides                   []v1alpha1.GateOverride

	// dry calls change nothing.
	dry bool
}

// subjectOf reads a request that has side effects. It is false for one that nobody has described here.
func subjectOf(request any) (subject, bool) {
	switch r := request.(type) {
	case *pb.CreateOperationRequest:
		return ofOrder(r.GetOrder(), r.GetValidateOnly()), true
	case *pb.SetOperationPausedRequest:
		return ofOperation(r.GetRef(), either(r.GetPaused(), "pause", "let it go on")), true
	case *pb.RetryOperationRequest:
		return ofOperation(r.GetRef(), "retry"), true
	case *pb.ConfirmOperationRequest:
		return ofOperation(r.GetRef(), "confirm stage "+r.GetStage()), true
	case *pb.TurnBackOperationRequest:
		return ofOperation(r.GetRef(), "turn back"), true
	case *pb.ExportBundleRequest:
		return subject{namespace: r.GetRef().GetNamespace(), cluster: r.GetRef().GetName(), detail: "export the bundle of secrets"}, true
	case *pb.DeleteOperationRequest:
		return ofOperation(r.GetRef(), either(r.GetForce(), "delete by force: "+r.GetReason(), "delete")), true
	case *pb.ImportClusterRequest:
		return ofImport(r), true
	case *pb.ForgetClusterRequest:
		return subject{namespace: r.GetRef().GetNamespace(), cluster: r.GetRef().GetName(), detail: "forget"}, true
	case *pb.HoldMachineRequest:
		return ofMachine(r.GetRef(), either(r.GetHeld(), strings.TrimSuffix("hold: "+r.GetNote(), ": "), "take the hold back")), true
	case *pb.ApproveMachineRequest:
		return ofMachine(r.GetRef(), "approve"), true
	case *pb.JoinMachineRequest:
		return subject{
			namespace: r.GetCluster().GetNamespace(), cluster: r.GetCluster().GetName(),
			detail: either(r.GetValidateOnly(), "look at a machine that is to join: ", "record a machine that is to join: ") + r.GetAddress(),
		}, true
	case *pb.CreateSnapshotRequest:
		return subject{
			namespace: r.GetCluster().GetNamespace(), cluster: r.GetCluster().GetName(), snapshot: r.GetName(),
			detail: strings.TrimSuffix("take a snapshot: "+r.GetName(), ": "),
		}, true
	case *pb.DeleteSnapshotRequest:
		return subject{
			namespace: r.GetRef().GetNamespace(), snapshot: r.GetRef().GetName(),
			detail: "delete snapshot " + r.GetRef().GetName() + either(r.GetRetain(), ", leave what is stored", ""),
		}, true
	}
	return subject{}, false
}

func either(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

func ofOperation(ref *pb.Reference, detail string) subject {
	return subject{namespace: ref.GetNamespace(), operation: ref.GetName(), detail: detail}
}

func ofMachine(ref *pb.Reference, detail string) subject {
	return subject{namespace: ref.GetNamespace(), machine: ref.GetName(), detail: detail}
}

func ofOrder(order *pb.OperationOrder, dry bool) subject {
	s := subject{namespace: order.GetCluster().GetNamespace(), cluster: order.GetCluster().GetName(), dry: dry}
	parts := []string{"start " + kindName(order.GetKind())}
	if node := order.GetParameters().GetNode(); node != nil {
		s.machine = node.GetMachine()
		parts = append(parts, nodeWords(node))
	}
	if rotation := order.GetParameters().GetCaRotation(); rotation != nil {
		parts = append(parts, "authorities "+strings.Join(rotation.GetAuthorities(), " "))
	}
	target := order.GetTarget()
	for _, field := range []struct{ name, value string }{
		{"talosVersion", target.GetTalosVersion()}, {"schematicID", target.GetSchematicId()}, {"kubernetesVersion", target.GetKubernetesVersion()},
		{"ciliumVersion", target.GetCiliumVersion()}, {"kubeProxy", target.GetKubeProxy()}, {"ichorVersion", target.GetIchorVersion()}, {"maxUnavailable", order.GetMaxUnavailable()},
	} {
		if field.value != "" {
			parts = append(parts, field.name+" "+field.value)
		}
	}
	s.detail = strings.Join(parts, ", ")
	for _, override := range order.GetOverrides() {
		s.overrides = append(s.overrides, v1alpha1.GateOverride{Gate: override.GetGate(), Reason: override.GetReason()})
	}
	return s
}

// nodeWords are the parameters of kind node that are given.
func nodeWords(node *pb.NodeParameters) string {
	reset := node.GetReset_()
	words := strings.Join([]string{
		node.GetAction(), node.GetRebootMode(), node.GetService(), reset.GetManner(), strings.Join(reset.GetWipe(), " "), reset.GetAfter(), node.GetAlarms(),
	}, " ")
	return strings.Join(strings.Fields(words), " ")
}

// kindName is the name of a kind as the API has it.
func kindName(kind pb.OperationKind) string {
	name := strings.TrimPrefix(kind.String(), "OPERATION_KIND_")
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// ofImport says that there were credentials, and nothing of them.
func ofImport(r *pb.ImportClusterRequest) subject {
	detail := "import with new credentials"
	if len(r.GetKubeconfig()) == 0 && len(r.GetTalosconfig()) == 0 {
		detail = "adopt"
	}
	for _, option := range []struct {
		set  bool
		name string
	}{{r.GetOffline(), "offline"}, {r.GetAllowInsecure(), "allow_insecure"}, {r.GetTakeOver(), "take_over"}} {
		if option.set {
			detail += ", " + option.name
		}
	}
	return subject{namespace: r.GetRef().GetNamespace(), cluster: r.GetRef().GetName(), detail: detail}
}

// resolve finds the cluster of an operation or a machine, as long as that is there.
func (s subject) resolve(ctx context.Context, reader client.Reader) subject {
	if reader == nil || s.cluster != "" {
		return s
	}
	if s.operation != "" {
		op := &v1alpha1.TalosOperation{}
		if reader.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.operation}, op) == nil {
			s.cluster = op.Spec.ClusterName
			s.detail = fmt.Sprintf("%s (kind %s)", s.detail, op.Spec.Kind)
		}
	}
	if s.snapshot != "" {
		snapshot := &v1alpha1.EtcdSnapshot{}
		if reader.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.snapshot}, snapshot) == nil {
			s.cluster = snapshot.Spec.ClusterName
		}
	}
	if s.machine != "" {
		machine := &v1alpha1.TalosMachine{}
		if reader.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.machine}, machine) == nil {
			s.cluster = machine.Spec.ClusterName
		}
	}
	return s
}

// answered adds what only the answer knows, and says what was left to do.
func (s subject) answered(response any) (subject, outcome) {
	came := outcomeOf(nil)
	switch r := response.(type) {
	case *pb.CreateOperationResponse:
		s.operation = r.GetOperation().GetRef().GetName()
		switch {
		case r.GetNothingToDo():
			came.effect, came.message = v1alpha1.AuditUnchanged, "nothing to do: every machine is at the target"
		case r.GetExisted():
			came.effect, came.message = v1alpha1.AuditUnchanged, "an earlier call with the same key had created it"
		}
	case *pb.CreateSnapshotResponse:
		s.detail = "take a snapshot: " + r.GetSnapshot().GetRef().GetName()
		if !r.GetChanged() {
			came.effect, came.message = v1alpha1.AuditUnchanged, "nothing to do: there is one of that name already"
		}
	case interface{ GetChanged() bool }:
		if !r.GetChanged() {
			came.effect, came.message = v1alpha1.AuditUnchanged, "nothing to do: it was so already"
		}
	}
	if with, ok := response.(interface{ GetMachine() *pb.Machine }); ok { // Named by its Node, it was not found before.
		s.machine = cmp.Or(with.GetMachine().GetRef().GetName(), s.machine)
		s.cluster = cmp.Or(s.cluster, with.GetMachine().GetCluster().GetName())
	}
	return s, came
}
