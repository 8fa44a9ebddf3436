// SPDX-License-Identifier: Apache-2.0

// Package pki keeps the keys and certificates of the standalone API server in a directory.
//
// A certificate and its key share one file, so that replacing them is one rename: neither a crash nor a reader
// ever finds a certificate with the key of another one.
package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

const (
	// HubUser is the user that the hub's own client certificate names; it has the rights that RBAC gives it.
	HubUser = "ichor-hub"
	// adminUser and adminGroup make the administrator, whom RBAC does not restrict.
	adminUser, adminGroup = "ichor-admin", "system:masters"

	caLifetime   = 20 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// A certificate is renewed in the last third of its life.
	renewFraction = 3
)

// Files are the paths of what a directory holds.
type Files struct {
	// CA is the certificate, without its key, that signs all others.
	CA string
	// Serving, Admin and Hub each hold a certificate and its key.
	Serving, Admin, Hub string
	// ServiceAccountKey signs service account tokens. It is never renewed: that would void every token.
	ServiceAccountKey string

	ca string // Certificate and key of the CA.
}

// In names the files of a directory; they need not exist.
func In(dir string) Files {
	at := func(name string) string { return filepath.Join(dir, name) }
	return Files{
		CA:                at("ca.crt"),
		ca:                at("ca.pem"),
		Serving:           at("serving.pem"),
		Admin:             at("admin.pem"),
		Hub:               at("hub.pem"),
		ServiceAccountKey: at("service-account.key"),
	}
}

// Ensure creates what is missing in dir and renews what is near its end, the CA included.
func Ensure(dir string, now time.Time) (Files, error) {
	files := In(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return files, fmt.Errorf("creating directory of keys: %w", err)
	}
	if err := ensureServiceAccountKey(files.ServiceAccountKey); err != nil {
		return files, err
	}
	ca, err := ensureCA(files, now)
	if err != nil {
		return files, err
	}
	_, err = files.renewLeaves(ca, now)
	return files, err
}

// Renew renews those certificates that are near their end and reports whether there were any. It leaves the CA
// alone, which its clients would have to be told about.
func (f Files) Renew(now time.Time) (bool, error) {
	ca, err := load(f.ca)
	if err != nil {
		return false, fmt.Errorf("reading CA: %w", err)
	}
	return f.renewLeaves(ca, now)
}

func (f Files) renewLeaves(ca pair, now time.Time) (renewed bool, err error) {
	leaves := map[string]*x509.Certificate{
		f.Serving: {
			Subject:     pkix.Name{CommonName: "ichor-hub-apiserver"},
			DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		},
		f.Admin: {
			Subject:     pkix.Name{CommonName: adminUser, Organization: []string{adminGroup}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		},
		f.Hub: {
			Subject:     pkix.Name{CommonName: HubUser},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		},
	}
	for path, template := range leaves {
		if current, err := load(path); err == nil && fresh(current.cert, now) && current.cert.CheckSignatureFrom(ca.cert) == nil {
			continue
		}
		if err := issue(path, template, ca, now); err != nil {
			return renewed, err
		}
		renewed = true
	}
	return renewed, nil
}

func issue(path string, template *x509.Certificate, ca pair, now time.Time) error {
	leaf, err := ca.sign(template, leafLifetime, now)
	if err != nil {
		return fmt.Errorf("issuing certificate %s: %w", path, err)
	}
	return save(path, leaf)
}

func ensureCA(f Files, now time.Time) (pair, error) {
	ca, err := load(f.ca)
	if err != nil || !fresh(ca.cert, now) {
		if ca, err = newCA(now); err != nil {
			return pair{}, fmt.Errorf("creating CA: %w", err)
		}
		if err := save(f.ca, ca); err != nil {
			return pair{}, err
		}
	}
	// Written every time: a crash may have come between the two files.
	return ca, atomicfile.Write(f.CA, encodeCertificate(ca.cert))
}

func ensureServiceAccountKey(path string) error {
	// A key that cannot be read is not replaced, since tokens may depend on it.
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := newKey()
	if err != nil {
		return fmt.Errorf("creating service account key: %w", err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return fmt.Errorf("encoding service account key: %w", err)
	}
	return atomicfile.Write(path, encoded)
}

// fresh says whether a certificate is valid and not in the last third of its life.
func fresh(cert *x509.Certificate, now time.Time) bool {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return !now.Before(cert.NotBefore) && now.Before(cert.NotAfter.Add(-life/renewFraction))
}
