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

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const day = 24 * time.Hour

// content reads every file of a directory.
func content(g *WithT, dir string) map[string]string {
	entries, err := os.ReadDir(dir)
	g.Expect(err).NotTo(HaveOccurred())
	files := map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		g.Expect(err).NotTo(HaveOccurred())
		files[entry.Name()] = string(data)
	}
	return files
}

func TestEnsureMakesAChainOfTrust(t *testing.T) {
	g := NewWithT(t)
	files, err := Ensure(t.TempDir(), start)
	g.Expect(err).NotTo(HaveOccurred())

	pem, err := os.ReadFile(files.CA)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(pem)).NotTo(ContainSubstring("PRIVATE KEY"))
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(pem)).To(BeTrue())

	for path, usage := range map[string]x509.ExtKeyUsage{
		files.Serving: x509.ExtKeyUsageServerAuth,
		files.Admin:   x509.ExtKeyUsageClientAuth,
		files.Hub:     x509.ExtKeyUsageClientAuth,
	} {
		leaf, err := load(path)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = leaf.cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{usage}})
		g.Expect(err).NotTo(HaveOccurred(), path)
	}
	serving, err := load(files.Serving)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(serving.cert.VerifyHostname("127.0.0.1")).To(Succeed())

	hub, err := load(files.Hub)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hub.cert.Subject.CommonName).To(Equal("ichor-hub"))
	g.Expect(hub.cert.Subject.Organization).To(BeEmpty(), "a group would widen the hub's rights")
}

func TestEnsureRenewsWhatIsNearItsEnd(t *testing.T) {
	for _, test := range []struct {
		name    string
		later   time.Duration
		changed []string
	}{
		{name: "at once", later: 0},
		{name: "in the second third of a year", later: 240 * day},
		{name: "in the last third of a year", later: 250 * day, changed: []string{"serving.pem", "admin.pem", "hub.pem"}},
		{
			name: "in the last third of the CA's life", later: 14 * 365 * day,
			changed: []string{"ca.pem", "ca.crt", "serving.pem", "admin.pem", "hub.pem"},
		},
		{name: "on a clock that was set back", later: -day, changed: []string{"ca.pem", "ca.crt", "serving.pem", "admin.pem", "hub.pem"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			_, err := Ensure(dir, start)
			g.Expect(err).NotTo(HaveOccurred())
			before := content(g, dir)
			_, err = Ensure(dir, start.Add(test.later))
			g.Expect(err).NotTo(HaveOccurred())

			var changed []string
			for name, data := range content(g, dir) {
				if data != before[name] {
					changed = append(changed, name)
				}
			}
			g.Expect(changed).To(ConsistOf(test.changed))
		})
	}
}

func TestEnsureReplacesWhatIsDamaged(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	files, err := Ensure(dir, start)
	g.Expect(err).NotTo(HaveOccurred())
	before := content(g, dir)

	g.Expect(os.WriteFile(files.Admin, []byte("half of a fi"), 0o600)).To(Succeed())
	g.Expect(os.Remove(files.CA)).To(Succeed())
	_, err = Ensure(dir, start)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = load(files.Admin)
	g.Expect(err).NotTo(HaveOccurred())
	after := content(g, dir)
	g.Expect(after["ca.crt"]).To(Equal(before["ca.crt"]))
	g.Expect(after["hub.pem"]).To(Equal(before["hub.pem"]))
}

func TestEnsureKeepsADamagedServiceAccountKey(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	key := In(dir).ServiceAccountKey
	g.Expect(os.WriteFile(key, []byte("damaged"), 0o600)).To(Succeed())
	_, err := Ensure(dir, start)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.ReadFile(key)).To(BeEquivalentTo("damaged"))
}

func TestRenewLeavesTheCAAlone(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	files, err := Ensure(dir, start)
	g.Expect(err).NotTo(HaveOccurred())
	before := content(g, dir)

	g.Expect(files.Renew(start)).To(BeFalse())
	g.Expect(files.Renew(start.Add(15 * 365 * day))).To(BeTrue())
	after := content(g, dir)
	g.Expect(after["ca.pem"]).To(Equal(before["ca.pem"]))
	g.Expect(after["hub.pem"]).NotTo(Equal(before["hub.pem"]))
}

func TestEverythingIsForItsOwnerAlone(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "pki")
	_, err := Ensure(dir, start)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()&0o077).To(BeZero(), path)
		return nil
	})).To(Succeed())
}
