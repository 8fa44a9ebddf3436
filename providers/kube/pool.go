// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

const (
	// dialTimeout bounds one attempt to connect to one address.
	dialTimeout = 2 * time.Second

	// A target has one API server to serve it, and the hub is not its most important client.
	clientQPS   = 20
	clientBurst = 40
)

// Pool is the Provider that reaches real API servers: one client per target, made when first needed. Each request asks whether the
// credentials are still those of the last one, so that even a drain that has gone on for minutes follows a Secret that was replaced.
type Pool struct {
	credentials *credentials.Store

	mu      sync.Mutex
	clients map[types.NamespacedName]*pooled
}

// pooled is the client of one target, and the way that its requests take now.
type pooled struct {
	pool    *Pool
	clients kubernetes.Interface

	mu        sync.Mutex
	target    target.Target
	route     *route
	forgotten bool
}

// errForgotten meets who still asks after a target that is not managed any more.
var errForgotten = errors.New("the hub does not manage this target any more")

// NewPool returns a Pool that takes its credentials from the store.
func NewPool(store *credentials.Store) *Pool {
	return &Pool{credentials: store, clients: map[types.NamespacedName]*pooled{}}
}

// Reader implements Provider.
func (p *Pool) Reader(ctx context.Context, t target.Target) (Reader, error) {
	clients, err := p.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return &connection{clients: clients}, nil
}

// Writer implements Provider.
func (p *Pool) Writer(ctx context.Context, t target.Target, g guard.Func) (Writer, error) {
	clients, err := p.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return &connection{clients: clients, guard: g}, nil
}

// Forget closes the connections to a target that the hub no longer manages.
func (p *Pool) Forget(key types.NamespacedName) {
	p.mu.Lock()
	have := p.clients[key]
	delete(p.clients, key)
	p.mu.Unlock()
	if have != nil {
		have.leave()
	}
}

func (p *Pool) connect(ctx context.Context, t target.Target) (kubernetes.Interface, error) {
	p.mu.Lock()
	have, ok := p.clients[t.NamespacedName]
	p.mu.Unlock()
	if !ok {
		made, err := newPooled(p)
		if err != nil {
			return nil, fmt.Errorf("connecting to the Kubernetes API of %s: %w", t, err)
		}
		p.mu.Lock()
		if have, ok = p.clients[t.NamespacedName]; !ok {
			p.clients[t.NamespacedName], have = made, made
		}
		p.mu.Unlock()
	}
	if _, err := have.follow(ctx, t); err != nil {
		return nil, err
	}
	return have.clients, nil
}

// newPooled makes a client whose requests find their way when they are made.
func newPooled(p *Pool) (*pooled, error) {
	made := &pooled{pool: p}
	var err error
	made.clients, err = newClients(made)
	return made, err
}

// newClients makes clients whose requests are guarded and go by a way of their own; the host is never dialed. They say who asks: client-go
// leaves that to whoever brings a client of HTTP.
func newClients(way http.RoundTripper) (kubernetes.Interface, error) {
	config := &rest.Config{Host: "https://target.invalid", QPS: clientQPS, Burst: clientBurst}
	return kubernetes.NewForConfigAndClient(config, &http.Client{Transport: transport.NewUserAgentRoundTripper(userAgent, guarded{way})})
}

// RoundTrip implements http.RoundTripper.
func (p *pooled) RoundTrip(request *http.Request) (*http.Response, error) {
	p.mu.Lock()
	t := p.target
	p.mu.Unlock()
	way, err := p.follow(request.Context(), t)
	if err != nil {
		return nil, err
	}
	return way.RoundTrip(request)
}

// follow makes sure that the route is the one of the credentials of now.
func (p *pooled) follow(ctx context.Context, t target.Target) (*route, error) {
	version, err := p.pool.credentials.KubeconfigVersion(ctx, t)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forgotten {
		return nil, errForgotten
	}
	p.target = t
	if p.route != nil && p.route.version == version {
		p.route.dialer.setAlternatives(t.ControlPlanes)
		return p.route, nil
	}
	config, err := p.pool.credentials.Kubeconfig(ctx, t)
	if err != nil {
		return nil, err
	}
	made, err := newRoute(config, t)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API of %s: %w", t, err)
	}
	if p.route != nil {
		p.route.retire()
	}
	p.route = made
	return made, nil
}

// leave closes the connections.
func (p *pooled) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgotten = true
	if p.route != nil {
		p.route.retire()
	}
}

// dryRunParam makes the API server try a request and change nothing.
const dryRunParam = "dryRun"

// guarded asks the guard before every request that changes anything.
type guarded struct{ next http.RoundTripper }

func (g guarded) RoundTrip(request *http.Request) (*http.Response, error) {
	if changes(request) {
		if err := guard.Check(request.Context(), request.Method+" "+request.URL.Path); err != nil {
			return nil, err
		}
	}
	return g.next.RoundTrip(request)
}

// changes says whether a request changes anything. The API server sees to it that a trial does not.
func changes(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return request.URL.Query().Get(dryRunParam) != metav1.DryRunAll
}
