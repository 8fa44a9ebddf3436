// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"time"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

// clockSkew is how far back a certificate's validity begins, for clocks that are set back a little.
const clockSkew = 5 * time.Minute

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(now time.Time) (pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "ichor-hub-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	// Without a signer of its own a certificate signs itself.
	return pair{}.sign(template, caLifetime, now)
}

// sign issues a certificate with a new key.
func (p pair) sign(template *x509.Certificate, lifetime time.Duration, now time.Time) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, err
	}
	template.NotBefore, template.NotAfter = now.Add(-clockSkew), now.Add(lifetime)
	template.KeyUsage |= x509.KeyUsageDigitalSignature

	parent, signer := p.cert, p.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return pair{cert: cert, key: key}, err
}

func load(path string) (pair, error) {
	// The same file twice: each reader picks its blocks.
	loaded, err := tls.LoadX509KeyPair(path, path)
	if err != nil {
		return pair{}, err
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, errors.New(path + ": not an ECDSA key")
	}
	return pair{cert: loaded.Leaf, key: key}, nil
}

func save(path string, p pair) error {
	key, err := encodeKey(p.key)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(encodeCertificate(p.cert), key...))
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func encodeCertificate(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}
