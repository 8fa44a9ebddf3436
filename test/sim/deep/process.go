// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to stop in order. Those that do not are killed, as the kubelet does it.
const stopGrace = 5 * time.Second

// program is what a process runs.
type program struct {
	binary    string
	arguments []string
	env       []string // Beside the simulator's own.
	log       string   // The file that its output is added to.
}

// process is one run of a program.
type process struct {
	pid   int
	ended chan struct{} // Closed when it is gone.
	err   error         // Why it has ended; valid after ended.
}

// start runs the program.
func (p program) start() (*process, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of a process: %w", err)
	}
	defer log.Close() //nolint:errcheck // The process has its own.
	cmd := exec.Command(p.binary, p.arguments...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: Ctrl-C reaches the simulator alone, which ends its processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	run := &process{ended: make(chan struct{})}
	if err := spawner.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.binary, err)
	}
	run.pid = cmd.Process.Pid
	go func() {
		run.err = cmd.Wait()
		close(run.ended)
	}()
	return run, nil
}

// spawner starts all processes.
var spawner parent

// parent starts processes on one thread that lasts as long as the simulator: the kernel takes the end of the thread that started a
// process for the death of its parent.
type parent struct {
	once sync.Once
	jobs chan func()
}

func (p *parent) start(cmd *exec.Cmd) error {
	p.once.Do(func() {
		p.jobs = make(chan func())
		go func() {
			runtime.LockOSThread()
			for job := range p.jobs {
				job()
			}
		}()
	})
	done := make(chan error)
	p.jobs <- func() { done <- cmd.Start() }
	return <-done
}

// gone says whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// stop ends the process in order, or by force after a while, and returns when it is gone.
func (p *process) stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopGrace):
		return p.kill()
	}
}

// kill ends the process as a power cut does, and returns when it is gone.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended
	return nil
}

func (p *process) signal(signal syscall.Signal) error {
	if p.gone() {
		return nil // Its number may belong to another process by now.
	}
	if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to process %d: %w", signal, p.pid, err)
	}
	return nil
}
