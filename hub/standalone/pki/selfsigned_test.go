// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestSelfSignedIsMadeAnewWhereItMustBe(t *testing.T) {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	for _, test := range []struct {
		name    string
		later   time.Duration
		hosts   []string
		changed bool
	}{
		{name: "at once", hosts: hosts},
		{name: "for fewer hosts", hosts: []string{"127.0.0.1"}},
		{name: "for another host", hosts: append(hosts, "hub.example"), changed: true},
		{name: "in the second third of its life", later: 540 * day, hosts: hosts},
		{name: "in the last third of its life", later: 560 * day, hosts: hosts, changed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			files := SelfSignedIn(filepath.Join(t.TempDir(), "pki"))
			g.Expect(files.Ensure(hosts, start)).To(Succeed())
			before, err := Fingerprint(files.Pair)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(files.Ensure(test.hosts, start.Add(test.later))).To(Succeed())
			g.Expect(Fingerprint(files.Pair)).To(WithTransform(func(after string) bool { return after != before }, Equal(test.changed)))
			g.Expect(Fingerprint(files.Certificate)).To(Equal(must(Fingerprint(files.Pair))))
		})
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

func TestSelfSignedIsForItsHostsAndTellsNoKey(t *testing.T) {
	g := NewWithT(t)
	files := SelfSignedIn(t.TempDir())
	g.Expect(files.Ensure([]string{"localhost", "127.0.0.1"}, start)).To(Succeed())
	given, err := os.ReadFile(files.Certificate)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(given)).NotTo(ContainSubstring("PRIVATE KEY"))
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(given)).To(BeTrue())
	own, err := load(files.Pair)
	g.Expect(err).NotTo(HaveOccurred())
	for host, trusted := range map[string]bool{"localhost": true, "127.0.0.1": true, "other.example": false} {
		_, err := own.cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: start})
		g.Expect(err == nil).To(Equal(trusted), "%s: %v", host, err)
	}
	fingerprint, err := Fingerprint(files.Pair)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fingerprint).To(MatchRegexp("^[0-9A-F]{2}(:[0-9A-F]{2}){31}$"))
}

func TestFingerprintSaysWhatIsNoCertificate(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "x.pem")
	_, err := Fingerprint(path)
	g.Expect(err).To(MatchError(os.ErrNotExist))
	g.Expect(os.WriteFile(path, []byte("nothing"), 0o600)).To(Succeed())
	_, err = Fingerprint(path)
	g.Expect(err).To(MatchError(ContainSubstring(path)))
}
