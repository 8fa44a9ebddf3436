// SPDX-License-Identifier: Apache-2.0

//go:build unix

package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"ichor.maesh.dev/hub/hub/standalone/pki"
)

// Command is the subcommand that the supervisor starts its own binary with; DataDirFlag is the flag that it always has.
const (
	Command     = "control-plane"
	DataDirFlag = "data-dir"
)

// What the child finds open when it starts.
const (
	lifelineFD = 3 + iota
	listenerFD
)

// orphanGrace is how long a child may take to shut down in order after its parent's death.
const orphanGrace = 5 * time.Second

// Inheritance is what the supervisor leaves to its child.
type Inheritance struct {
	// DataDir is the directory of the plane.
	DataDir string
	// Listener is the API's port, open already.
	Listener net.Listener
	// Files are the plane's keys and certificates.
	Files pki.Files

	lock     *fileLock
	lifeline *os.File
}

// Inherit is the child's side of the start: it takes over what the supervisor left open and locks the data
// directory for itself, so that the child of another supervisor cannot be at work in it.
func Inherit(dataDir string) (*Inheritance, error) {
	syscall.Umask(0o077) // Libraries in the child choose wide modes; nothing here is for others.
	socket := os.NewFile(listenerFD, "listener")
	listener, err := net.FileListener(socket)
	if err != nil {
		return nil, fmt.Errorf("taking over the API's port: %w; this command is started by `ichor-hub serve --standalone` only", err)
	}
	if err := socket.Close(); err != nil {
		return nil, fmt.Errorf("closing the copy of the API's port: %w", err)
	}
	files := layout(dataDir)
	lock, holder, err := tryLock(files.childLock())
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%w: API server process %d works on %s", ErrInUse, holder, dataDir)
	}
	if err != nil {
		return nil, err
	}
	return &Inheritance{
		DataDir:  dataDir,
		Listener: listener,
		Files:    pki.In(files.pki()),
		lock:     lock,
		lifeline: os.NewFile(lifelineFD, "lifeline"),
	}, nil
}

// Context ends when the supervisor is gone: then its end of the lifeline is closed. Where the kernel does not
// kill the child as well, the process ends itself if it has not done so after a while.
func (i *Inheritance) Context(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, err := io.Copy(io.Discard, i.lifeline)
		cancel(errors.Join(errors.New("the supervisor is gone"), err))
		time.AfterFunc(orphanGrace, func() { os.Exit(1) })
	}()
	return ctx
}

// Close gives the data directory up.
func (i *Inheritance) Close() error {
	return i.lock.release()
}
