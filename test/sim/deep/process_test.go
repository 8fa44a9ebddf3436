// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// shell is a program that runs a script.
func shell(t *testing.T, script string) program {
	t.Helper()
	path, err := exec.LookPath("sh")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return program{binary: path, arguments: []string{"-c", script}, log: filepath.Join(t.TempDir(), "log")}
}

func TestProcess(t *testing.T) {
	g := NewWithT(t)
	run, err := shell(t, "exec sleep 600").start()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(run.gone()).To(BeFalse())
	g.Expect(run.stop()).To(Succeed())
	g.Expect(run.gone()).To(BeTrue())
	g.Expect(run.kill()).To(Succeed(), "it is gone already")

	p := shell(t, "echo hello; exit 3")
	run, err = p.start()
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(run.ended).Should(BeClosed())
	g.Expect(run.err).To(MatchError(ContainSubstring("exit status 3")))
	g.Expect(os.ReadFile(p.log)).To(BeEquivalentTo("hello\n"))
}
