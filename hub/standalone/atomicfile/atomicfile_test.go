// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestWriteReplacesAndLeavesNothingBehind(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	g.Expect(os.WriteFile(path, []byte("something longer than the new content"), 0o644)).To(Succeed())

	g.Expect(Write(path, []byte("new"))).To(Succeed())
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("new"))
	info, err := os.Stat(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	g.Expect(os.ReadDir(dir)).To(HaveLen(1))
}

func TestWriteFailsWhole(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	g.Expect(os.Mkdir(path, 0o700)).To(Succeed()) // A directory cannot be replaced by a file.

	g.Expect(Write(path, []byte("new"))).To(MatchError(ContainSubstring(path)))
	g.Expect(os.ReadDir(dir)).To(HaveLen(1))
}

// A file that was prepared is nowhere until it is put at its path, and where something is only who wants that puts it there.
func TestPending(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	add := func(data string) error {
		p, err := Prepare(path)
		g.Expect(err).NotTo(HaveOccurred())
		defer p.Close()
		return p.Add([]byte(data))
	}
	p, err := Prepare(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(path).NotTo(BeAnExistingFile())
	p.Close()
	g.Expect(os.ReadDir(dir)).To(BeEmpty())

	g.Expect(add("first")).To(Succeed())
	g.Expect(add("second")).To(MatchError(fs.ErrExist))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("first"))
	g.Expect(os.ReadDir(dir)).To(HaveLen(1))
}
