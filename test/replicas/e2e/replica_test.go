// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"ichor.maesh.dev/hub/hub/standalone/pki"
)

// Lines of the log that tell how far a replica is in the election.
const (
	candidateLine = "Attempting to acquire leader lease"
	leaderLine    = "Successfully acquired lease"
)

// replica is one process of the hub.
type replica struct {
	name      string
	url       string // Where it serves.
	process   *exec.Cmd
	candidate chan struct{} // Closed when it stands for election.
	leads     chan struct{} // Closed when it leads.
	gone      chan struct{} // Closed when it has ended.
}

// startReplica starts a hub that elects its leader with others, and serves on an address of its own. Its log goes to a file and is read as it
// comes.
func startReplica(binary, name, kubeconfig, log, listen string, certificate pki.SelfSigned) (*replica, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("opening the log of replica %s: %w", name, err)
	}
	r := &replica{name: name, url: "https://" + listen, candidate: make(chan struct{}), leads: make(chan struct{}), gone: make(chan struct{})}
	r.process = exec.Command(binary, "serve", "--kubeconfig", kubeconfig,
		"--listen", listen, "--tls-cert-file", certificate.Pair, "--tls-private-key-file", certificate.Pair,
		"--leader-elect-lease-duration", leaseDuration.String(),
		"--leader-elect-renew-deadline", renewDeadline.String(),
		"--leader-elect-retry-period", retryPeriod.String(),
	)
	out, err := r.process.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("connecting to replica %s: %w", name, err)
	}
	if err := r.process.Start(); err != nil {
		return nil, fmt.Errorf("starting replica %s: %w", name, err)
	}
	go func() {
		defer close(r.gone)
		defer file.Close() //nolint:errcheck // It is a test's log.
		r.read(io.TeeReader(out, file))
		_ = r.process.Wait()
	}()
	return r, nil
}

func (r *replica) read(log io.Reader) {
	var stands, leads sync.Once
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch {
		case strings.Contains(lines.Text(), candidateLine):
			stands.Do(func() { close(r.candidate) })
		case strings.Contains(lines.Text(), leaderLine):
			leads.Do(func() { close(r.leads) })
		}
	}
}

// kill ends the process with signal 9, and returns when that was.
func (r *replica) kill() (time.Time, error) {
	at := time.Now()
	err := r.process.Process.Signal(syscall.SIGKILL)
	<-r.gone
	return at, err
}

// stop ends the process in good order.
func (r *replica) stop() {
	_ = r.process.Process.Signal(syscall.SIGTERM)
	<-r.gone
}

// is says whether a channel of a replica is closed.
func is(closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	default:
		return false
	}
}
