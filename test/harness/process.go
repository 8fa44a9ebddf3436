// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/hub/manager"
)

// errKilled is what a hub that was killed hears of its requests.
var errKilled = errors.New("the hub was killed")

// process is a hub that runs in this process. Nothing of it survives its end.
type process struct {
	cancel   context.CancelFunc
	killed   *atomic.Bool
	listener *mortalListener
	done     chan struct{}
	err      error // Read it after done.
}

func begin(access *rest.Config, listener *mortalListener, o manager.Options) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cancel: cancel, killed: &atomic.Bool{}, listener: listener, done: make(chan struct{})}
	config := rest.CopyConfig(access)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return mortal{killed: p.killed, next: next} })
	go func() {
		defer close(p.done)
		defer cancel()
		defer listener.Close() //nolint:errcheck // The hub has closed it, unless it did not get that far.
		p.err = manager.Run(ctx, config, o)
	}()
	return p
}

// stop ends the hub in good order.
func (p *process) stop() error {
	p.cancel()
	<-p.done
	if p.err != nil {
		return fmt.Errorf("the hub ended: %w", p.err)
	}
	return nil
}

// kill cuts the hub off first. What it then fails of is nobody's business.
func (p *process) kill() error {
	p.killed.Store(true)
	p.listener.kill()
	p.cancel()
	<-p.done
	return nil
}

// mortal passes requests on until the hub is killed.
type mortal struct {
	killed *atomic.Bool
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.killed.Load() {
		return nil, errKilled
	}
	return m.next.RoundTrip(r)
}
