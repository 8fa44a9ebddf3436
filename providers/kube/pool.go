// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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

// Pool is the Provider that reaches real API servers: one client per target, made when first needed and anew when the
// credentials change.
type Pool struct {
	credentials *credentials.Store

	mu      sync.Mutex
	clients map[types.NamespacedName]*pooled
}

type pooled struct {
	version string
	clients kubernetes.Interface
	http    *http.Client
	dialer  *dialer
}

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
	defer p.mu.Unlock()
	p.drop(key)
}

func (p *Pool) connect(ctx context.Context, t target.Target) (kubernetes.Interface, error) {
	config, err := p.credentials.Kubeconfig(ctx, t)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if have, ok := p.clients[t.NamespacedName]; ok && have.version == config.Version {
		have.dialer.setAlternatives(t.ControlPlanes)
		return have.clients, nil
	}
	made, err := open(config, t)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API of %s: %w", t, err)
	}
	p.drop(t.NamespacedName)
	p.clients[t.NamespacedName] = made
	return made.clients, nil
}

func (p *Pool) drop(key types.NamespacedName) {
	if have, ok := p.clients[key]; ok {
		have.http.CloseIdleConnections()
		delete(p.clients, key)
	}
}

func open(from *credentials.Kubeconfig, t target.Target) (*pooled, error) {
	config := rest.CopyConfig(from.Config)
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	d := &dialer{}
	d.setAlternatives(t.ControlPlanes)
	config.Dial = d.dial
	if config.ServerName == "" { // Whichever control plane answers, it must prove to be the server that the kubeconfig names.
		config.ServerName = server.Hostname()
	}
	config.QPS, config.Burst = clientQPS, clientBurst
	config.UserAgent = "ichor-hub"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return guarded{next} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return &pooled{version: from.Version, clients: clients, http: client, dialer: d}, nil
}

// dialer connects to the address of the kubeconfig and, if that does not answer, to the known control planes at the same port. It
// begins with the one that answered last.
type dialer struct {
	mu           sync.Mutex
	alternatives []string
	answered     string
}

func (d *dialer) setAlternatives(hosts []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.alternatives = hosts
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var first error
	for _, host := range d.hosts(host) {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, net.JoinHostPort(host, port))
		if err == nil {
			d.mu.Lock()
			d.answered = host
			d.mu.Unlock()
			return conn, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// hosts are the addresses to try, in order.
func (d *dialer) hosts(configured string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	hosts := append([]string{configured}, d.alternatives...)
	if i := slices.Index(hosts, d.answered); i > 0 {
		hosts = append([]string{d.answered}, slices.Delete(hosts, i, i+1)...)
	}
	return hosts
}

// guarded asks the guard before every request that changes anything.
type guarded struct{ next http.RoundTripper }

func (g guarded) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		if err := guard.Check(request.Context(), request.Method+" "+request.URL.Path); err != nil {
			return nil, err
		}
	}
	return g.next.RoundTrip(request)
}
