// SPDX-License-Identifier: Apache-2.0

// Package render makes messages of the service out of objects of the management API. It is pure: the same objects make the same message.
//
// Messages share what they can with the objects, such as labels, so neither of them may be changed afterwards.
package render

import (
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// messageLimit bounds every sentence that is made here.
const messageLimit = 256

// Reference names an object of the hub that is asked.
func Reference(namespace, name string) *pb.Reference {
	return &pb.Reference{Namespace: namespace, Name: name}
}

// Time is a time of an object, or nothing where it is not set.
func Time(t metav1.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t.Time)
}

var statuses = map[metav1.ConditionStatus]pb.ConditionStatus{
	metav1.ConditionTrue:    pb.ConditionStatus_CONDITION_STATUS_TRUE,
	metav1.ConditionFalse:   pb.ConditionStatus_CONDITION_STATUS_FALSE,
	metav1.ConditionUnknown: pb.ConditionStatus_CONDITION_STATUS_UNKNOWN,
}

// Conditions are the conditions of an object, in its order.
func Conditions(conditions []metav1.Condition) []*pb.Condition {
	rendered := make([]*pb.Condition, 0, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		rendered = append(rendered, &pb.Condition{
			Type: c.Type, Status: statuses[c.Status], Reason: c.Reason, Message: c.Message, LastTransitionTime: Time(c.LastTransitionTime),
		})
	}
	return rendered
}

// Target is what an operation brings its cluster to, or a spec asks for.
func Target(t v1alpha1.OperationTarget) *pb.OperationTarget {
	return &pb.OperationTarget{
		TalosVersion: t.TalosVersion, SchematicId: t.SchematicID, KubernetesVersion: t.KubernetesVersion,
		CiliumVersion: t.CiliumVersion, KubeProxy: string(t.KubeProxy), MachineConfigHash: t.MachineConfigHash,
		IchorVersion: t.IchorVersion,
	}
}

// TargetOf is the target that a message says; nothing says nothing.
func TargetOf(t *pb.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{
		TalosVersion: t.GetTalosVersion(), SchematicID: t.GetSchematicId(), KubernetesVersion: t.GetKubernetesVersion(),
		CiliumVersion: t.GetCiliumVersion(), KubeProxy: v1alpha1.KubeProxyMode(t.GetKubeProxy()),
		MachineConfigHash: t.GetMachineConfigHash(), IchorVersion: t.GetIchorVersion(),
	}
}

var kinds = map[v1alpha1.OperationKind]pb.OperationKind{
	v1alpha1.TalosKind:       pb.OperationKind_OPERATION_KIND_TALOS,
	v1alpha1.KubernetesKind:  pb.OperationKind_OPERATION_KIND_KUBERNETES,
	v1alpha1.IchorKind:       pb.OperationKind_OPERATION_KIND_ICHOR,
	v1alpha1.CNIKind:         pb.OperationKind_OPERATION_KIND_CNI,
	v1alpha1.ConfigKind:      pb.OperationKind_OPERATION_KIND_CONFIG,
	v1alpha1.NodeKind:        pb.OperationKind_OPERATION_KIND_NODE,
	v1alpha1.ShutdownKind:    pb.OperationKind_OPERATION_KIND_SHUTDOWN,
	v1alpha1.CARotationKind:  pb.OperationKind_OPERATION_KIND_CA_ROTATION,
	v1alpha1.KeyRotationKind: pb.OperationKind_OPERATION_KIND_KEY_ROTATION,
	v1alpha1.EtcdRestoreKind: pb.OperationKind_OPERATION_KIND_ETCD_RESTORE,
}

// Kind is a kind of operation as messages have it.
func Kind(kind v1alpha1.OperationKind) pb.OperationKind { return kinds[kind] }

// KindOf is the kind that a message says; ok is false if there is no such kind.
func KindOf(kind pb.OperationKind) (of v1alpha1.OperationKind, ok bool) {
	for of, rendered := range kinds {
		if rendered == kind {
			return of, true
		}
	}
	return "", false
}

var phases = map[v1alpha1.OperationPhase]pb.OperationPhase{
	"":                           pb.OperationPhase_OPERATION_PHASE_PENDING, // No hub has looked at it yet.
	v1alpha1.OperationPending:    pb.OperationPhase_OPERATION_PHASE_PENDING,
	v1alpha1.OperationInProgress: pb.OperationPhase_OPERATION_PHASE_IN_PROGRESS,
	v1alpha1.OperationPaused:     pb.OperationPhase_OPERATION_PHASE_PAUSED,
	v1alpha1.OperationCompleted:  pb.OperationPhase_OPERATION_PHASE_COMPLETED,
}

// Phase is a phase as messages have it. An operation that no hub has looked at is pending.
func Phase(phase v1alpha1.OperationPhase) pb.OperationPhase { return phases[phase] }

var roles = map[v1alpha1.MachineRole]pb.MachineRole{
	v1alpha1.ControlPlaneRole: pb.MachineRole_MACHINE_ROLE_CONTROL_PLANE,
	v1alpha1.WorkerRole:       pb.MachineRole_MACHINE_ROLE_WORKER,
}

// Role is a role as messages have it.
func Role(role v1alpha1.MachineRole) pb.MachineRole { return roles[role] }

// shorten cuts a sentence to its limit, at the end of a character.
func shorten(sentence string) string {
	if len(sentence) <= messageLimit {
		return sentence
	}
	end := messageLimit - len("…")
	for !utf8.RuneStart(sentence[end]) {
		end--
	}
	return sentence[:end] + "…"
}
