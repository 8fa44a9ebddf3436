// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

var (
	begins = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ends   = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
)

// authority is a CA that signs client certificates.
type authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB, name string) authority {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: begins.AddDate(-1, 0, 0), NotAfter: ends.AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return authority{tb, cert, private}
}

// crt is the certificate of the CA as base64 of PEM.
func (a authority) crt() string { return encode("CERTIFICATE", a.cert.Raw) }

// pair is a client certificate for roles and its key, as base64 of PEM.
func (a authority) pair(roles ...string) (crt, key string) {
	a.tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "admin", Organization: roles}, NotBefore: begins, NotAfter: ends,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.tb.Fatal(err)
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)
}

func encode(kind string, data []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
}

// kubeconfig is a usable kubeconfig, with replacements made in it.
func kubeconfig(tb testing.TB, replace ...string) []byte {
	tb.Helper()
	ca := newAuthority(tb, "kubernetes")
	crt, key := ca.pair("system:masters")
	text := `apiVersion: v1
kind: Config
current-context: admin@prod
contexts:
- name: admin@prod
  context: {cluster: prod, user: admin}
clusters:
- name: prod
  cluster:
    server: https://10.0.0.10:6443
    certificate-authority-data: ` + ca.crt() + `
users:
- name: admin
  user:
    client-certificate-data: ` + crt + `
    client-key-data: ` + key + `
`
	return []byte(strings.NewReplacer(replace...).Replace(text))
}

// talosconfig has a context for each name.
func talosconfig(tb testing.TB, names ...string) []byte {
	tb.Helper()
	ca := newAuthority(tb, "talos")
	crt, key := ca.pair("os:admin")
	text := "context: " + names[0] + "\ncontexts:\n"
	for _, name := range names {
		text += "  " + name + ":\n    endpoints: [10.0.0.1, \"[fd00::1]:50000\"]\n    ca: " + ca.crt() + "\n    crt: " + crt + "\n    key: " + key + "\n"
	}
	return []byte(text)
}

func replaced(data []byte, old, replacement string) []byte {
	return []byte(strings.ReplaceAll(string(data), old, replacement))
}
