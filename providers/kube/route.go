// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/dial"
	"ichor.maesh.dev/hub/providers/target"
)

const userAgent = "ichor-hub"

// idleConnections are kept per target; one is enough for HTTP/2.
const idleConnections = 4

// route is the way to an API server with one version of its credentials. Its transport is its own: client-go would keep one per
// configuration in a cache for the whole process.
type route struct {
	version   string
	server    *url.URL
	dialer    *dialer
	transport *http.Transport
	next      http.RoundTripper // Adds the user's credentials.

	mu      sync.Mutex
	running int
	retired bool
	conns   map[net.Conn]struct{}
}

func newRoute(from *credentials.Kubeconfig, t target.Target) (*route, error) {
	config := rest.CopyConfig(from.Config)
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" { // Whichever control plane answers, it must prove to be the server that the kubeconfig names.
		config.ServerName = server.Hostname()
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	proxy, err := proxyOf(config, server)
	if err != nil {
		return nil, err
	}
	r := &route{version: from.Version, server: server, conns: map[net.Conn]struct{}{}}
	r.dialer = newDialer(proxy, r.secure)
	r.dialer.setAlternatives(t.ControlPlanes)
	r.transport = utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: tlsConfig, DialTLSContext: r.dial, MaxIdleConnsPerHost: idleConnections, DisableCompression: config.DisableCompression,
	})
	r.transport.Proxy = nil // The dialer goes through it, so that the other control planes are reached that way, too.
	if r.next, err = rest.HTTPWrappersForConfig(config, r.transport); err != nil {
		return nil, err
	}
	return r, nil
}

// proxyOf is the proxy that the kubeconfig names, or nil.
func proxyOf(config *rest.Config, server *url.URL) (*url.URL, error) {
	if config.Proxy == nil {
		return nil, nil
	}
	return config.Proxy(&http.Request{URL: server})
}

// RoundTrip implements http.RoundTripper for requests to any host: they all go to the server of the route.
func (r *route) RoundTrip(request *http.Request) (*http.Response, error) {
	directed := request.Clone(request.Context())
	directed.URL.Scheme, directed.URL.Host, directed.Host = r.server.Scheme, r.server.Host, ""
	if prefix := strings.TrimSuffix(r.server.Path, "/"); prefix != "" {
		directed.URL.Path, directed.URL.RawPath = prefix+directed.URL.Path, ""
	}
	r.enter()
	response, err := r.next.RoundTrip(directed)
	if err != nil {
		r.exit()
		return nil, err
	}
	response.Body = &lastRead{ReadCloser: response.Body, over: sync.OnceFunc(r.exit)}
	return response, nil
}

func (r *route) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running++
}

func (r *route) exit() {
	r.mu.Lock()
	r.running--
	r.mu.Unlock()
	r.closeIfOver()
}

// retire closes the connections, or lets the requests that use them come to their end first.
func (r *route) retire() {
	r.mu.Lock()
	r.retired = true
	r.mu.Unlock()
	r.closeIfOver()
}

// closeIfOver closes the connections of a retired route that has no request left. An HTTP/2 transport would keep one that has just become
// idle.
func (r *route) closeIfOver() {
	r.mu.Lock()
	over := r.retired && r.running == 0
	conns := slices.Collect(maps.Keys(r.conns))
	r.mu.Unlock()
	if !over {
		return
	}
	r.transport.CloseIdleConnections()
	for _, conn := range conns {
		conn.Close() //nolint:errcheck // Nothing is lost with it.
	}
}

// dial makes a connection to whichever server proves to be the right one.
func (r *route) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return r.dialer.dial(ctx, network, address)
}

// secure makes a connection one that the route knows until it is closed, and has the server prove who it is. A load balancer may accept
// connections for servers that never answer, so this has a time of its own.
func (r *route) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	known := &knownConn{Conn: conn, route: r}
	r.mu.Lock()
	r.conns[known] = struct{}{}
	r.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	secured := tls.Client(known, r.transport.TLSClientConfig.Clone())
	if err := secured.HandshakeContext(bounded); err != nil {
		known.Close() //nolint:errcheck // Nothing was sent.
		return nil, err
	}
	return secured, nil
}

// knownConn is a connection of a route.
type knownConn struct {
	net.Conn

	route *route
}

// Close implements net.Conn.
func (c *knownConn) Close() error {
	c.route.mu.Lock()
	delete(c.route.conns, c)
	c.route.mu.Unlock()
	return c.Conn.Close()
}

// lastRead is the body of a response that tells when it has been read.
type lastRead struct {
	io.ReadCloser

	over func()
}

// Close implements io.Closer.
func (b *lastRead) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}

// dialer connects to the address of the kubeconfig and, if that does not answer, to the known control planes at the same port. It
// begins with the one that answered last.
type dialer struct {
	addresses *dial.Dialer
	secure    func(context.Context, net.Conn) (net.Conn, error)

	mu           sync.Mutex
	alternatives []string
	answered     string
}

func newDialer(proxy *url.URL, secure func(context.Context, net.Conn) (net.Conn, error)) *dialer {
	return &dialer{addresses: dial.New(dialTimeout, proxy), secure: secure}
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
	var first, rejected error
	for _, host := range d.hosts(host) {
		conn, err := d.addresses.DialContext(ctx, network, net.JoinHostPort(host, port))
		if err == nil {
			if conn, err = d.secure(ctx, conn); err == nil {
				d.mu.Lock()
				d.answered = host
				d.mu.Unlock()
				return conn, nil
			}
			if rejected == nil && !isTimeout(err) {
				rejected = err // Whoever answers and is not the right one tells more than whoever does not answer.
			}
		}
		first = cmp.Or(first, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, cmp.Or(rejected, first)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
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

// Open reads the target of a kubeconfig that is in no Secret yet, until it is closed.
func Open(config *credentials.Kubeconfig) (Reader, func(), error) {
	way, err := newRoute(config, target.Target{})
	if err != nil {
		return nil, nil, err
	}
	clients, err := newClients(way)
	if err != nil {
		return nil, nil, err
	}
	return &connection{clients: clients}, way.retire, nil
}
