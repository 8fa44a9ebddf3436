// SPDX-License-Identifier: Apache-2.0

// Package cases holds the tests against the list of public failures that this software must survive: failures that people who run Talos
// have reported, each with an ID. A row has a test that names its ID, or a line here that says why it cannot apply.
package cases

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// rows are the rows about endpoints and credentials (A), etcd and control planes (B), upgrades (C), drains and reboots (D),
// locks (E), upgrades of Kubernetes (F), and restores of etcd (I).
var rows = map[string][]int{
	"A": {1, 3, 4, 6, 7, 9, 10, 11, 12, 14, 15, 17},
	"B": {1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 21, 22, 23},
	"C": {1, 2, 4, 6, 7, 9, 10, 12, 14, 15, 16, 18, 19},
	"D": {1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 14, 15, 16, 17},
	"E": {1, 2, 4, 5, 6, 8, 9, 11},
	"F": {1, 3, 5, 6, 8, 9, 10, 14, 15},
	"I": {1, 3, 4, 5},
}

// cannotApply says why a row has no test. A kind that comes later takes its rows out of here.
var cannotApply = map[string]string{
	"B4": "removing an etcd member that was missed by mistake: nothing is removed but by the reset of that very machine that a person asks for (B21)",
	"C4": "unbootable after a power cycle: an optional canary, which no kind has; kind node takes rebootMode PowerCycle from whoever wants to know",
}

var (
	// named finds where tests name rows: TestCaseB10, TestCaseC9C10, "cases B7 and C7", "(B16, E6)".
	named = regexp.MustCompile(`(?:TestCase|FuzzCase)((?:[A-FI]\d{1,2})+)|[Cc]ases? ((?:[A-FI]\d{1,2}(?:, | and )?)+)|\(((?:[A-FI]\d{1,2}(?:, | and )?)+)\)`)

	// id is one of them.
	id = regexp.MustCompile(`[A-FI]\d{1,2}`)
)

func TestEveryRowHasATest(t *testing.T) {
	g := NewWithT(t)
	tests := map[string]string{}
	root, err := filepath.Abs("../..")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root, entry.IsDir() && entry.Name() == "cases":
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range named.FindAllString(string(text), -1) {
			for _, row := range id.FindAllString(match, -1) {
				tests[row] = path
			}
		}
		return err
	})).To(Succeed())
	for group, numbers := range rows {
		for _, number := range numbers {
			row := fmt.Sprintf("%s%d", group, number)
			_, tested := tests[row]
			why := cannotApply[row]
			g.Expect(tested || why != "").To(BeTrue(), "no test names %s, and nothing says why", row)
			g.Expect(tested && why != "").To(BeFalse(), "%s names %s, which is said to have no test", tests[row], row)
		}
	}
}
