// SPDX-License-Identifier: Apache-2.0

// Package dial connects to the APIs of targets: by address or by name, directly or through a proxy.
package dial

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// lookupTimeout bounds the question for the addresses of a name.
	lookupTimeout = 2 * time.Second

	// proxyTimeout bounds the way through a proxy: its own connection, and its answer about the other one.
	proxyTimeout = 10 * time.Second
)

// Dialer makes connections. Names are resolved by the hub, and what a name meant is remembered: while the name service is away, be it
// that a drain moves it, the last addresses are used.
type Dialer struct {
	timeout time.Duration
	proxy   func(*url.URL) (*url.URL, error)
	lookup  func(ctx context.Context, host string) ([]string, error)

	mu       sync.Mutex
	resolved map[string][]string
}

// New returns a Dialer that gives one address as long as timeout. A nil proxy means the one of the environment, if any.
func New(timeout time.Duration, proxy *url.URL) *Dialer {
	return &Dialer{timeout: timeout, proxy: chooser(proxy), lookup: net.DefaultResolver.LookupHost, resolved: map[string][]string{}}
}

// chooser says through which proxy to go to a URL; nil is none.
func chooser(fixed *url.URL) func(*url.URL) (*url.URL, error) {
	if fixed != nil {
		return func(*url.URL) (*url.URL, error) { return fixed, nil }
	}
	return func(to *url.URL) (*url.URL, error) { return http.ProxyFromEnvironment(&http.Request{URL: to}) }
}

// DialContext connects to HOST:PORT. A proxy is told the name as it is: it may know it better than the hub.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.connectTo(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return attentive{conn}, nil
}

func (d *Dialer) connectTo(ctx context.Context, network, address string) (net.Conn, error) {
	proxy, err := d.proxy(&url.URL{Scheme: "https", Host: address})
	switch {
	case err != nil:
		return nil, fmt.Errorf("choosing a proxy for %s: %w", address, err)
	case proxy != nil:
		return d.through(ctx, proxy, address)
	}
	return d.direct(ctx, network, address)
}

// direct tries every address that a name has, in the order of the name service.
func (d *Dialer) direct(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addresses, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var first error
	for _, ip := range addresses {
		conn, err := (&net.Dialer{Timeout: d.timeout}).DialContext(ctx, network, net.JoinHostPort(ip, port))
		if err == nil {
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

// resolve returns the addresses of a host, or those that it had when the name service was last asked with success.
func (d *Dialer) resolve(ctx context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	asked, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := d.lookup(asked, host)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && len(addresses) > 0 {
		d.resolved[host] = addresses
		return addresses, nil
	}
	if remembered := d.resolved[host]; len(remembered) > 0 {
		return remembered, nil
	}
	if err == nil {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	return nil, err
}
