// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/link"
	"ichor.maesh.dev/hub/hub/auth/methods"
	"ichor.maesh.dev/hub/hub/auth/session"
	"ichor.maesh.dev/hub/hub/manager"
	"ichor.maesh.dev/hub/hub/standalone/pki"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/test/framework"
)

// front is where hubs serve, one after the other: address, certificate and sessions outlive each of them.
type front struct {
	address string
	files   pki.SelfSigned
	keys    session.Keys
	links   link.Store
}

// newFront prepares a front whose files are in a directory.
func newFront(ctx context.Context, dir string) (*front, error) {
	f := &front{files: pki.SelfSignedIn(dir), links: link.Store{Dir: filepath.Join(dir, "links")}}
	if err := f.files.Ensure([]string{"127.0.0.1", "localhost"}, time.Now()); err != nil {
		return nil, err
	}
	var err error
	if f.address, err = framework.FreeAddress(ctx); err != nil {
		return nil, err
	}
	f.keys, err = session.FileKeys(filepath.Join(dir, "session.key"))
	return f, err
}

// serving is what a hub is told, and the listener by which it is cut off.
func (f *front) serving() (*manager.Serving, *mortalListener, error) {
	certificates, err := certwatcher.New(f.files.Pair, f.files.Pair)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the hub's certificate: %w", err)
	}
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the address of the hub: %w", err)
	}
	mortal := &mortalListener{Listener: listener}
	return &manager.Serving{
		Listener: mortal, Certificates: certificates, Hub: &pb.GetHubResponse{Version: "test", Standalone: true},
		SignIn: methods.Options{Keys: f.keys, Link: &link.Options{Store: f.links}},
	}, mortal, nil
}

// URL is where the hub serves, whichever it is.
func (h *Harness) URL() string { return "https://" + h.front.address }

// Certificate is the file with the hub's certificate, which signs itself.
func (h *Harness) Certificate() string { return h.front.files.Certificate }

// HTTPClient trusts the hub, and sends a bearer token if it is given one. It speaks HTTP/2 unless HTTP/1 is asked for.
func (h *Harness) HTTPClient(token string, version int) (*http.Client, error) {
	given, err := os.ReadFile(h.Certificate())
	if err != nil {
		return nil, fmt.Errorf("reading the hub's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(given) {
		return nil, errors.New("reading the hub's certificate: there is none in the file")
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(version == 1)
	protocols.SetHTTP2(version != 1)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Protocols: protocols}
	return &http.Client{Transport: bearer{token: token, next: transport}}, nil
}

// Token is a session of a user, as it is begun by a link. The user has the rights that the management API gives to the name and the groups.
func (h *Harness) Token(user string, groups ...string) (string, error) {
	sessions := session.Sessions{Keys: h.front.keys, Lifetime: time.Hour, Now: time.Now}
	token, _, err := sessions.Token(auth.Caller{Name: user, Groups: auth.WithAuthenticated(groups), Method: auth.LinkMethod})
	return token, err
}

// Link is a link that signs in once, as the administrator.
func (h *Harness) Link() (string, error) {
	code, err := h.front.links.Create(time.Now(), 0)
	if err != nil {
		return "", err
	}
	return link.URL(h.URL(), code), nil
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (b bearer) CloseIdleConnections() {
	if next, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}

// mortalListener cuts its connections when the hub is killed, as the kernel does.
type mortalListener struct {
	net.Listener

	mu     sync.Mutex
	killed bool
	conns  []net.Conn
}

// Accept implements net.Listener.
func (l *mortalListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	l.conns = append(l.conns, conn)
	return &mortalConn{Conn: conn, of: l}, nil
}

// kill closes everything at once.
func (l *mortalListener) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = true
	_ = l.Close()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}

// mortalConn is forgotten when it is closed.
type mortalConn struct {
	net.Conn

	of *mortalListener
}

// Close implements net.Conn.
func (c *mortalConn) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.conns = slices.DeleteFunc(c.of.conns, func(conn net.Conn) bool { return conn == c.Conn })
	return c.Conn.Close()
}
