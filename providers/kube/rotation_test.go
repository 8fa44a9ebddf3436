// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/target"
)

// tokens is an API server that tells which token it was asked with, and which connections it has.
type tokens struct {
	*httptest.Server

	mu    sync.Mutex
	seen  []string
	conns map[net.Conn]http.ConnState
	hold  chan struct{} // Closed to let requests for /held go on.
}

func newTokens(t *testing.T) *tokens {
	t.Helper()
	s := &tokens{conns: map[net.Conn]http.ConnState{}, hold: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Header.Get("Authorization"))
		s.mu.Unlock()
		if r.URL.Path == "/held" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-s.hold
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"gitVersion":"v1.35.2"}`)) //nolint:errcheck // The client tells.
	}))
	s.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns[conn] = state
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// open is how many connections are not closed, and how many there have been.
func (s *tokens) open() (open, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.conns {
		if state != http.StateClosed {
			open++
		}
	}
	return open, len(s.conns)
}

func (s *tokens) kubeconfig(token string) []byte {
	ca := base64.StdEncoding.EncodeToString((&apiServer{Server: s.Server}).ca())
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"x",
		"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"users":[{"name":"x","user":{"token":%q}}],
		"clusters":[{"name":"x","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, token, s.URL, ca)
}

// Case A11: what was handed out before a Secret was replaced goes on with the new one, and nothing of the old one is left.
func TestCaseA11ReplacedKubeconfig(t *testing.T) {
	g := NewWithT(t)
	s := newTokens(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-kubeconfig"}, Data: map[string][]byte{"value": s.kubeconfig("one")},
	}
	c := fake.NewClientBuilder().WithObjects(secret).Build()
	pool := NewPool(&credentials.Store{Reader: c})
	c1 := target.Target{NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}, KubeconfigSecret: "c1-kubeconfig"}
	writer, err := pool.Writer(t.Context(), c1, nil) // As a drain that takes its time has it.
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(writer.Version(t.Context())).To(Equal("v1.35.2"))
	g.Expect(writer.Version(t.Context())).To(Equal("v1.35.2"))
	_, all := s.open()
	g.Expect(all).To(Equal(1), "a connection is kept")
	held, err := pool.clients[c1.NamespacedName].clients.Discovery().RESTClient().Get().AbsPath("/held").Stream(t.Context())
	g.Expect(err).NotTo(HaveOccurred())

	for _, token := range []string{"two", "three", "four"} {
		secret.Data["value"] = s.kubeconfig(token)
		g.Expect(c.Update(t.Context(), secret)).To(Succeed())
		g.Expect(writer.Version(t.Context())).To(Equal("v1.35.2"))
	}
	g.Expect(s.seen).To(Equal([]string{"Bearer one", "Bearer one", "Bearer one", "Bearer two", "Bearer three", "Bearer four"}))
	g.Eventually(func() int { open, _ := s.open(); return open }).Should(Equal(2), "the last one, and the first one in which a request is under way")

	close(s.hold)
	g.Expect(held.Close()).To(Succeed())
	g.Eventually(func() int { open, _ := s.open(); return open }).Should(Equal(1))

	pool.Forget(c1.NamespacedName)
	g.Eventually(func() int { open, _ := s.open(); return open }).Should(BeZero())
	_, err = writer.Version(t.Context())
	g.Expect(err).To(MatchError(errForgotten))
	pool.Forget(c1.NamespacedName)
}

func TestPool(t *testing.T) {
	g := NewWithT(t)
	s := newTokens(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-kubeconfig"}, Data: map[string][]byte{"value": s.kubeconfig("one")},
	}
	c := fake.NewClientBuilder().WithObjects(secret).Build()
	pool := NewPool(&credentials.Store{Reader: c})
	c1 := target.Target{NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}, KubeconfigSecret: "c1-kubeconfig"}
	_, err := pool.Reader(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	first := pool.clients[c1.NamespacedName].route
	c1.ControlPlanes = []string{"10.0.0.9"}
	_, err = pool.Reader(t.Context(), c1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pool.clients[c1.NamespacedName].route).To(BeIdenticalTo(first), "connections are kept")
	g.Expect(first.dialer.alternatives).To(Equal([]string{"10.0.0.9"}), "and know the control planes of today")

	pool.Forget(c1.NamespacedName)
	g.Expect(pool.clients).To(BeEmpty())
	g.Expect(c.Delete(t.Context(), secret)).To(Succeed())
	_, err = pool.Writer(t.Context(), c1, nil)
	g.Expect(err).To(MatchError(credentials.ErrMissing))
	g.Expect(Trouble(err)).To(HavePrefix("secret default/c1-kubeconfig is missing"))
}
