// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// text is an answer as a golden file has it.
func text(answer *pb.Answer) []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	for _, line := range [][2]string{{"Doing", answer.GetDoing()}, {"Why", answer.GetWhy()}, {"Who", answer.GetWho()}, {"Command", answer.GetCommand()}} {
		if line[1] != "" {
			fmt.Fprintf(w, "%s:\t%s\n", line[0], line[1])
		}
	}
	w.Flush() //nolint:errcheck // It writes to memory.
	return out.Bytes()
}

// What is answered about the objects that the engine's own tests made: one file for every row of the pause table, and for every other answer
// to why an operation does not move (E8). UPDATE_GOLDEN=1 writes them.
func TestCaseE8AnswerSaysWhyWhoAndHow(t *testing.T) {
	rows, err := filepath.Glob("../../../controllers/operation/testdata/rows/*.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(rows).NotTo(BeEmpty())
	for _, row := range rows {
		name := strings.TrimSuffix(filepath.Base(row), ".yaml")
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			data, err := os.ReadFile(row)
			g.Expect(err).NotTo(HaveOccurred())
			op := &v1alpha1.TalosOperation{}
			g.Expect(yaml.UnmarshalStrict(data, op)).To(Succeed())

			rendered := Operation(op)
			out := text(rendered.GetAnswer())
			file := filepath.Join("testdata", "answers", name+".txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
				g.Expect(os.WriteFile(file, out, 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(out)).To(Equal(string(want)))
			for _, part := range []string{"Why:", "Who:", "Command:"} {
				g.Expect(string(out)).To(ContainSubstring(part))
			}
			reason, _, _ := strings.Cut(name, "-")
			g.Expect(rendered.GetAnswer().GetReason()).To(Equal(reason))
			g.Expect(rendered.GetAttention()).To(BeNumerically(">=", pb.Attention_ATTENTION_WAITING))
		})
	}
}

// Every row of the pause table has a file, so that a new one cannot be forgotten.
func TestEveryRowHasAnAnswer(t *testing.T) {
	for reason, helper := range helpers {
		if helper.command == nil {
			continue // A gate; two of them stand for all.
		}
		_, err := os.Stat(filepath.Join("testdata", "answers", reason+".txt"))
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), reason)
	}
}

func conditionOf(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// What an operation does that moves, settles or is over.
func TestAnswerOfWhatMoves(t *testing.T) {
	over := func(conditions ...metav1.Condition) *v1alpha1.TalosOperation {
		op := operation("op-1", "Completed", conditions...)
		op.Status.StartTime, op.Status.CompletionTime = metav1.NewTime(now), metav1.NewTime(now.Add(90*time.Second+300*time.Millisecond))
		return op
	}
	notPaused := conditionOf("Paused", "False", "NotPaused", "")
	for name, row := range map[string]struct {
		op          *v1alpha1.TalosOperation
		doing       string
		why, reason string
		attention   pb.Attention
	}{
		"new":         {operation("op-1", ""), "not started yet", "", "", pb.Attention_ATTENTION_NONE},
		"pending":     {operation("op-1", "Pending", notPaused, conditionOf("Progressing", "False", "NotStarted", "")), "not started yet", "", "", pb.Attention_ATTENTION_NONE},
		"in progress": {operation("op-1", "InProgress", notPaused, conditionOf("Progressing", "True", "Progressing", "c1-w-1: Draining")), "c1-w-1: Draining", "", "", pb.Attention_ATTENTION_NONE},
		"at a gate": {
			operation("op-1", "InProgress", notPaused, conditionOf("Progressing", "False", "EtcdHealthy", "the etcd member of c1-cp-1 has no leader")),
			"waiting", "the etcd member of c1-cp-1 has no leader", "EtcdHealthy", pb.Attention_ATTENTION_WAITING,
		},
		"at a gate that a person opens": {
			operation("op-1", "InProgress", notPaused, conditionOf("Progressing", "False", "MachineKnown", "TalosMachine c1-w-1 is not approved")),
			"waiting", "TalosMachine c1-w-1 is not approved", "MachineKnown", pb.Attention_ATTENTION_PERSON,
		},
		"settling": {
			operation("op-1", "Paused", conditionOf("Paused", "True", "OperatorPaused", "spec.paused is true; resume with: ichor operation resume op-1"), conditionOf("Progressing", "True", "Settling", "taking the machines in hand to a safe point: c1-w-1: Verifying")),
			"taking the machines in hand to a safe point: c1-w-1: Verifying", "spec.paused is true", "OperatorPaused", pb.Attention_ATTENTION_PERSON,
		},
		"completed":                     {over(conditionOf("Succeeded", "True", "Succeeded", "")), "nothing: completed within 1m30s", "", "", pb.Attention_ATTENTION_NONE},
		"completed, with held machines": {over(conditionOf("Succeeded", "True", "CompletedWithHeldMachines", "held: c1-w-2")), "nothing: completed within 1m30s; held: c1-w-2", "", "", pb.Attention_ATTENTION_NONE},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rendered := Operation(row.op)
			g.Expect(rendered.GetAnswer().GetDoing()).To(Equal(row.doing))
			g.Expect(rendered.GetAnswer().GetWhy()).To(Equal(row.why))
			g.Expect(rendered.GetAnswer().GetReason()).To(Equal(row.reason))
			g.Expect(rendered.GetAttention()).To(Equal(row.attention))
		})
	}
}
