// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// API are the certificates of one machine's Talos API. Nobody changes them once they are made.
type API struct {
	// Spec is that of the resource. Workers have no client certificate: they pass no calls on.
	Spec secrets.APICertsSpec
	// Server and Client are the certificates in it, Client being nil on workers, and Accepted are the CAs of clients and of other
	// machines.
	Server   tls.Certificate
	Client   *tls.Certificate
	Accepted *stdx509.CertPool
	// Issuer has signed the server certificate. It is here for the faults: no worker knows it.
	Issuer *x509.PEMEncodedCertificateAndKey
}

// Reasons why a worker gets no certificate from a control plane.
var (
	// ErrTrustdNotTrusted means that the worker does not accept the CA of the control plane that it asks.
	ErrTrustdNotTrusted = errors.New("rpc error: code = Unavailable desc = connection error: desc = \"transport: authentication handshake failed: " +
		"tls: failed to verify certificate: x509: certificate signed by unknown authority\"")
	// ErrTrustdToken means that the control plane does not know the worker's token.
	ErrTrustdToken = errors.New("rpc error: code = Unauthenticated desc = invalid token")
	// ErrNoTrustd means that there is no control plane to ask.
	ErrNoTrustd = errors.New("rpc error: code = Unavailable desc = no control plane can be reached")
)

// RenderAPI makes the certificates of a machine's Talos API. A control plane issues its own; what is there stays if it will do. A worker
// asks the control planes, which are given by what they take from their configs, and is given the CAs that the one accepts which
// answers.
func RenderAPI(roots *Roots, node Node, controlPlanes []*Roots, old *API) (*API, error) {
	if node.ControlPlane {
		return controlPlaneAPI(roots.OS, node, old)
	}
	errs := []error{}
	for _, other := range controlPlanes {
		api, err := workerAPI(roots.OS, node, other.OS)
		if err == nil {
			return api, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, ErrNoTrustd)
	}
	return nil, fmt.Errorf("failed to sign API server CSR: %w", errors.Join(errs...))
}

func controlPlaneAPI(root *secrets.OSRootSpec, node Node, old *API) (*API, error) {
	server, err := talosServer(root, node)
	if err != nil {
		return nil, err
	}
	client := wanted{
		name: node.Name, organizations: []string{string(role.Impersonator)}, usages: clientOnly, keyUsage: stdx509.KeyUsageDigitalSignature,
	}
	if old == nil {
		old = &API{}
	}
	now := time.Now()
	spec := secrets.APICertsSpec{AcceptedCAs: root.AcceptedCAs}
	if spec.Server, err = issue(root.IssuingCA, server, old.Spec.Server, now); err != nil {
		return nil, err
	}
	if spec.Client, err = issue(root.IssuingCA, client, old.Spec.Client, now); err != nil {
		return nil, err
	}
	return newAPI(spec, root.IssuingCA)
}

// workerAPI is trustd's answer: a certificate for a server alone, by the CA that the control plane issues from, and all CAs that it
// accepts.
func workerAPI(root *secrets.OSRootSpec, node Node, trustd *secrets.OSRootSpec) (*API, error) {
	if trustd.IssuingCA == nil {
		return nil, ErrNoTrustd
	}
	ca, err := trustd.IssuingCA.GetCert()
	if err != nil {
		return nil, fmt.Errorf("CA of the control plane: %w", err)
	}
	switch {
	case !accepts(root.AcceptedCAs, ca):
		return nil, ErrTrustdNotTrusted
	case root.Token != trustd.Token:
		return nil, ErrTrustdToken
	}
	server, err := talosServer(root, node)
	if err != nil {
		return nil, err
	}
	spec := secrets.APICertsSpec{AcceptedCAs: []*x509.PEMEncodedCertificate{{Crt: bundle(trustd.AcceptedCAs)}}}
	if spec.Server, err = issue(trustd.IssuingCA, server, nil, time.Now()); err != nil {
		return nil, err
	}
	return newAPI(spec, trustd.IssuingCA)
}

// accepts says whether a CA is among those that are accepted, or was issued by one.
func accepts(accepted []*x509.PEMEncodedCertificate, ca *stdx509.Certificate) bool {
	return verifies(bundle(accepted), ca)
}

func talosServer(root *secrets.OSRootSpec, node Node) (wanted, error) {
	names := &names{}
	names.AppendIPs(root.CertSANIPs...)
	names.AppendDNSNames(root.CertSANDNSNames...)
	names.Append(node.Shared...)
	err := names.own(node)
	return wanted{
		name: node.Name, dns: names.DNSNames, ips: names.StdIPs(), usages: serverOnly, keyUsage: stdx509.KeyUsageDigitalSignature,
	}, err
}

func newAPI(spec secrets.APICertsSpec, issuer *x509.PEMEncodedCertificateAndKey) (*API, error) {
	api := &API{Spec: spec, Issuer: issuer, Accepted: stdx509.NewCertPool()}
	var err error
	if api.Server, err = tls.X509KeyPair(spec.Server.Crt, spec.Server.Key); err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	if spec.Client != nil {
		client, err := tls.X509KeyPair(spec.Client.Crt, spec.Client.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		api.Client = &client
	}
	if !api.Accepted.AppendCertsFromPEM(bundle(spec.AcceptedCAs)) {
		return nil, fmt.Errorf("accepted CAs: %w", errNoCertificate)
	}
	return api, nil
}

// Spoilt issues a certificate like another one, for the same names, but for another time and from any CA. It is for servers that are to
// show what their clients must not accept.
func Spoilt(like *stdx509.Certificate, issuer *x509.PEMEncodedCertificateAndKey, from, to time.Time) (tls.Certificate, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(issuer)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("CA: %w", err)
	}
	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(like.Subject.CommonName), x509.Organization(like.Subject.Organization...),
		x509.DNSNames(like.DNSNames), x509.IPAddresses(like.IPAddresses),
		x509.KeyUsage(like.KeyUsage), x509.ExtKeyUsage(like.ExtKeyUsage), x509.NotBefore(from), x509.NotAfter(to))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue certificate: %w", err)
	}
	return *pair.Certificate, nil
}
