// SPDX-License-Identifier: Apache-2.0

//go:build unix

package standalone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/wait"
)

// script writes a program that stands for the API server.
func script(t *testing.T, body string) string {
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStartReportsAChildThatEnds(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	_, err := Start(t.Context(), Options{DataDir: dir, Binary: script(t, "echo broken >&2; exit 7"), Log: logr.Discard()})
	g.Expect(err).To(MatchError(And(ContainSubstring("exit status 7"), ContainSubstring("apiserver.log"))))
	g.Expect(os.ReadFile(filepath.Join(dir, "apiserver.log"))).To(ContainSubstring("broken"))

	lock, err := lockDataDir(dir, layout(dir).lock())
	g.Expect(err).NotTo(HaveOccurred(), "a failed start keeps the directory")
	g.Expect(lock.release()).To(Succeed())
}

func TestStartReportsAMissingBinary(t *testing.T) {
	g := NewWithT(t)
	_, err := Start(t.Context(), Options{DataDir: t.TempDir(), Binary: "/does/not/exist", Log: logr.Discard()})
	g.Expect(err).To(MatchError(os.ErrNotExist))
}

func TestSuperviseGivesUp(t *testing.T) {
	g := NewWithT(t)
	runs := filepath.Join(t.TempDir(), "runs")
	i := supervised(t, "echo run >>"+runs+"; exit 7")
	g.Expect(i.Wait()).To(MatchError(And(ContainSubstring("again and again"), ContainSubstring("exit status 7"))))
	content, err := os.ReadFile(runs)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(string(content), "run")).To(Equal(1 + i.backoff.Steps))
	g.Expect(i.Stop()).To(Succeed())
}

func TestStopEndsChildAndSupervisor(t *testing.T) {
	g := NewWithT(t)
	i := supervised(t, "exec tail -f /dev/null")
	g.Expect(i.Stop()).To(Succeed())
	g.Expect(i.Wait()).To(Succeed())
	g.Expect(i.Stop()).To(Succeed())
}

// supervised supervises a program without waiting for an API.
func supervised(t *testing.T, body string) *Instance {
	g := NewWithT(t)
	i, err := newInstance(Options{DataDir: t.TempDir(), Binary: script(t, body), Log: logr.Discard()})
	g.Expect(err).NotTo(HaveOccurred())
	i.backoff = wait.Backoff{Duration: time.Millisecond, Steps: 3}
	g.Expect(i.acquire()).To(Succeed())
	g.Expect(i.open(t.Context())).To(Succeed())
	child, err := i.startChild()
	g.Expect(err).NotTo(HaveOccurred())
	go i.supervise(child)
	return i
}

func TestChildEnv(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("GOGC", "200")
	g.Expect(childEnv([]string{"GOGC=200"})).To(Equal([]string{"GOGC=200"}))
	g.Expect(os.Unsetenv("GOGC")).To(Succeed())
	g.Expect(childEnv(nil)).To(Equal([]string{"GOGC=50"}))
}
