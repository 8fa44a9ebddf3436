// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"io"
	"runtime/pprof"
	"sync"
	"time"
)

// log keeps what was done, and what was found, with the time since the beginning.
type log struct {
	began time.Time

	mu       sync.Mutex
	out      io.Writer
	problems []string
}

// note writes a line.
func (l *log) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(format, args...)
}

func (l *log) write(format string, args ...any) {
	fmt.Fprintf(l.out, "%8.3fs %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}

// problem keeps what must not be.
func (l *log) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
	l.write("PROBLEM "+format, args...)
}

// found is all that must not be, so far.
func (l *log) found() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.problems...)
}

// stacks writes down what everybody is at, for who has to find out why something did not end.
func (l *log) stacks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = pprof.Lookup("goroutine").WriteTo(l.out, 1)
}
