// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package e2e proves standalone mode on the built binary.
package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ichor.maesh.dev/hub/test/framework"
)

// startTimeout is far beyond any start, so that only a start that hangs exceeds it.
const startTimeout = time.Minute

// hub is a running `ichor-hub serve --standalone`.
type hub struct {
	t       testing.TB
	dir     string
	cmd     *exec.Cmd
	started time.Time
	ready   time.Duration // From the start to the line that says so.
	output  *output
	ended   chan struct{}
}

// startHub starts a hub and waits until it says that it is ready.
func startHub(t testing.TB, dir string) *hub {
	t.Helper()
	h := launch(t, dir)
	select {
	case <-h.output.ready:
		h.ready = h.output.readyAt.Sub(h.started)
	case <-h.ended:
		t.Fatalf("the hub ended:\n%s", h.output)
	case <-time.After(startTimeout):
		t.Fatalf("the hub is not ready:\n%s", h.output)
	}
	return h
}

// launch starts a hub and waits for nothing.
func launch(t testing.TB, dir string) *hub {
	t.Helper()
	binary, err := framework.Binary("ichor-hub")
	if err != nil {
		t.Fatal(err)
	}
	audit, err := framework.AuditFlags()
	if err != nil {
		t.Fatal(err)
	}
	h := &hub{
		t: t, dir: dir, ended: make(chan struct{}), started: time.Now(),
		cmd:    exec.Command(binary, append([]string{"serve", "--standalone", "--data-dir", dir, "--listen", "127.0.0.1:0"}, audit...)...),
		output: &output{ready: make(chan struct{})},
	}
	h.cmd.Stdout, h.cmd.Stderr = h.output, h.output
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = h.cmd.Wait() // Its state tells.
		close(h.ended)
	}()
	t.Cleanup(h.stop)
	return h
}

// stop ends the hub in order; one that has ended stays so.
func (h *hub) stop() {
	h.t.Helper()
	select {
	case <-h.ended:
		return // Its number may belong to another process by now.
	default:
	}
	h.signal(h.cmd.Process.Pid, syscall.SIGTERM)
	h.waitEnd()
}

func (h *hub) waitEnd() {
	h.t.Helper()
	select {
	case <-h.ended:
	case <-time.After(startTimeout):
		h.t.Errorf("the hub does not end:\n%s", h.output)
	}
}

// signal sends a signal to a process that may be gone.
func (h *hub) signal(pid int, signal syscall.Signal) {
	h.t.Helper()
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		h.t.Errorf("sending %s to %d: %v", signal, pid, err)
	}
}

// childPID is the process ID of the API server, which locks a file of that content.
func (h *hub) childPID() int {
	h.t.Helper()
	content, err := os.ReadFile(filepath.Join(h.dir, "apiserver.lock"))
	if err != nil {
		h.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

func (h *hub) kubeconfig() string { return filepath.Join(h.dir, "kubeconfig") }

// config reads a kubeconfig of the data directory.
func (h *hub) config(name string) *rest.Config {
	h.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(h.dir, name))
	if err != nil {
		h.t.Fatal(err)
	}
	// The limits are for well-behaved clients in production.
	config.QPS = -1
	return config
}

func (h *hub) admin() kubernetes.Interface { return client(h.t, h.config("kubeconfig")) }

func client(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// alive says whether a process runs. A zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, found := bytes.Cut(stat, []byte(") "))
	return found && state[0] != 'Z'
}

// expectGone waits until a process is gone.
func expectGone(t testing.TB, pid int) {
	t.Helper()
	NewWithT(t).Eventually(func() bool { return alive(pid) }, 10*time.Second, 10*time.Millisecond).
		Should(BeFalse(), "process %d", pid)
}

// output collects what a hub prints and notices when it says that it is ready.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	ready   chan struct{} // Closed when it is ready.
	readyAt time.Time     // Valid after ready.
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if o.readyAt.IsZero() && strings.Contains(o.text.String(), "Ready: ") {
		o.readyAt = time.Now()
		close(o.ready)
	}
	return len(p), nil
}

// String implements fmt.Stringer.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
