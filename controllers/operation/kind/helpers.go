// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
)

// Unapproved are the machines of the target that the hub may not touch, by name.
func (s Scope) Unapproved() []string {
	var names []string
	for _, machine := range s.Known {
		if machine.Stranger() {
			names = append(names, machine.Name)
		}
	}
	return names
}

// HalfJoined are the machines of the target that may have the secrets of the cluster and do not count as its machines yet, by name.
func (s Scope) HalfJoined() []string {
	var names []string
	for _, machine := range s.Known {
		if machine.HalfJoined() {
			names = append(names, machine.Name)
		}
	}
	return names
}

// Strangers are the Nodes that run Talos and are no machine that the hub knows, by name and in order.
func (s Scope) Strangers(nodes iter.Seq[kube.Node]) []string {
	var names []string
	for node := range nodes {
		if node.RunsTalos() && !slices.ContainsFunc(s.Known, func(m *v1alpha1.TalosMachine) bool { return isOf(node, m) }) {
			names = append(names, node.Name)
		}
	}
	slices.Sort(names)
	return names
}

// isOf says whether a Node is that of a machine, by any of what they are known by.
func isOf(node kube.Node, machine *v1alpha1.TalosMachine) bool {
	return strings.EqualFold(node.Name, machine.Status.NodeName) || node.UUID != "" && strings.EqualFold(node.UUID, machine.Spec.UUID) ||
		machine.Spec.Address != "" && slices.Contains(node.Addresses, machine.Spec.Address)
}

// Failed says whether the call of the unit's step ended in failure.
func (u Unit) Failed() bool {
	return u.Status.Outcome != nil && u.Status.Outcome.Result == v1alpha1.CallFailed
}

// FailedForGood says whether the unit's step ended in an answer that will not change: a call was refused, or what was looked at proved
// to be wrong. A call that was interrupted or timed out may have been heard, and what is late may still come, whatever was answered since.
func (u Unit) FailedForGood() bool {
	return u.Failed() && u.Status.Outcome.Class == v1alpha1.ErrorPermanent && u.Status.UnknownSince.IsZero()
}

// FailStep ends a step as its call did.
func FailStep(u Unit, retryAt v1alpha1.OperationStep) Action {
	return Action{Verdict: Fail, RetryStep: retryAt, Message: fmt.Sprintf("%s failed: %s", u.Status.Step, u.Status.Outcome.Message)}
}

// Unreachable waits for a machine that does not answer.
func Unreachable(u Unit, trouble string) Action {
	return Action{Verdict: Wait, Reason: v1alpha1.TargetReachableGate, Message: fmt.Sprintf("machine %s does not answer: %s", u.Status.Name, trouble)}
}
