// SPDX-License-Identifier: Apache-2.0

//go:build unix

package standalone

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopGrace is how long the child may take to stop in order.
const stopGrace = 15 * time.Second

// process is one run of the child.
type process struct {
	pid      int
	lifeline io.Closer
	ended    chan struct{} // Closed when the process is gone.
	err      error         // Why it ended; valid after ended.
}

// startProcess starts the child with its log going to log, and with more arguments, and returns once it runs.
func startProcess(binary string, dir layout, listener *net.TCPListener, log io.Writer, args ...string) (*process, error) {
	socket, err := listener.File()
	if err != nil {
		return nil, fmt.Errorf("handing over the API's port: %w", err)
	}
	defer socket.Close() //nolint:errcheck // A copy; the child has its own.
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating the lifeline: %w", err)
	}
	defer theirs.Close() //nolint:errcheck // Likewise.

	cmd := exec.Command(binary, append([]string{Command, "--" + DataDirFlag, dir.dir()}, args...)...)
	cmd.Env = childEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs, socket} // lifelineFD and listenerFD.
	// A process group of its own: Ctrl-C reaches the hub alone, which stops the child last.
	cmd.SysProcAttr = withParentDeath(&syscall.SysProcAttr{Setpgid: true})

	p := &process{lifeline: ours, ended: make(chan struct{})}
	if err := p.run(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the API server: %w", err), ours.Close())
	}
	return p, nil
}

// run starts the command and waits for its end in the background, both on one thread: the kernel takes the end
// of the thread for the death of the parent, and a locked one lives as long as its goroutine.
func (p *process) run(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	return <-started
}

// stop ends the process in order, or by force after stopGrace, and returns when it is gone.
func (p *process) stop() error {
	defer p.lifeline.Close() //nolint:errcheck // Nobody is left to hear it.
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopGrace):
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended
	return nil
}

func (p *process) signal(signal syscall.Signal) error {
	select {
	case <-p.ended:
		return nil // Its number may belong to another process by now.
	default:
	}
	if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to API server process %d: %w", signal, p.pid, err)
	}
	return nil
}

// childEnv has the child trade some CPU time for memory, unless somebody decided otherwise.
func childEnv(env []string) []string {
	const compact = "GOGC=50"
	if _, set := os.LookupEnv("GOGC"); set {
		return env
	}
	return append(env, compact)
}
