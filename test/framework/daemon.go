// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Daemon is one of the project's binaries that runs in a process of its own until it is stopped.
type Daemon struct {
	name string
	cmd  *exec.Cmd
	gone chan struct{}
}

// StartDaemon starts a binary and returns when it has printed its first line, which is how the project's binaries say that they are ready.
// What it says on standard error is added to the file log. The context bounds the start only.
func StartDaemon(ctx context.Context, log, binary string, args ...string) (*Daemon, error) {
	path, err := Binary(binary)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", binary, err)
	}
	d := &Daemon{name: binary, cmd: exec.Command(path, args...), gone: make(chan struct{})} // It outlives ctx.
	d.cmd.Stderr = file
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to %s: %w", binary, err), file.Close())
	}
	if err := d.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", binary, err), file.Close())
	}
	ready := make(chan struct{})
	go func() {
		defer close(d.gone)
		if bufio.NewScanner(out).Scan() {
			close(ready)
		}
		_, _ = io.Copy(io.Discard, out)
		_ = d.cmd.Wait()
		_ = file.Close()
	}()
	select {
	case <-ready:
		return d, nil
	case <-d.gone:
		return nil, fmt.Errorf("%s ended while it started, see %s", binary, log)
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("%s did not get ready: %w", binary, ctx.Err()), d.End(syscall.SIGKILL))
	}
}

// PID is the process ID.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// End sends a signal that ends the process, and returns when it is gone.
func (d *Daemon) End(signal syscall.Signal) error {
	if err := d.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to %s: %w", signal, d.name, err)
	}
	<-d.gone
	return nil
}
