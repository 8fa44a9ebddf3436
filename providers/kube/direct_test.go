// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/target"
)

// authority makes an authority of the Kubernetes API, and a client of it.
func authority(g *WithT) (ca, client credentials.KeyPair) {
	ca, err := credentials.NewAuthority(v1alpha1.KubernetesCA, time.Now())
	g.Expect(err).NotTo(HaveOccurred())
	client, err = ca.Client(pkix.Name{CommonName: "prover"}, time.Now())
	g.Expect(err).NotTo(HaveOccurred())
	return ca, client
}

// listening is an API server with a certificate of one authority that accepts clients of others, as one between two authorities does.
func listening(t *testing.T, issuing credentials.KeyPair, accepted ...credentials.KeyPair) *httptest.Server {
	t.Helper()
	g := NewWithT(t)
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(&x509.PEMEncodedCertificateAndKey{Crt: issuing.Certificate, Key: issuing.Key})
	g.Expect(err).NotTo(HaveOccurred())
	pair, err := x509.NewKeyPair(ca, x509.DNSNames([]string{"api.example.org"}), x509.NotAfter(time.Now().Add(time.Hour)))
	g.Expect(err).NotTo(HaveOccurred())
	encoded := x509.NewCertificateAndKeyFromKeyPair(pair)
	certificate, err := tls.X509KeyPair(encoded.Crt, encoded.Key)
	g.Expect(err).NotTo(HaveOccurred())
	pool := stdx509.NewCertPool()
	for _, other := range accepted {
		pool.AppendCertsFromPEM(other.Certificate)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		certificates := r.TLS.PeerCertificates
		if len(certificates) == 0 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if _, err := certificates[0].Verify(stdx509.VerifyOptions{Roots: pool, KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}}); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
			return
		}
		fmt.Fprint(w, `{"gitVersion":"v1.35.2"}`)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// A proof is by whom it says: what the kubeconfig trusts, and who it is, counts for nothing.
func TestDirect(t *testing.T) {
	g := NewWithT(t)
	old, oldClient := authority(g)
	fresh, newClient := authority(g)
	swapped := listening(t, fresh, old, fresh)
	dropped := listening(t, fresh, fresh)
	before := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
		"users":[{"name":"x","user":{"token":"t"}}],"clusters":[{"name":"x","cluster":{"server":"https://api.example.org:6443","certificate-authority-data":%q}}]}`,
		base64.StdEncoding.EncodeToString(old.Certificate))
	c := fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-kubeconfig"}, Data: map[string][]byte{"value": []byte(before)},
	}).Build()
	pool := NewPool(&credentials.Store{Reader: c})
	c1 := target.Target{NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}, KubeconfigSecret: "c1-kubeconfig"}
	address := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "https://") }
	for name, row := range map[string]struct {
		server   *httptest.Server
		as       credentials.Direct
		trouble  string
		rejected bool
	}{
		"the new one, after the swap":               {swapped, credentials.Direct{Trust: [][]byte{fresh.Certificate}, Client: newClient}, "", false},
		"an old client, after the swap":             {swapped, credentials.Direct{Trust: [][]byte{fresh.Certificate}, Client: oldClient}, "", false},
		"who trusts both":                           {swapped, credentials.Direct{Trust: [][]byte{old.Certificate, fresh.Certificate}, Client: oldClient}, "", false},
		"who trusts the old one alone":              {swapped, credentials.Direct{Trust: [][]byte{old.Certificate}, Client: newClient}, "the certificate of the server is not signed by the CA of the file", true},
		"the new one, after the drop":               {dropped, credentials.Direct{Trust: [][]byte{fresh.Certificate}, Client: newClient}, "", false},
		"an old client, after the drop, is refused": {dropped, credentials.Direct{Trust: [][]byte{fresh.Certificate}, Client: oldClient}, "Unauthorized", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			version, err := pool.Direct(t.Context(), c1, address(row.server), row.as)
			if row.trouble == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(version).To(Equal("v1.35.2"))
				return
			}
			g.Expect(Trouble(err)).To(Equal(row.trouble))
			g.Expect(Rejected(err)).To(Equal(row.rejected))
		})
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(closed.Close()).To(Succeed())
	_, err = pool.Direct(t.Context(), c1, closed.Addr().String(), credentials.Direct{Trust: [][]byte{fresh.Certificate}, Client: newClient})
	g.Expect(Trouble(err)).To(Equal("no answer"))
	g.Expect(Rejected(err)).To(BeFalse())
}
