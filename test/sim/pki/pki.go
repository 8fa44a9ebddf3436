// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of a simulated cluster from a real Talos secrets bundle, which it keeps on disk.
package pki

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
)

// Validity outlives any simulation and stays below the CAs' ten years.
const Validity = 5 * 365 * 24 * time.Hour

// PKI is the key material of one cluster.
type PKI struct {
	// Bundle is the cluster's secrets bundle.
	Bundle *secrets.Bundle

	talos, kubernetes *x509.CertificateAuthority
}

// Load reads the bundle from dir, or makes one and keeps it there.
func Load(dir, talosVersion string) (*PKI, error) {
	path := filepath.Join(dir, "secrets.yaml")
	bundle, err := secrets.LoadBundle(path)
	if errors.Is(err, fs.ErrNotExist) {
		bundle, err = create(path, talosVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("secrets bundle %s: %w", path, err)
	}
	return fromBundle(bundle)
}

// create uses an elliptic service-account key: an RSA one takes a second or more to make.
func create(path, talosVersion string) (*secrets.Bundle, error) {
	contract, err := config.ParseContractFromVersion(talosVersion)
	if err != nil {
		return nil, fmt.Errorf("version contract of %s: %w", talosVersion, err)
	}
	bundle, err := secrets.NewBundle(secrets.NewClock(), contract, secrets.WithECDSAServiceAccountKey())
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	data, err := yaml.Marshal(bundle)
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	return bundle, os.WriteFile(path, data, 0o600)
}

func fromBundle(bundle *secrets.Bundle) (*PKI, error) {
	talos, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.OS)
	if err != nil {
		return nil, fmt.Errorf("certificate authority of the Talos API: %w", err)
	}
	kubernetes, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.K8s)
	if err != nil {
		return nil, fmt.Errorf("certificate authority of Kubernetes: %w", err)
	}
	return &PKI{Bundle: bundle, talos: talos, kubernetes: kubernetes}, nil
}

// TalosPool holds the CA that signs Talos API certificates.
func (p *PKI) TalosPool() *stdx509.CertPool { return pool(p.talos) }

// KubernetesPool holds the CA that signs Kubernetes API certificates.
func (p *PKI) KubernetesPool() *stdx509.CertPool { return pool(p.kubernetes) }

// TalosServer makes the server certificate of a node's Talos API.
func (p *PKI) TalosServer(name string, ips ...net.IP) (tls.Certificate, error) {
	return server(p.talos, name, []string{name}, ips...)
}

// TalosForwarder makes the client certificate with which a control plane passes calls on in its callers' names.
func (p *PKI) TalosForwarder(name string) (tls.Certificate, error) {
	return client(p.talos, name, string(role.Impersonator))
}

// KubernetesServer makes the server certificate of a cluster's API servers.
func (p *PKI) KubernetesServer(ips ...net.IP) (tls.Certificate, error) {
	return server(p.kubernetes, "kube-apiserver", kubernetesNames, ips...)
}

// Kubelet makes the client certificate of a node's kubelet.
func (p *PKI) Kubelet(node string) (tls.Certificate, error) {
	return client(p.kubernetes, "system:node:"+node, "system:nodes")
}

var kubernetesNames = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"}

func pool(ca *x509.CertificateAuthority) *stdx509.CertPool {
	pool := stdx509.NewCertPool()
	pool.AddCert(ca.Crt)
	return pool
}

func server(ca *x509.CertificateAuthority, name string, dns []string, ips ...net.IP) (tls.Certificate, error) {
	return issue(ca, stdx509.ExtKeyUsageServerAuth, x509.CommonName(name), x509.DNSNames(dns), x509.IPAddresses(ips))
}

func client(ca *x509.CertificateAuthority, name string, organizations ...string) (tls.Certificate, error) {
	return issue(ca, stdx509.ExtKeyUsageClientAuth, x509.CommonName(name), x509.Organization(organizations...))
}

func issue(ca *x509.CertificateAuthority, usage stdx509.ExtKeyUsage, options ...x509.Option) (tls.Certificate, error) {
	pair, err := keyPair(ca, usage, options...)
	if err != nil {
		return tls.Certificate{}, err
	}
	return *pair.Certificate, nil
}

func keyPair(ca *x509.CertificateAuthority, usage stdx509.ExtKeyUsage, options ...x509.Option) (*x509.KeyPair, error) {
	now := time.Now()
	options = append([]x509.Option{
		x509.NotBefore(now.Add(-time.Minute)), // Clocks of test machines jump.
		x509.NotAfter(now.Add(Validity)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{usage}),
	}, options...)
	pair, err := x509.NewKeyPair(ca, options...)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	return pair, nil
}
