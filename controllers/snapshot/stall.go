// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// watched is a stream that is ended when it brings nothing for a while. Waiting for who takes what it brought does not count.
type watched struct {
	io.Reader

	clock clock.WithDelayedExecution
	most  time.Duration
	end   func()

	mu   sync.Mutex
	dead bool
}

func newWatched(stream io.Reader, clk clock.WithDelayedExecution, most time.Duration, end func()) *watched {
	return &watched{Reader: stream, clock: clk, most: most, end: end}
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	timer := w.clock.AfterFunc(w.most, func() {
		w.mu.Lock()
		w.dead = true
		w.mu.Unlock()
		w.end()
	})
	defer timer.Stop()
	return w.Reader.Read(p)
}

func (w *watched) stalled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}
