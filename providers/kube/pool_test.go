// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/dial"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// apiServer is a server with TLS that notes what arrives: method and path, and the server name that was asked for.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string
	names    []string
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.names = append(s.names, r.TLS.ServerName)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/version" {
			w.Write([]byte(`{"gitVersion":"v1.35.2"}`)) //nolint:errcheck // The client tells.
			return
		}
		w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"w-1","resourceVersion":"1"}}`)) //nolint:errcheck // As above.
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func (s *apiServer) port() string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

func (s *apiServer) config(host string) *credentials.Kubeconfig {
	return &credentials.Kubeconfig{Version: "1", Config: &rest.Config{
		Host: "https://" + net.JoinHostPort(host, s.port()), TLSClientConfig: rest.TLSClientConfig{CAData: s.ca()},
	}}
}

// Case A1: where the address of the kubeconfig does not answer, a control plane does, and must prove to be the server that the
// kubeconfig names.
func TestCaseA1DialsAnotherControlPlane(t *testing.T) {
	g := NewWithT(t)
	s := newAPIServer(t) // Its certificate is for example.com, 127.0.0.1 and ::1.
	t.Run("under the name of the kubeconfig", func(t *testing.T) {
		g := NewWithT(t)
		_, err := through(t, s.config("example.com.invalid"), target.Target{ControlPlanes: []string{"127.0.0.1"}}).Version(t.Context())
		var name x509.HostnameError
		g.Expect(errors.As(err, &name)).To(BeTrue(), "%v", err)
		g.Expect(name.Host).To(Equal("example.com.invalid"), "the server that answers is not the one that was meant")
	})
	config := s.config("nowhere.invalid")
	config.Config.ServerName = "example.com"
	g.Expect(through(t, config, target.Target{ControlPlanes: []string{"127.0.0.1"}}).Version(t.Context())).To(Equal("v1.35.2"))
	g.Expect(s.names).To(Equal([]string{"example.com"}), "the name that the kubeconfig sets is kept")
}

// Case A14: where the user consents, nobody asks the server who it is, at whichever control plane.
func TestCaseA14Insecure(t *testing.T) {
	g := NewWithT(t)
	s := newAPIServer(t)
	config := s.config("elsewhere.invalid")
	config.Config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	g.Expect(through(t, config, target.Target{ControlPlanes: []string{"127.0.0.1"}}).Version(t.Context())).To(Equal("v1.35.2"))
}

// unsecured leaves a connection as it is.
func unsecured(_ context.Context, conn net.Conn) (net.Conn, error) { return conn, nil }

// A load balancer may accept connections for servers that never answer; the control planes behind it do.
func TestAServerThatAcceptsAndSaysNothingIsLeft(t *testing.T) {
	g := NewWithT(t)
	s := newAPIServer(t)
	config := s.config("127.0.0.2") // The name proves nothing here: what is at the port of the server decides.
	port := s.Listener.Addr().(*net.TCPAddr).Port
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port)))
	g.Expect(err).NotTo(HaveOccurred())
	defer silent.Close() //nolint:errcheck // Of the test.
	config.Config.ServerName = "example.com"
	g.Expect(through(t, config, target.Target{ControlPlanes: []string{"127.0.0.1"}}).Version(t.Context())).To(Equal("v1.35.2"))
}

func TestDialer(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close() //nolint:errcheck // Of the test.
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dial := func(d *dialer, ctx context.Context, address string) error {
		conn, err := d.dial(ctx, "tcp", address)
		if err == nil {
			conn.Close() //nolint:errcheck // As above.
		}
		return err
	}
	d := newDialer(nil, unsecured)
	g.Expect(dial(d, t.Context(), "127.0.0.1:"+port)).To(Succeed())
	g.Expect(dial(d, t.Context(), "one.invalid:"+port)).To(MatchError(ContainSubstring("one.invalid")))
	d.setAlternatives([]string{"two.invalid", "127.0.0.1"})
	g.Expect(dial(d, t.Context(), "one.invalid:"+port)).To(Succeed(), "every alternative is tried")
	d.setAlternatives([]string{"two.invalid"})
	g.Expect(dial(d, t.Context(), "one.invalid:"+port)).To(MatchError(ContainSubstring("one.invalid")), "the error is about the address of the kubeconfig")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d.setAlternatives([]string{"127.0.0.1"})
	g.Expect(dial(d, ended, "one.invalid:"+port)).NotTo(Succeed())
	g.Expect(dial(d, t.Context(), "no-port")).NotTo(Succeed())
}

// A connection is begun with the host that answered last, so what is away costs its timeout once.
func TestDialerBeginsWithWhoAnswered(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close() //nolint:errcheck // Of the test.
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	d := newDialer(nil, unsecured)
	for _, row := range []struct {
		host, why    string
		alternatives []string
		want         string
	}{
		{"one.invalid", "the only one that answers", []string{"two.invalid", "127.0.0.1"}, "127.0.0.1"},
		{"localhost", "it goes before the address of the kubeconfig", []string{"two.invalid", "127.0.0.1"}, "127.0.0.1"},
		{"localhost", "it is no control plane any more", []string{"two.invalid"}, "localhost"},
		{"localhost", "and does not come back by itself", []string{"127.0.0.1"}, "localhost"},
	} {
		d.setAlternatives(row.alternatives)
		conn, err := d.dial(t.Context(), "tcp", net.JoinHostPort(row.host, port))
		g.Expect(err).NotTo(HaveOccurred(), row.why)
		conn.Close() //nolint:errcheck // As above.
		g.Expect(d.answered).To(Equal(row.want), row.why)
	}
}

func TestDialerHosts(t *testing.T) {
	for name, row := range map[string]struct {
		answered string
		want     []string
	}{
		"nobody has answered":            {"", []string{"lb", "cp-1", "cp-2"}},
		"the address of the kubeconfig":  {"lb", []string{"lb", "cp-1", "cp-2"}},
		"a control plane":                {"cp-2", []string{"cp-2", "lb", "cp-1"}},
		"one that is not among them now": {"cp-9", []string{"lb", "cp-1", "cp-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := &dialer{answered: row.answered, alternatives: []string{"cp-1", "cp-2"}}
			g.Expect(d.hosts("lb")).To(Equal(row.want))
			g.Expect(d.alternatives).To(Equal([]string{"cp-1", "cp-2"}), "the list of everybody stays")
		})
	}
}

// Reading needs no guard. What changes anything does not leave this process without one.
func TestGuardedTransport(t *testing.T) {
	s := newAPIServer(t)
	nodes := through(t, s.config("127.0.0.1"), target.Target{}).clients.CoreV1().Nodes()
	for name, do := range map[string]func(context.Context) error{
		"PATCH": func(ctx context.Context) error {
			_, err := nodes.Patch(ctx, "w-1", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"POST": func(ctx context.Context) error {
			_, err := nodes.Create(ctx, &corev1.Node{}, metav1.CreateOptions{})
			return err
		},
		"PUT": func(ctx context.Context) error {
			_, err := nodes.Update(ctx, node(), metav1.UpdateOptions{})
			return err
		},
		"DELETE": func(ctx context.Context) error { return nodes.Delete(ctx, "w-1", metav1.DeleteOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := len(s.requests)
			err := do(t.Context())
			g.Expect(err).To(MatchError(guard.ErrNotAllowed))
			g.Expect(Classify(err)).To(BeEquivalentTo("Interrupted"))
			err = do(guard.With(t.Context(), func(context.Context) error { return errors.New("the lock is gone") }))
			g.Expect(err).To(MatchError(ContainSubstring("the lock is gone")))
			g.Expect(s.requests).To(HaveLen(before))
			g.Expect(do(guard.With(t.Context(), func(context.Context) error { return nil }))).To(Succeed())
			g.Expect(s.requests).To(HaveLen(before + 1))
			g.Expect(s.requests[before]).To(HavePrefix(name + " /api/v1/nodes"))
		})
	}
	t.Run("GET", func(t *testing.T) {
		_, err := nodes.Get(t.Context(), "w-1", metav1.GetOptions{})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})
}

// answering is a connection to an API server that answers requests as it is told.
func answering(t *testing.T, answer http.HandlerFunc) *connection {
	t.Helper()
	s := &apiServer{Server: httptest.NewTLSServer(answer)}
	t.Cleanup(s.Close)
	return through(t, s.config("127.0.0.1"), target.Target{})
}

// through is a connection by one route.
func through(t *testing.T, config *credentials.Kubeconfig, to target.Target) *connection {
	t.Helper()
	g := NewWithT(t)
	way, err := newRoute(config, to)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(way.retire)
	clients, err := newClients(way)
	g.Expect(err).NotTo(HaveOccurred())
	return &connection{clients: clients}
}

// Audit logs of targets tell the hub from other clients by this name.
func TestRequestsSayWhoAsks(t *testing.T) {
	g := NewWithT(t)
	var agents []string
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		agents = append(agents, r.UserAgent())
		w.Write([]byte(`{"gitVersion":"v1.35.2"}`)) //nolint:errcheck // The client tells.
	})
	_, err := c.Version(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(agents).To(Equal([]string{"ichor-hub"}))
}

func TestVersion(t *testing.T) {
	for name, row := range map[string]struct {
		status           int
		body             string
		want, err, class string
	}{
		"a version":       {200, `{"major":"1","minor":"35","gitVersion":"v1.35.2","platform":"linux/amd64"}`, "v1.35.2", "", ""},
		"no JSON":         {200, "<html>", "", "reading the version of the API server: invalid character", "Retryable"},
		"nobody may read": {403, "", "", "reading the version of the API server: ", "Permanent"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(row.status)
				w.Write([]byte(row.body)) //nolint:errcheck // The client tells.
			})
			version, err := c.Version(t.Context())
			g.Expect(version).To(Equal(row.want))
			if row.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(HavePrefix(row.err)))
			g.Expect(Classify(err)).To(BeEquivalentTo(row.class))
		})
	}
}

// A server that takes the question and never answers is given up when the context ends, and not when somebody else's patience does.
func TestVersionHeedsItsContext(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	c := answering(t, func(http.ResponseWriter, *http.Request) {
		cancel() // The question has arrived.
		<-over
	})
	t.Cleanup(func() { close(over) })
	ended := make(chan error, 1)
	go func() {
		_, err := c.Version(ctx)
		ended <- err
	}()
	var err error
	g.Eventually(ended, "10s").Should(Receive(&err))
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(Trouble(err)).To(Equal("no answer"))
}

func TestErrorsMean(t *testing.T) {
	nodes, leases := corev1.Resource("nodes"), coordinationv1.Resource("leases")
	asked := func(err error) error { return &url.Error{Op: "Get", URL: "https://10.0.0.10:6443/version", Err: err} }
	for name, row := range map[string]struct {
		err            error
		class, trouble string
	}{
		"forbidden":                         {apierrors.NewForbidden(nodes, "w-1", errors.New("RBAC")), "Permanent", `nodes "w-1" is forbidden: RBAC`},
		"unauthorized":                      {apierrors.NewUnauthorized("who?"), "Permanent", "who?"},
		"bad request":                       {apierrors.NewBadRequest("what?"), "Permanent", "what?"},
		"not found":                         {apierrors.NewNotFound(nodes, "w-1"), "Permanent", `nodes "w-1" not found`},
		"busy":                              {apierrors.NewTooManyRequests("later", 1), "Retryable", "later"},
		"broken":                            {apierrors.NewInternalError(errors.New("x")), "Retryable", "Internal error occurred: x"},
		"network":                           {&net.OpError{Op: "dial", Err: errors.New("refused")}, "Retryable", "no answer"},
		"fenced":                            {guard.ErrNotAllowed, "Interrupted", "no answer"},
		"invalid":                           {credentials.ErrInvalid, "Retryable", "invalid"},
		"undecided":                         {fmt.Errorf("x: %w", guard.ErrUndecided), "Retryable", "no answer"},
		"undecided, by way of the client":   {asked(fmt.Errorf("PATCH: %w", guard.ErrUndecided)), "Retryable", "no answer"},
		"undecided, the lock is forbidden":  {fmt.Errorf("%w: %w", guard.ErrUndecided, apierrors.NewForbidden(leases, "c1", errors.New("RBAC"))), "Retryable", `leases.coordination.k8s.io "c1" is forbidden: RBAC`},
		"undecided, the token has ended":    {fmt.Errorf("%w: %w", guard.ErrUndecided, apierrors.NewUnauthorized("who?")), "Retryable", "who?"},
		"a proxy that refuses":              {asked(&dial.ProxyError{Proxy: "http://p:3128", Answer: "403 Forbidden", Cause: errors.New("x")}), "Retryable", "the proxy http://p:3128 answers: 403 Forbidden"},
		"a proxy that is away":              {asked(&dial.ProxyError{Proxy: "http://p:3128", Cause: errors.New("refused")}), "Retryable", "the proxy http://p:3128 does not connect"},
		"certificate, expired":              {asked(x509.CertificateInvalidError{Reason: x509.Expired}), "Retryable", "the certificate of the server has expired or is not yet valid"},
		"certificate, of another authority": {asked(x509.UnknownAuthorityError{}), "Retryable", "the certificate of the server is not signed by the CA of the file"},
		"certificate, for another name":     {asked(x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"a"}}, Host: "b"}), "Retryable", "the certificate of the server is for another address"},
		"certificate, the server refuses":   {asked(errors.New("remote error: tls: bad certificate")), "Retryable", "the server does not accept the client certificate"},
		"certificate, in the Secret":        {fmt.Errorf("kubeconfig is %w: client-certificate-data of user %q: no PEM block found", credentials.ErrInvalid, "x"), "Retryable", `kubeconfig is invalid: client-certificate-data of user "x": no PEM block found`},
		"certificate, in an answer":         {apierrors.NewBadRequest("no such certificate"), "Permanent", "no such certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Classify(row.err)).To(BeEquivalentTo(row.class))
			g.Expect(Trouble(row.err)).To(Equal(row.trouble))
			g.Expect(Rejected(row.err)).To(Equal(slices.Contains([]string{"unauthorized", "certificate, of another authority", "certificate, the server refuses"}, name)))
		})
	}
}
