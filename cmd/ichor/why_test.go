// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// What the CLI makes of the objects that the engine's own tests made: one file for every row of the pause table, and for every other
// answer to why an operation does not move. UPDATE_GOLDEN=1 writes them.
func TestGetAnswersWhyWhoAndHow(t *testing.T) {
	rows, err := filepath.Glob("../../controllers/operation/testdata/rows/*.yaml")
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

			var out bytes.Buffer
			c := &cli{out: &out, output: outputTable}
			g.Expect(c.printLines(answerOf(op).lines())).To(Succeed())
			file := filepath.Join("testdata", "operation-get", name+".txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
				g.Expect(os.WriteFile(file, out.Bytes(), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.String()).To(Equal(string(want)))
			for _, part := range []string{"Why:", "Who:", "Command:"} {
				g.Expect(out.String()).To(ContainSubstring(part))
			}
		})
	}
}

// Every row of the pause table has a file, so that a new one cannot be forgotten.
func TestEveryRowHasAnAnswer(t *testing.T) {
	for reason, helper := range helpers {
		if helper.command == nil {
			continue // A gate; two of them stand for all.
		}
		_, err := os.Stat(filepath.Join("testdata", "operation-get", reason+".txt"))
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), reason)
	}
}
