// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"encoding/base64"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	siderox509 "github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/target"
)

// talosconfig names an endpoint that nobody listens on: nothing in these tests may get that far.
func talosconfig(t *testing.T) []byte {
	t.Helper()
	ca, err := siderox509.NewSelfSignedCertificateAuthority(siderox509.ECDSA(true))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	crt, key := base64.StdEncoding.EncodeToString(ca.CrtPEM), base64.StdEncoding.EncodeToString(ca.KeyPEM)
	return fmt.Appendf(nil, "context: c1\ncontexts: {c1: {endpoints: [192.0.2.1], ca: %[1]s, crt: %[1]s, key: %[2]s}}\n", crt, key)
}

func TestPool(t *testing.T) {
	g := NewWithT(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-talosconfig"}, Data: map[string][]byte{"talosconfig": talosconfig(t)},
	}
	c := fake.NewClientBuilder().WithObjects(secret).Build()
	pool := NewPool(&credentials.Store{Reader: c})
	c1 := target.Target{NamespacedName: types.NamespacedName{Namespace: "default", Name: "c1"}, TalosconfigSecret: "c1-talosconfig"}
	clientOf := func() any {
		reader, err := pool.Reader(t.Context(), c1)
		g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
		return reader.(*connection).client
	}

	first := clientOf()
	g.Expect(clientOf()).To(BeIdenticalTo(first), "connections are kept")
	writer, err := pool.Writer(t.Context(), c1, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(writer.Reboot(t.Context(), "10.0.0.1", "")).To(MatchError(guard.ErrNotAllowed), "the connections of the pool ask the guard")
	_, err = writer.PullImage(t.Context(), "10.0.0.1", "x")
	g.Expect(err).To(MatchError(guard.ErrNotAllowed))

	// Case A11.
	secret.Data["talosconfig"] = talosconfig(t)
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	g.Expect(clientOf()).NotTo(BeIdenticalTo(first), "other credentials are another connection")
	g.Expect(pool.conns).To(HaveLen(1))

	pool.Forget(c1.NamespacedName)
	g.Expect(pool.conns).To(BeEmpty())
	pool.Forget(c1.NamespacedName)

	g.Expect(c.Delete(t.Context(), secret)).To(Succeed())
	_, err = pool.Writer(t.Context(), c1, nil)
	g.Expect(err).To(MatchError(credentials.ErrMissing))
	g.Expect(Trouble(err)).To(HavePrefix("secret default/c1-talosconfig is missing"))
}
