// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/local"
	"ichor.maesh.dev/hub/hub/server"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/hub/standalone/pki"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/service/table"
)

// certificate is that of every server of these tests.
type certificate struct {
	pair  tls.Certificate
	roots *x509.CertPool
}

func newCertificate(t *testing.T) *certificate {
	t.Helper()
	g := NewWithT(t)
	files := pki.SelfSignedIn(t.TempDir())
	g.Expect(files.Ensure([]string{"127.0.0.1"}, time.Now())).To(Succeed())
	pair, err := tls.LoadX509KeyPair(files.Pair, files.Pair)
	g.Expect(err).NotTo(HaveOccurred())
	given, err := os.ReadFile(files.Certificate)
	g.Expect(err).NotTo(HaveOccurred())
	c := &certificate{pair: pair, roots: x509.NewCertPool()}
	g.Expect(c.roots.AppendCertsFromPEM(given)).To(BeTrue())
	return c
}

// GetCertificate implements server.Certificates.
func (c *certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &c.pair, nil
}

// Start implements server.Certificates: it does not change.
func (c *certificate) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// clients speak to a server over an HTTP client.
func clients(client *http.Client, url string, options ...connect.ClientOption) table.Clients {
	return table.Clients{
		Operations: ichorv1alpha1connect.NewOperationServiceClient(client, url, options...),
		Clusters:   ichorv1alpha1connect.NewClusterServiceClient(client, url, options...),
		Hub:        ichorv1alpha1connect.NewHubServiceClient(client, url, options...),
		Audit:      ichorv1alpha1connect.NewAuditServiceClient(client, url, options...),
	}
}

// inProcess is how the command line speaks to itself.
func inProcess(t *testing.T, services *service.Server) table.Clients {
	t.Helper()
	conn := local.Serve(services, logr.Discard())
	t.Cleanup(func() { NewWithT(t).Expect(conn.Close()).To(Succeed()) })
	return clients(conn.HTTPClient(), conn.URL())
}

// network is how others speak to a hub: over TLS, by a version of HTTP and a protocol.
func (c *certificate) network(version int, options ...connect.ClientOption) table.Transport {
	return func(t *testing.T, services *service.Server) table.Clients {
		t.Helper()
		g := NewWithT(t)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		g.Expect(err).NotTo(HaveOccurred())
		s, err := server.New(server.Options{Services: services, Listener: listener, Certificates: c, Log: logr.Discard()})
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		protocols := &http.Protocols{}
		protocols.SetHTTP1(version == 1)
		protocols.SetHTTP2(version == 2)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.roots}, Protocols: protocols}
		t.Cleanup(func() {
			transport.CloseIdleConnections()
			cancel()
			NewWithT(t).Expect(<-ended).To(Succeed())
		})
		return clients(&http.Client{Transport: transport}, s.URL(), options...)
	}
}

// transports are all ways to speak to a hub.
func transports(t *testing.T) map[string]table.Transport {
	t.Helper()
	c := newCertificate(t)
	return map[string]table.Transport{
		"in process":   inProcess,
		"Connect":      c.network(2),
		"Connect, GET": c.network(1, connect.WithHTTPGet()),
		"gRPC":         c.network(2, connect.WithGRPC()),
		"gRPC-Web":     c.network(1, connect.WithGRPCWeb()),
		"JSON":         c.network(1, connect.WithProtoJSON()),
		"JSON, GET":    c.network(1, connect.WithProtoJSON(), connect.WithHTTPGet()),
	}
}

// One table of requests has the same answers whichever way it is sent, every refusal included.
func TestTransportsAnswerTheSame(t *testing.T) {
	g := NewWithT(t)
	want := table.Run(t, plain)
	g.Expect(want).NotTo(BeEmpty())
	for name, transport := range transports(t) {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(table.Run(t, transport)).To(Equal(want))
		})
	}
}
