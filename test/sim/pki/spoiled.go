// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"ichor.maesh.dev/hub/test/sim/secrets"
	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

// Spoiled makes a server certificate that has a problem, and is otherwise like the one that the CA has issued.
func Spoiled(problem string, like *stdx509.Certificate, issuer *x509.PEMEncodedCertificateAndKey) (tls.Certificate, error) {
	from, to := time.Now().Add(-time.Minute), time.Now().Add(Validity)
	switch problem {
	case tlsfault.Expired:
		from, to = from.Add(-24*time.Hour), from
	case tlsfault.NotYetValid:
		from = time.Now().Add(24 * time.Hour)
	case tlsfault.OtherAuthority:
		other, err := otherAuthority()
		if err != nil {
			return tls.Certificate{}, err
		}
		issuer = other
	}
	return secrets.Spoilt(like, issuer, from, to)
}

// Strange makes a server certificate by a CA that nobody knows.
func Strange(name string) (tls.Certificate, error) {
	other, err := otherAuthority()
	if err != nil {
		return tls.Certificate{}, err
	}
	like := &stdx509.Certificate{KeyUsage: stdx509.KeyUsageDigitalSignature, ExtKeyUsage: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}}
	like.Subject.CommonName, like.DNSNames = name, []string{name}
	return secrets.Spoilt(like, other, time.Now().Add(-time.Minute), time.Now().Add(Validity))
}

func otherAuthority() (*x509.PEMEncodedCertificateAndKey, error) {
	other, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("other"), x509.ECDSA(true))
	if err != nil {
		return nil, fmt.Errorf("make another certificate authority: %w", err)
	}
	return x509.NewCertificateAndKeyFromCertificateAuthority(other), nil
}

// TalosconfigFor makes a talosconfig whose client certificate ends after ttl. A negative one has ended already.
func (p *PKI) TalosconfigFor(context string, endpoints []string, roles role.Set, ttl time.Duration) ([]byte, error) {
	pair, err := p.Bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return clientconfig.NewConfig(context, endpoints, p.Bundle.Certs.OS.Crt, pair).Bytes()
}
