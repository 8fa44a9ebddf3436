// SPDX-License-Identifier: Apache-2.0

//go:build unix

package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrInUse is what Start wraps when another process holds the data directory.
var ErrInUse = errors.New("data directory is in use")

// errLocked tells that somebody else holds a lock.
var errLocked = errors.New("locked")

// fileLock is a lock that the kernel releases when its holder dies, however it dies.
type fileLock struct {
	file *os.File
}

// tryLock takes the lock of a file at once or fails; with errLocked it returns the holder's process ID if known.
func tryLock(path string) (_ *fileLock, holder int, _ error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("opening lock file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close() //nolint:errcheck // It was only read.
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, readPID(file), errLocked
		}
		return nil, 0, fmt.Errorf("locking %s: %w", path, err)
	}
	lock := &fileLock{file: file}
	if err := lock.writePID(); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("writing process ID to %s: %w", path, err), lock.release())
	}
	return lock, 0, nil
}

// release gives the lock up. The file stays: removing it would let two holders lock two files of one name.
func (l *fileLock) release() error {
	return l.file.Close()
}

func (l *fileLock) writePID() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readPID(file io.Reader) int {
	content, err := io.ReadAll(io.LimitReader(file, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	return pid
}

// lockDataDir makes this process the only one that works on the directory.
func lockDataDir(dir, path string) (*fileLock, error) {
	lock, holder, err := tryLock(path)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%w: %s belongs to running process %d; stop that process or choose another directory",
			ErrInUse, dir, holder)
	}
	return lock, err
}

// waitForOrphan waits until the child of an earlier, killed process is gone. It notices its parent's death by
// itself, so this takes a moment at most.
func waitForOrphan(ctx context.Context, path string, timeout time.Duration) error {
	var orphan int
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		lock, holder, err := tryLock(path)
		if errors.Is(err, errLocked) {
			orphan = holder
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return true, lock.release()
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%w: API server process %d of an earlier start did not end within %s; kill it",
			ErrInUse, orphan, timeout)
	}
	return err
}
