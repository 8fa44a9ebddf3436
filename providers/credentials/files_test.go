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

var ends = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

// pair is a certificate that ends at a time, and its key, as base64 of PEM.
func pair(tb testing.TB, notAfter time.Time) (crt, key string) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "admin"}, NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		tb.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	encode := func(kind string, data []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)
}

// kubeconfig is a usable kubeconfig, with replacements made in it.
func kubeconfig(tb testing.TB, replace ...string) []byte {
	tb.Helper()
	crt, key := pair(tb, ends)
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
    certificate-authority-data: ` + crt + `
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
	crt, key := pair(tb, ends)
	text := "context: " + names[0] + "\ncontexts:\n"
	for _, name := range names {
		text += "  " + name + ":\n    endpoints: [10.0.0.1, \"[fd00::1]:50000\"]\n    ca: " + crt + "\n    crt: " + crt + "\n    key: " + key + "\n"
	}
	return []byte(text)
}

func replaced(data []byte, old, replacement string) []byte {
	return []byte(strings.ReplaceAll(string(data), old, replacement))
}
