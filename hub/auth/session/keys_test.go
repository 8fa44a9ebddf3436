// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"bytes"
	"encoding/base64"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/session"
)

var secretKey = client.ObjectKey{Namespace: "ichor-system", Name: "ichor-hub-session"}

// same says whether what one seals the other opens.
func same(g *WithT, one, other session.Keys) bool {
	sealed, err := one.Seal("test", "secret text")
	g.Expect(err).NotTo(HaveOccurred())
	var opened string
	return other.Open("test", sealed, &opened) == nil && opened == "secret text"
}

func TestSealedTextTellsNothing(t *testing.T) {
	g := NewWithT(t)
	keys, err := session.NewKeys(bytes.Repeat([]byte{1}, 32))
	g.Expect(err).NotTo(HaveOccurred())
	first, err := keys.Seal("test", "secret text")
	g.Expect(err).NotTo(HaveOccurred())
	second, err := keys.Seal("test", "secret text")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first).NotTo(Equal(second))
	decoded, err := base64.RawURLEncoding.DecodeString(first)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(decoded)).NotTo(ContainSubstring("secret text"))
	g.Expect(keys.Open("another", first, new(string))).NotTo(Succeed())
}

func TestKeyOfAFile(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "session.key")
	made, err := session.FileKeys(path)
	g.Expect(err).NotTo(HaveOccurred())
	info, err := os.Stat(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
	read, err := session.FileKeys(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(same(g, made, read)).To(BeTrue(), "sessions outlive a restart")

	g.Expect(os.WriteFile(path, []byte("c2hvcnQ="), 0o600)).To(Succeed())
	_, err = session.FileKeys(path)
	g.Expect(err).To(MatchError(ContainSubstring(path + ": want 32 random bytes in base64")))
	g.Expect(err).NotTo(MatchError(ContainSubstring("c2hvcnQ")), "a key is not for a log")
}

// Replicas that start at once have one key.
func TestKeyOfASecret(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().Build()
	made := make([]session.Keys, 8)
	var group sync.WaitGroup
	for i := range made {
		group.Go(func() {
			var err error
			made[i], err = session.SecretKeys(t.Context(), c, secretKey)
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
	group.Wait()
	for _, keys := range made {
		g.Expect(same(g, made[0], keys)).To(BeTrue())
	}
}

func TestKeyOfASecretIsRenewed(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().Build()
	before, err := session.SecretKeys(t.Context(), c, secretKey)
	g.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{}
	g.Expect(c.Get(t.Context(), secretKey, secret)).To(Succeed())
	secret.Data["previous"] = secret.Data["key"]
	secret.Data["key"] = []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)) + "\n")
	g.Expect(c.Update(t.Context(), secret)).To(Succeed())
	after, err := session.SecretKeys(t.Context(), c, secretKey)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(same(g, before, after)).To(BeTrue())
	g.Expect(same(g, after, before)).To(BeFalse(), "the new key seals")
}

func TestSessionThatFitsInNoCookie(t *testing.T) {
	g := NewWithT(t)
	keys, err := session.NewKeys(bytes.Repeat([]byte{1}, 32))
	g.Expect(err).NotTo(HaveOccurred())
	s := session.Sessions{Keys: keys, Lifetime: time.Hour, Now: time.Now}
	recorder := httptest.NewRecorder()
	err = s.SetCookie(recorder, auth.Caller{Name: "ada", Groups: strings.Split(strings.Repeat("5d0f5a4e-0d5c-4a0e-9b3d-5d6f1f0f6b1e,", 120), ",")})
	g.Expect(err).To(MatchError(ContainSubstring("the names of 121 groups do not fit in a cookie")))
	g.Expect(recorder.Header()).To(BeEmpty())
}
