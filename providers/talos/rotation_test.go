// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	siderox509 "github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/target"
)

// secured is a machine that serves over mTLS, and knows its callers by the serial number of their certificate.
type secured struct {
	machineapi.UnimplementedMachineServiceServer

	ca      *siderox509.CertificateAuthority
	address string

	mu      sync.Mutex
	callers []string
	open    int
	pulling chan struct{} // Receives when a pull has begun.
	pulled  chan struct{} // Closed to let pulls end.
}

func (s *secured) Version(ctx context.Context, _ *emptypb.Empty) (*machineapi.VersionResponse, error) {
	p, _ := peer.FromContext(ctx)
	s.mu.Lock()
	s.callers = append(s.callers, p.AuthInfo.(grpccredentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName)
	s.mu.Unlock()
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{Version: &machineapi.VersionInfo{Tag: "v1.13.9"}}}}, nil
}

// securedImages is the service of the same machine whose methods have the names of others.
type securedImages struct {
	machineapi.UnimplementedImageServiceServer

	*secured
}

func (s securedImages) Pull(_ *machineapi.ImageServicePullRequest, stream grpc.ServerStreamingServer[machineapi.ImageServicePullResponse]) error {
	s.pulling <- struct{}{}
	<-s.pulled
	return stream.Send(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_Name{Name: "x@sha256:1"}})
}

// countedListener counts the connections that are open.
type countedListener struct {
	net.Listener

	s *secured
}

type countedConn struct {
	net.Conn

	over func()
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.s.count(1)
	return countedConn{conn, sync.OnceFunc(func() { l.s.count(-1) })}, nil
}

func (c countedConn) Close() error {
	c.over()
	return c.Conn.Close()
}

func (s *secured) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
}

func (s *secured) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func newSecured(t *testing.T, host string, names ...string) *secured {
	t.Helper()
	g := NewWithT(t)
	ca, err := siderox509.NewSelfSignedCertificateAuthority(siderox509.ECDSA(true))
	g.Expect(err).NotTo(HaveOccurred())
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skipf("this machine has no %s: %s", host, err)
	}
	s := &secured{ca: ca, address: listener.Addr().String(), pulling: make(chan struct{}, 1), pulled: make(chan struct{})}
	pair, err := siderox509.NewKeyPair(ca, siderox509.IPAddresses([]net.IP{net.ParseIP(host)}), siderox509.DNSNames(names),
		siderox509.NotBefore(time.Now().Add(-time.Minute)), siderox509.NotAfter(time.Now().Add(time.Hour)),
		siderox509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
	g.Expect(err).NotTo(HaveOccurred())
	pool := stdx509.NewCertPool()
	pool.AddCert(ca.Crt)
	server := grpc.NewServer(grpc.Creds(grpccredentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{*pair.Certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13,
	})))
	machineapi.RegisterMachineServiceServer(server, s)
	machineapi.RegisterImageServiceServer(server, securedImages{secured: s})
	go server.Serve(countedListener{listener, s}) //nolint:errcheck // Until it is stopped.
	t.Cleanup(server.Stop)
	return s
}

// talosconfig is for a client of a name, at endpoints.
func (s *secured) talosconfig(t *testing.T, name string, endpoints ...string) []byte {
	t.Helper()
	pair, err := siderox509.NewKeyPair(s.ca, siderox509.CommonName(name), siderox509.Organization("os:admin"),
		siderox509.NotBefore(time.Now().Add(-time.Minute)), siderox509.NotAfter(time.Now().Add(time.Hour)),
		siderox509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, "contexts: {c1: {endpoints: [%q], ca: %s, crt: %s, key: %s}}\n",
		strings.Join(endpoints, `", "`), encode(s.ca.CrtPEM), encode(pair.CrtPEM), encode(pair.KeyPEM))
}

func version(ctx context.Context, reader Reader) (string, error) {
	m := Machine{}
	err := reader.(*connection).readVersion(ctx, &m)
	return m.Version, err
}

// Case A11: calls after a Secret was replaced use the new one; one that is under way comes to its end, and takes the old connection with
// it.
func TestCaseA11ReplacedTalosconfig(t *testing.T) {
	g := NewWithT(t)
	s := newSecured(t, "127.0.0.2")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-talosconfig"},
		Data:       map[string][]byte{"talosconfig": s.talosconfig(t, "one", s.address)},
	}
	c := fake.NewClientBuilder().WithObjects(secret).Build()
	pool := NewPool(&credentials.Store{Reader: c})
	c1 := target.Target{NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}, TalosconfigSecret: "c1-talosconfig"}
	writer, err := pool.Writer(t.Context(), c1, allowed)
	g.Expect(err).NotTo(HaveOccurred())
	type result struct {
		image string
		err   error
	}
	ended := make(chan result, 1)
	go func() {
		image, err := writer.PullImage(t.Context(), "10.0.0.1", "x")
		ended <- result{image, err}
	}()
	g.Eventually(s.pulling, "10s").Should(Receive())

	for _, name := range []string{"two", "three"} {
		secret.Data["talosconfig"] = s.talosconfig(t, name, s.address)
		g.Expect(c.Update(t.Context(), secret)).To(Succeed())
		reader, err := pool.Reader(t.Context(), c1)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(version(t.Context(), reader)).To(Equal("v1.13.9"))
	}
	g.Expect(s.callers).To(Equal([]string{"two", "three"}))
	g.Eventually(s.connections).Should(Equal(2), "the last one, and the one that pulls")
	g.Consistently(ended, "50ms").ShouldNot(Receive())
	close(s.pulled)
	g.Eventually(ended, "10s").Should(Receive(Equal(result{image: "x@sha256:1"})))
	g.Eventually(s.connections).Should(Equal(1))
	pool.Forget(c1.NamespacedName)
	g.Eventually(s.connections).Should(BeZero())
}

// Endpoints are names or addresses of either family, with a port or without, and brackets where they belong.
func TestEndpoints(t *testing.T) {
	for name, row := range map[string]struct{ host, endpoint string }{
		"an address":         {"127.0.0.2", "127.0.0.2:PORT"},
		"an address of IPv6": {"::1", "[::1]:PORT"},
		"a name":             {"127.0.0.1", "localhost:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newSecured(t, row.host, "localhost")
			_, port, _ := net.SplitHostPort(s.address)
			config, err := credentials.ParseTalosconfig(s.talosconfig(t, "one", "10.0.0.1"), "", "c1") // The rules for endpoints are another's.
			g.Expect(err).NotTo(HaveOccurred())
			for _, endpoints := range [][]string{{row.endpoint}, {row.endpoint, row.endpoint}} {
				config.Context.Endpoints = nil
				for _, endpoint := range endpoints {
					config.Context.Endpoints = append(config.Context.Endpoints, strings.ReplaceAll(endpoint, "PORT", port))
				}
				reader, closeReader, err := Open(config)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(version(t.Context(), reader)).To(Equal("v1.13.9"))
				closeReader()
			}
		})
	}
	NewWithT(t).Expect(unbracketed([]string{"[fd00::1]", "fd00::1", "[fd00::1]:50000", "a.example"})).To(Equal([]string{"fd00::1", "fd00::1", "[fd00::1]:50000", "a.example"}))
}

// What each side says about certificates is told as that, and what is not the cluster's fault is not called that (A10, A12).
func TestCaseA12RejectedCredentials(t *testing.T) {
	g := NewWithT(t)
	s, other := newSecured(t, "127.0.0.2"), newSecured(t, "127.0.0.3")
	ask := func(data []byte, at string) error {
		config, err := credentials.ParseTalosconfig(data, "", "c1")
		g.Expect(err).NotTo(HaveOccurred())
		config.Context.Endpoints = []string{at}
		reader, closeReader, err := Open(config)
		g.Expect(err).NotTo(HaveOccurred())
		defer closeReader()
		_, err = version(t.Context(), reader)
		return err
	}
	err := ask(other.talosconfig(t, "one", other.address), s.address)
	g.Expect(Trouble(err)).To(Equal("the certificate of the server is not signed by the CA of the file"))
	g.Expect(Rejected(err)).To(BeTrue())

	config, err := credentials.ParseTalosconfig(other.talosconfig(t, "one", s.address), "", "c1")
	g.Expect(err).NotTo(HaveOccurred())
	// It trusts the machine, which does not trust it.
	config.Context.CA = base64.StdEncoding.EncodeToString(s.ca.CrtPEM)
	reader, closeReader, err := Open(config)
	g.Expect(err).NotTo(HaveOccurred())
	defer closeReader()
	_, err = version(t.Context(), reader)
	g.Expect(Trouble(err)).To(HavePrefix("the server does not accept the client certificate"))
	g.Expect(Rejected(err)).To(BeTrue())
}
