// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"bytes"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// clientValidity is how long client certificates are valid that the hub makes; Talos makes those of administrators so.
const clientValidity = 365 * 24 * time.Hour

// KeyPair is a certificate with its key, both PEM.
type KeyPair struct {
	Certificate, Key []byte
}

// Empty says whether there is nothing.
func (p KeyPair) Empty() bool { return len(p.Certificate) == 0 }

// NewAuthority makes a certificate authority as Talos makes them. It is valid from a little before now on: clocks differ.
func NewAuthority(of v1alpha1.CAAuthority, now time.Time) (KeyPair, error) {
	now = now.Add(-clockSkew)
	var made *x509.CertificateAuthority
	var err error
	switch of {
	case v1alpha1.TalosCA:
		made, err = secrets.NewTalosCA(now)
	case v1alpha1.KubernetesCA:
		made, err = secrets.NewKubernetesCA(now, nil)
	default:
		err = fmt.Errorf("it is none of %s and %s", v1alpha1.TalosCA, v1alpha1.KubernetesCA)
	}
	if err != nil {
		return KeyPair{}, fmt.Errorf("making authority %s: %w", of, err)
	}
	return KeyPair{made.CrtPEM, made.KeyPEM}, nil
}

// Client makes a client certificate for a user, signed by the authority p.
func (p KeyPair) Client(user pkix.Name, now time.Time) (KeyPair, error) {
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(&x509.PEMEncodedCertificateAndKey{Crt: p.Certificate, Key: p.Key})
	if err != nil {
		return KeyPair{}, fmt.Errorf("reading an authority: %w", err)
	}
	pair, err := x509.NewKeyPair(authority,
		x509.Organization(user.Organization...), x509.CommonName(user.CommonName),
		x509.NotBefore(now.Add(-clockSkew)), x509.NotAfter(now.Add(clientValidity)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature), x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return KeyPair{}, fmt.Errorf("making a client certificate: %w", err)
	}
	encoded := x509.NewCertificateAndKeyFromKeyPair(pair)
	return KeyPair{encoded.Crt, encoded.Key}, nil
}

// Subject is whom a certificate is about.
func Subject(certificate []byte) (pkix.Name, error) {
	leaf, _, err := firstCertificate(certificate)
	if err != nil {
		return pkix.Name{}, err
	}
	return leaf.Subject, nil
}

// Ended says whether a certificate was valid once and is not any more.
func Ended(certificate []byte, now time.Time) bool {
	leaf, _, err := firstCertificate(certificate)
	return err == nil && now.After(leaf.NotAfter)
}

// SignedBy says whether one of some authorities has signed the first certificate of a PEM, whatever it is for and however old.
func SignedBy(certificate []byte, authorities ...[]byte) bool {
	for rest := certificate; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return false
		}
		if block.Type != certificateType {
			continue
		}
		leaf, err := stdx509.ParseCertificate(block.Bytes)
		return err == nil && verifies(leaf, authorities)
	}
}

const certificateType = "CERTIFICATE"

func verifies(leaf *stdx509.Certificate, authorities [][]byte) bool {
	roots := stdx509.NewCertPool()
	for _, authority := range authorities {
		roots.AppendCertsFromPEM(authority)
	}
	_, err := leaf.Verify(stdx509.VerifyOptions{
		Roots: roots, CurrentTime: leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2), KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageAny},
	})
	return err == nil
}

// certificates are the certificates of a PEM, each as a PEM of its own.
func certificates(data []byte) [][]byte {
	var list [][]byte
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return list
		}
		if block.Type == certificateType {
			list = append(list, pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: block.Bytes}))
		}
	}
}

// bundled are certificates as one PEM.
func bundled(list [][]byte) []byte {
	var out bytes.Buffer
	for _, certificate := range list {
		out.Write(bytes.TrimSpace(certificate))
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// Direct is how a server is asked for a proof: by a client that trusts nothing but some authorities.
type Direct struct {
	// Trust are the authorities, one PEM each.
	Trust [][]byte

	// Client is the client certificate.
	Client KeyPair
}

// Authorities are those that are trusted, as one PEM.
func (d Direct) Authorities() []byte { return bundled(d.Trust) }
