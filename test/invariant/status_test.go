// SPDX-License-Identifier: Apache-2.0

package invariant_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
)

func operation(change func(*v1alpha1.TalosOperationStatus)) *v1alpha1.TalosOperation {
	op := &v1alpha1.TalosOperation{}
	change(&op.Status)
	return op
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) *v1alpha1.TalosOperation {
	return operation(func(s *v1alpha1.TalosOperationStatus) {
		s.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: message}}
	})
}

func TestStatusProblems(t *testing.T) {
	nothing := operation(func(*v1alpha1.TalosOperationStatus) {})
	completed := operation(func(s *v1alpha1.TalosOperationStatus) { s.CompletionTime = metav1.Now() })
	half := operation(func(s *v1alpha1.TalosOperationStatus) {
		s.Machines = []v1alpha1.UnitStatus{{Name: "m", Phase: v1alpha1.UnitCompleted}}
	})
	long := strings.Repeat("x", 257)
	for name, test := range map[string]struct {
		before, now *v1alpha1.TalosOperation
		wrong       string
	}{
		"nothing":                {nil, nothing, ""},
		"says why it is paused":  {nil, condition("Paused", "True", "StepFailed", "it broke"), ""},
		"paused without a word":  {nil, condition("Paused", "True", "StepFailed", ""), "paused with reason \"StepFailed\""},
		"not paused":             {nil, condition("Paused", "False", "NotPaused", ""), ""},
		"waits without a word":   {nil, condition("Progressing", "False", "EtcdHealthy", ""), "waits with reason \"EtcdHealthy\""},
		"says it elsewhere":      {nil, condition("Progressing", "False", "Paused", ""), ""},
		"a condition too long":   {nil, condition("Progressing", "True", "Progressing", long), "condition Progressing has 257 bytes"},
		"a failure too long":     {nil, operation(func(s *v1alpha1.TalosOperationStatus) { s.FailureReason = long }), "failureReason has 257 bytes"},
		"completed":              {nothing, completed, ""},
		"not completed any more": {completed, nothing, "was completed"},
		"a machine taken back":   {half, nothing, "machine m was completed"},
		"a machine still there":  {half, half, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := invariant.StatusProblems(test.before, test.now)
			if test.wrong == "" {
				NewWithT(t).Expect(found).To(BeEmpty())
				return
			}
			NewWithT(t).Expect(found).To(ConsistOf(ContainSubstring(test.wrong)))
		})
	}
}
