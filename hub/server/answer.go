// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"time"
)

// piece is how much of an answer is written at once: whoever reads slowly has time for each.
const piece = 64 << 10

// timedAnswer is an answer that has to be read: each piece of it in some time. HTTP/2 notices connections that nobody reads, but not streams of
// them, and HTTP/1.1 notices nothing.
type timedAnswer struct {
	http.ResponseWriter

	control *http.ResponseController
	most    time.Duration
}

// Write implements io.Writer.
func (a *timedAnswer) Write(p []byte) (written int, err error) {
	defer a.wait()
	for {
		a.hurry()
		n, err := a.ResponseWriter.Write(p[:min(len(p), piece)])
		written, p = written+n, p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// FlushError sends what was written.
func (a *timedAnswer) FlushError() error {
	a.hurry()
	defer a.wait()
	return a.control.Flush()
}

// Flush implements http.Flusher, which streams need.
func (a *timedAnswer) Flush() { _ = a.FlushError() }

// Unwrap lets http.ResponseController through.
func (a *timedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// hurry begins the time in which something has to be read; what remains after the handler is bounded by it, too.
func (a *timedAnswer) hurry() { _ = a.control.SetWriteDeadline(time.Now().Add(a.most)) } // Tests' recorders have no deadlines.

// wait ends it: nothing is to be read.
func (a *timedAnswer) wait() { _ = a.control.SetWriteDeadline(time.Time{}) }
