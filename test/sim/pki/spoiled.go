// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

// SpoiledTalosServer makes the server certificate of a node's Talos API that has a problem.
func (p *PKI) SpoiledTalosServer(problem, name string, ips ...net.IP) (tls.Certificate, error) {
	return spoiled(p.talos, problem, name, []string{name}, ips)
}

// SpoiledKubernetesServer makes the server certificate of API servers that has a problem.
func (p *PKI) SpoiledKubernetesServer(problem string, ips ...net.IP) (tls.Certificate, error) {
	return spoiled(p.kubernetes, problem, "kube-apiserver", kubernetesNames, ips)
}

func spoiled(ca *x509.CertificateAuthority, problem, name string, dns []string, ips []net.IP) (tls.Certificate, error) {
	from, to := time.Now().Add(-time.Minute), time.Now().Add(Validity)
	switch problem {
	case tlsfault.Expired:
		from, to = from.Add(-24*time.Hour), from
	case tlsfault.NotYetValid:
		from = time.Now().Add(24 * time.Hour)
	case tlsfault.OtherAuthority:
		other, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("other"), x509.ECDSA(true))
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("make another certificate authority: %w", err)
		}
		ca = other
	}
	return issue(ca, stdx509.ExtKeyUsageServerAuth,
		x509.CommonName(name), x509.DNSNames(dns), x509.IPAddresses(ips), x509.NotBefore(from), x509.NotAfter(to))
}

// TalosconfigFor makes a talosconfig whose client certificate ends after ttl. A negative one has ended already.
func (p *PKI) TalosconfigFor(context string, endpoints []string, roles role.Set, ttl time.Duration) ([]byte, error) {
	pair, err := p.Bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return clientconfig.NewConfig(context, endpoints, p.Bundle.Certs.OS.Crt, pair).Bytes()
}
