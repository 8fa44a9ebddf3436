// SPDX-License-Identifier: Apache-2.0

// Package pki makes what a simulated cluster is installed with from a real Talos secrets bundle, which it keeps on disk, and the
// credentials of its administrators. What the machines make of their configs is in the package secrets.
package pki

import (
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"

	simsecrets "ichor.maesh.dev/hub/test/sim/secrets"
)

// Validity is how long credentials are valid unless somebody wants others.
const Validity = simsecrets.Validity

// PKI is the key material of one cluster.
type PKI struct {
	// Bundle is the cluster's secrets bundle.
	Bundle *secrets.Bundle

	kubernetes *x509.CertificateAuthority
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
	kubernetes, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.K8s)
	if err != nil {
		return nil, fmt.Errorf("certificate authority of Kubernetes: %w", err)
	}
	return &PKI{Bundle: bundle, kubernetes: kubernetes}, nil
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
