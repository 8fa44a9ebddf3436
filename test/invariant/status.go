// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// messageLimit bounds every message in status.
const messageLimit = 256

// silent are reasons of condition Progressing that need no words: another condition has them.
var silent = map[string]bool{
	v1alpha1.NotStartedReason: true, v1alpha1.NotProgressingReason: true, v1alpha1.CompletedReason: true, v1alpha1.StartingReason: true,
}

// StatusProblems says what must not be in the status of an operation, or must not have become of it. before is its status as it was seen
// last, and may be nil.
func StatusProblems(before, now *v1alpha1.TalosOperation) []string {
	problems := append(silence(now), tooLong(now)...)
	if before == nil {
		return problems
	}
	if before.Completed() && !now.Completed() {
		problems = append(problems, "it was completed and is not any more")
	}
	for _, unit := range before.Status.Machines {
		is := now.Machine(unit.Name)
		if unit.Phase == v1alpha1.UnitCompleted && (is == nil || is.Phase != v1alpha1.UnitCompleted) {
			problems = append(problems, fmt.Sprintf("machine %s was completed and is not any more", unit.Name))
		}
	}
	return problems
}

// silence is what stands still without saying why.
func silence(op *v1alpha1.TalosOperation) []string {
	var problems []string
	paused := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition)
	if paused != nil && paused.Status == metav1.ConditionTrue && (paused.Reason == "" || paused.Message == "") {
		problems = append(problems, fmt.Sprintf("it is paused with reason %q and message %q", paused.Reason, paused.Message))
	}
	progressing := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ProgressingCondition)
	if progressing != nil && progressing.Status == metav1.ConditionFalse && !silent[progressing.Reason] && progressing.Message == "" {
		problems = append(problems, fmt.Sprintf("it waits with reason %q and does not say for what", progressing.Reason))
	}
	return problems
}

func tooLong(op *v1alpha1.TalosOperation) []string {
	messages := map[string]string{"failureReason": op.Status.FailureReason}
	for _, c := range op.Status.Conditions {
		messages["condition "+c.Type] = c.Message
	}
	for _, unit := range op.Status.Machines {
		messages["machine "+unit.Name] = unit.Message
	}
	var problems []string
	for where, message := range messages {
		if len(message) > messageLimit {
			problems = append(problems, fmt.Sprintf("%s has %d bytes of message", where, len(message)))
		}
	}
	return problems
}
