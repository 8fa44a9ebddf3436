// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

func operation(phase v1alpha1.OperationPhase, conditions ...metav1.Condition) *v1alpha1.TalosOperation {
	return &v1alpha1.TalosOperation{ObjectMeta: named("op-1"), Status: v1alpha1.TalosOperationStatus{Phase: phase, Conditions: conditions}}
}

func over(conditions ...metav1.Condition) *v1alpha1.TalosOperation {
	op := operation("Completed", conditions...)
	op.Status.StartTime, op.Status.CompletionTime = metav1.NewTime(now), metav1.NewTime(now.Add(90*time.Second+300*time.Millisecond))
	return op
}

// Case E8: what an operation does, why it does not move, and with which command that changes.
func TestCaseE8Explain(t *testing.T) {
	notPaused := conditionOf("Paused", "False", "NotPaused", "")
	for name, row := range map[string]struct {
		op           *v1alpha1.TalosOperation
		text, reason string
	}{
		"new":         {operation(""), "Not started yet.", ""},
		"pending":     {operation("Pending", notPaused, conditionOf("Progressing", "False", "NotStarted", "")), "Not started yet.", ""},
		"in progress": {operation("InProgress", notPaused, conditionOf("Progressing", "True", "Progressing", "c1-w-1: Draining")), "In progress: c1-w-1: Draining.", ""},
		"at a gate": {
			operation("InProgress", notPaused, conditionOf("Progressing", "False", "EtcdHealthy", "the etcd member of c1-cp-1 has no leader")),
			"Waiting at gate EtcdHealthy: the etcd member of c1-cp-1 has no leader. It goes on by itself.", "EtcdHealthy",
		},
		"settling": {
			operation("Paused", conditionOf("Paused", "True", "OperatorPaused", "spec.paused is true; resume with: ichor operation resume op-1"), conditionOf("Progressing", "True", "Settling", "taking the machines in hand to a safe point: c1-w-1: Verifying")),
			"Paused: spec.paused is true; resume with: ichor operation resume op-1. Now taking the machines in hand to a safe point: c1-w-1: Verifying.", "OperatorPaused",
		},
		"completed": {over(conditionOf("Succeeded", "True", "Succeeded", "")), "Completed within 1m30s.", ""},
		"completed, with held machines": {
			over(conditionOf("Succeeded", "True", "CompletedWithHeldMachines", "held: c1-w-2")), "Completed within 1m30s; held: c1-w-2.", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(explain(row.op)).To(Equal(row.text))
			g.Expect(reason(row.op)).To(Equal(row.reason))
		})
	}
}

// Every row of the pause table is told with its message, and its reason is in the list.
func TestExplainThePauseTable(t *testing.T) {
	for _, why := range []string{
		"TargetMissing", "ClusterPaused", "OperatorPaused", "StatusLost", "StepFailed", "NoExecutor", "Refused", "WaitingForWindow",
		"ControlPlaneTransitioning", "ClusterLockHeld",
	} {
		t.Run(why, func(t *testing.T) {
			g := NewWithT(t)
			op := operation("Paused", conditionOf("Paused", "True", why, "the reason; the command"), conditionOf("Progressing", "False", "Paused", ""))
			g.Expect(explain(op)).To(Equal("Paused: the reason; the command."))
			g.Expect(reason(op)).To(Equal(why))
			g.Expect(operationTable([]v1alpha1.TalosOperation{*op}).rows[0]).To(ContainElement(why))
		})
	}
}

func TestOperationTables(t *testing.T) {
	g := NewWithT(t)
	op := operation("InProgress")
	op.Spec.ClusterName, op.Spec.Kind, op.Status.Stage = "c1", "talos", "Upgrade"
	g.Expect(operationTable([]v1alpha1.TalosOperation{*op}).rows).To(Equal([][]string{{"op-1", "c1", "talos", "InProgress", "Upgrade", "", "", ""}}))
	op.Status.Machines = []v1alpha1.UnitStatus{
		{Name: "c1-cp-1", Phase: "Completed", Stage: "Upgrade"},
		{Name: "c1-cp-2", Phase: "InProgress", Stage: "Upgrade", Step: "Draining", StepStartTime: metav1.NewTime(now.Add(-12 * time.Second)), Message: "a budget keeps pods"},
	}
	g.Expect(progress(op)).To(Equal("1/2"))
	g.Expect(unitTable(op, now).rows).To(Equal([][]string{
		{"c1-cp-1", "Completed", "Upgrade", "", "", ""},
		{"c1-cp-2", "InProgress", "Upgrade", "Draining", "12s", "a budget keeps pods"},
	}))
}
