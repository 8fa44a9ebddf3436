// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Answer reads out of an operation's conditions what somebody wants to know who asks about it: what it does, why it does not move, who
// changes that, and how.
func Answer(op *v1alpha1.TalosOperation) *pb.Answer {
	progressing := messageOf(op.Status.Conditions, v1alpha1.ProgressingCondition)
	switch stands := standing(op); {
	case op.Completed():
		return &pb.Answer{Doing: "nothing: completed " + completion(op)}
	case stands == nil && progressing == "":
		return &pb.Answer{Doing: "not started yet"}
	case stands == nil:
		return &pb.Answer{Doing: progressing}
	default:
		answer := helpers[stands.Reason].answer(op)
		answer.Why, answer.Reason = sentence(stands.Message), stands.Reason
		if stands.Type == v1alpha1.PausedCondition && progressing != "" {
			answer.Doing = progressing // It settles.
		}
		return answer
	}
}

// standing is the condition that says why an operation does not move; nil if it moves, or is over.
func standing(op *v1alpha1.TalosOperation) *metav1.Condition {
	progressing := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ProgressingCondition)
	if progressing != nil && progressing.Reason == v1alpha1.DeletionBlockedReason {
		return progressing
	}
	if paused := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition); paused != nil && paused.Status == metav1.ConditionTrue {
		return paused
	}
	if progressing != nil && progressing.Status == metav1.ConditionFalse && progressing.Message != "" {
		return progressing
	}
	return nil
}

func completion(op *v1alpha1.TalosOperation) string {
	took := op.Status.CompletionTime.Sub(op.Status.StartTime.Time).Round(time.Second)
	if held := messageOf(op.Status.Conditions, v1alpha1.SucceededCondition); held != "" {
		return fmt.Sprintf("within %s; %s", took, held)
	}
	return fmt.Sprintf("within %s", took)
}

// sentence is a message without what it says about commands: those have a line of their own.
func sentence(message string) string {
	if i := strings.LastIndex(message, "; "); i >= 0 {
		return message[:i]
	}
	return message
}

// helper says who makes an operation move again, and with which command.
type helper struct {
	who     string
	command func(*v1alpha1.TalosOperation) string
}

func (h helper) answer(op *v1alpha1.TalosOperation) *pb.Answer {
	if h.command == nil {
		return &pb.Answer{Doing: "waiting", Who: cmp.Or(h.who, "nobody") + "; it goes on by itself then", Command: see(op)}
	}
	return &pb.Answer{Doing: "nothing", Who: h.who, Command: h.command(op)}
}

// helpers are the rows of the pause table by reason, and the gates: those have no command of their own, and open by themselves once what
// they wait for is there.
var helpers = map[string]helper{
	v1alpha1.TargetReachableGate:      {"whoever makes the cluster reachable", nil},
	v1alpha1.TargetOwnedGate:          {"whoever declared the cluster", nil},
	v1alpha1.EtcdHealthyGate:          {"whoever mends etcd", nil},
	v1alpha1.ControlPlanesReadyGate:   {"whoever mends the control plane", nil},
	v1alpha1.MachineSettledGate:       {"the machine", nil},
	v1alpha1.MachinesDiscoveredGate:   {"whoever names or removes the machines that do not match", nil},
	v1alpha1.MachineKnownGate:         {"whoever approves the machine", nil},
	v1alpha1.WorkersAvailableGate:     {"whoever took the workers away", nil},
	v1alpha1.NodesReadyGate:           {"whoever mends the Node, or holds it back", nil},
	v1alpha1.VersionSkewGate:          {"whoever upgrades the API server that is behind", nil},
	v1alpha1.MachineConfigPendingGate: {"whoever staged or tries the config: a reboot, or the end of the try", nil},
	v1alpha1.MachinesPoweredOnGate:    {"whoever powers the machines on", nil},
	v1alpha1.RotationPassGate:         {"whoever brings the machine back, approves it or removes it", nil},
	v1alpha1.MachineHeldGate:          {"whoever takes the hold back", nil},
	v1alpha1.CredentialsConfirmedGate: {"whoever has seen to it that people have the new credentials", func(op *v1alpha1.TalosOperation) string {
		return of(op, "confirm")
	}},
	v1alpha1.ClusterPausedReason: {"whoever paused the Cluster", func(op *v1alpha1.TalosOperation) string {
		return fmt.Sprintf(`kubectl patch cluster %s -n %s --type merge -p '{"spec":{"paused":false}}'`, op.Spec.ClusterName, op.Namespace)
	}},
	v1alpha1.OperatorPausedReason: {"whoever paused the operation, or any operator", resume},
	v1alpha1.StatusLostReason: {"an operator who has looked at the machines", func(op *v1alpha1.TalosOperation) string {
		if strings.Contains(messageOf(op.Status.Conditions, v1alpha1.PausedCondition), "ichor operation resume") {
			return resume(op)
		}
		return of(op, "delete")
	}},
	v1alpha1.StepFailedReason: {"an operator, once the cause is mended", resume},
	v1alpha1.NoExecutorReason: {"an administrator: a newer hub may know the kind", func(op *v1alpha1.TalosOperation) string { return of(op, "delete") }},
	v1alpha1.RefusedReason:    {"an operator, once what refuses has changed", afterRefusal},
	v1alpha1.WaitingForWindowReason: {"nobody: it goes on when the window opens", func(op *v1alpha1.TalosOperation) string {
		return fmt.Sprintf("kubectl get taloscluster %s -n %s -o jsonpath='{.spec.maintenanceWindows}'", op.Spec.ClusterName, op.Namespace)
	}},
	v1alpha1.ControlPlaneTransitioningReason: {"whoever adds or removes a control plane", func(op *v1alpha1.TalosOperation) string {
		return fmt.Sprintf("ichor machine list --cluster %s -n %s", op.Spec.ClusterName, op.Namespace)
	}},
	v1alpha1.ClusterLockHeldReason: {"whoever has the lock", held},
	v1alpha1.TargetMissingReason: {"an administrator", func(op *v1alpha1.TalosOperation) string {
		return fmt.Sprintf("ichor cluster import %s -n %s", op.Spec.ClusterName, op.Namespace)
	}},
	v1alpha1.DeletionBlockedReason: {"an operator, once the cause is mended", resume},
}

func of(op *v1alpha1.TalosOperation, verb string) string {
	return fmt.Sprintf("ichor operation %s %s -n %s", verb, op.Name, op.Namespace)
}

// afterRefusal is what helps against a refusal. No retry helps where another hub manages the cluster.
func afterRefusal(op *v1alpha1.TalosOperation) string {
	if strings.HasPrefix(op.Status.FailureReason, v1alpha1.TargetOwnedGate+": ") {
		return fmt.Sprintf("ichor cluster get %s -n %s", op.Spec.ClusterName, op.Namespace)
	}
	return resume(op)
}

func resume(op *v1alpha1.TalosOperation) string { return of(op, "resume") }

// see shows what a gate waits for. Where a worker is cordoned by an operation, that operation is the one to ask about.
func see(op *v1alpha1.TalosOperation) string {
	message := messageOf(op.Status.Conditions, v1alpha1.ProgressingCondition)
	if _, rest, found := strings.Cut(message, `cordoned by TalosOperation "`); found {
		key, _, _ := strings.Cut(rest, `"`)
		namespace, name, _ := strings.Cut(key, "/")
		return fmt.Sprintf("ichor operation get %s -n %s", name, namespace)
	}
	return fmt.Sprintf("ichor cluster get %s -n %s", op.Spec.ClusterName, op.Namespace)
}

// held is the command that the message of the condition ends with, if it knows one: it looked at who has the lock.
func held(op *v1alpha1.TalosOperation) string {
	message := messageOf(op.Status.Conditions, v1alpha1.PausedCondition)
	if i := strings.LastIndex(message, "ichor operation "); i >= 0 {
		return fmt.Sprintf("%s -n %s", message[i:], op.Namespace)
	}
	return fmt.Sprintf("ichor operation list --cluster %s -n %s", op.Spec.ClusterName, op.Namespace)
}

// messageOf is the message of a condition.
func messageOf(conditions []metav1.Condition, kind string) string {
	if condition := meta.FindStatusCondition(conditions, kind); condition != nil {
		return condition.Message
	}
	return ""
}
