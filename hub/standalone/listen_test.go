// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func port(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func TestListenKeepsItsPort(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "port")
	first, err := listen(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first.Addr().(*net.TCPAddr).IP.IsLoopback()).To(BeTrue())
	kept := port(first)
	g.Expect(first.Close()).To(Succeed())

	second, err := listen(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(port(second)).To(Equal(kept))
	g.Expect(second.Close()).To(Succeed())
}

func TestListenMovesWhenItsPortIsTaken(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "port")
	thief, err := listen(file)
	g.Expect(err).NotTo(HaveOccurred())

	moved, err := listen(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(port(moved)).NotTo(Equal(port(thief)))
	g.Expect(readPort(file)).To(Equal(port(moved)))
	g.Expect(moved.Close()).To(Succeed())
	g.Expect(thief.Close()).To(Succeed())
}

func TestReadPortRefusesNonsense(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "port")
	g.Expect(os.WriteFile(file, []byte("123456\n"), 0o600)).To(Succeed())
	_, err := readPort(file)
	g.Expect(err).To(MatchError(ContainSubstring("remove the file")))
}
