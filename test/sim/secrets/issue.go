// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	stdx509 "crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
)

// wanted is a certificate that somebody needs.
type wanted struct {
	name          string // The common name.
	organizations []string
	dns           []string
	ips           []net.IP
	usages        []stdx509.ExtKeyUsage
	keyUsage      stdx509.KeyUsage
}

var (
	serverOnly = []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}
	clientOnly = []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}
	bothSides  = []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth}
)

// encipher is the key usage of certificates for Kubernetes and etcd.
const encipher = stdx509.KeyUsageDigitalSignature | stdx509.KeyUsageKeyEncipherment

// metBy says whether a certificate that is there will do.
func (w wanted) metBy(have, ca *stdx509.Certificate, now time.Time) bool {
	return have != nil && have.CheckSignatureFrom(ca) == nil &&
		have.Subject.CommonName == w.name && sameSet(have.Subject.Organization, w.organizations) &&
		sameSet(have.DNSNames, w.dns) && sameSet(texts(have.IPAddresses), texts(w.ips)) &&
		slices.Equal(have.ExtKeyUsage, w.usages) && now.Before(half(have))
}

// half is when half of a certificate's time is over.
func half(c *stdx509.Certificate) time.Time { return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 2) }

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

func texts(ips []net.IP) []string {
	list := make([]string, 0, len(ips))
	for _, ip := range ips {
		list = append(list, ip.String())
	}
	return list
}

// issue makes a certificate, or returns the one that is there if it will do.
func issue(ca *x509.PEMEncodedCertificateAndKey, w wanted, have *x509.PEMEncodedCertificateAndKey, now time.Time) (*x509.PEMEncodedCertificateAndKey, error) {
	if ca == nil {
		return nil, fmt.Errorf("no CA issues the certificate of %s", w.name)
	}
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
	if err != nil {
		return nil, fmt.Errorf("CA of the certificate of %s: %w", w.name, err)
	}
	if have != nil && len(have.Key) > 0 {
		if leaf, err := firstCertificate(have.Crt); err == nil && w.metBy(leaf, authority.Crt, now) {
			return have, nil
		}
	}
	pair, err := x509.NewKeyPair(authority,
		x509.CommonName(w.name), x509.Organization(w.organizations...), x509.DNSNames(w.dns), x509.IPAddresses(w.ips),
		x509.NotBefore(now.Add(-time.Minute)), // Clocks of test machines jump.
		x509.NotAfter(now.Add(Validity)), x509.KeyUsage(w.keyUsage), x509.ExtKeyUsage(w.usages))
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s: %w", w.name, err)
	}
	return x509.NewCertificateAndKeyFromKeyPair(pair), nil
}

var errNoCertificate = errors.New("there is no certificate in it")

// firstCertificate is the first certificate of a PEM file, which may hold keys as well.
func firstCertificate(data []byte) (*stdx509.Certificate, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return stdx509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errNoCertificate
}

// names are the names that a certificate is good for.
type names struct{ secrets.CertSANSpec }

// own adds the machine's own names.
func (n *names) own(node Node) error {
	n.AppendDNSNames(node.Name)
	for _, address := range slices.Concat(node.Addresses, []string{"127.0.0.1"}) {
		ip, err := netip.ParseAddr(address)
		if err != nil {
			return fmt.Errorf("address %q of %s: %w", address, node.Name, err)
		}
		n.AppendIPs(ip)
	}
	return nil
}

// KeyPath is where the key of a certificate's file is.
func KeyPath(certificate string) string {
	if before, ok := strings.CutSuffix(certificate, ".crt"); ok {
		return before + ".key"
	}
	return certificate
}

// put issues a certificate to a file and its key to the one beside it, unless what is there will do. More certificates of the chain
// follow the first one.
func (r *renderer) put(path string, ca *x509.PEMEncodedCertificateAndKey, w wanted, chain ...[]byte) error {
	var have *x509.PEMEncodedCertificateAndKey
	if crt, ok := r.old.Content[path]; ok {
		have = &x509.PEMEncodedCertificateAndKey{Crt: crt, Key: r.old.Content[KeyPath(path)]}
	}
	pair, err := issue(ca, w, have, r.now)
	if err != nil {
		return err
	}
	r.files[KeyPath(path)] = pair.Key
	if pair == have {
		r.files[path] = pair.Crt
		return nil
	}
	r.files[path] = bytes.Join(slices.Concat([][]byte{pair.Crt}, chain), []byte("\n"))
	return nil
}
