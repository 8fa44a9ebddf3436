// SPDX-License-Identifier: Apache-2.0

//go:build unix

package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestLockHasOneHolder(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := lockDataDir("/data", path)
	g.Expect(err).NotTo(HaveOccurred())

	_, err = lockDataDir("/data", path)
	g.Expect(err).To(MatchError(ErrInUse))
	g.Expect(err).To(MatchError(And(ContainSubstring("/data"), ContainSubstring(fmt.Sprintf("process %d", os.Getpid())))))

	g.Expect(lock.release()).To(Succeed())
	lock, err = lockDataDir("/data", path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lock.release()).To(Succeed())
}

func TestLockOfADeadHolderIsFree(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "lock")
	g.Expect(os.WriteFile(path, []byte("4194304\n"), 0o600)).To(Succeed())
	lock, err := lockDataDir("/data", path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lock.release()).To(Succeed())
}

func TestWaitForOrphan(t *testing.T) {
	t.Run("that goes", func(t *testing.T) {
		g := NewWithT(t)
		path := filepath.Join(t.TempDir(), "lock")
		orphan, _, err := tryLock(path)
		g.Expect(err).NotTo(HaveOccurred())
		waited := make(chan error)
		go func() { waited <- waitForOrphan(t.Context(), path, time.Minute) }()
		g.Consistently(waited, 100*time.Millisecond).ShouldNot(Receive())
		g.Expect(orphan.release()).To(Succeed())
		g.Eventually(waited).Should(Receive(BeNil()))
	})
	t.Run("that stays", func(t *testing.T) {
		g := NewWithT(t)
		path := filepath.Join(t.TempDir(), "lock")
		orphan, _, err := tryLock(path)
		g.Expect(err).NotTo(HaveOccurred())
		err = waitForOrphan(t.Context(), path, 50*time.Millisecond)
		g.Expect(err).To(MatchError(ErrInUse))
		g.Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("process %d", os.Getpid()))))
		g.Expect(orphan.release()).To(Succeed())
	})
}
