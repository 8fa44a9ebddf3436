// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ichor.maesh.dev/hub/hub/standalone/atomicfile"
)

// selfSignedLifetime is the longest that every browser takes. People trust this certificate by its fingerprint, so it changes seldom.
const selfSignedLifetime = 825 * 24 * time.Hour

// SelfSigned are the files of a certificate that nobody vouches for: clients know it by its fingerprint, or by the file.
type SelfSigned struct {
	// Pair holds the certificate and its key, Certificate the certificate alone, to give to clients.
	Pair, Certificate string
}

// SelfSignedIn names the files in a directory; they need not exist.
func SelfSignedIn(dir string) SelfSigned {
	return SelfSigned{Pair: filepath.Join(dir, "https.pem"), Certificate: filepath.Join(dir, "https.crt")}
}

// Ensure makes the certificate where it is missing, near its end, or for other hosts than those given, which are names or addresses.
func (s SelfSigned) Ensure(hosts []string, now time.Time) error {
	if err := os.MkdirAll(filepath.Dir(s.Pair), 0o700); err != nil {
		return fmt.Errorf("creating directory of keys: %w", err)
	}
	current, err := load(s.Pair)
	if err != nil || !fresh(current.cert, now) || !covers(current.cert, hosts) {
		if current, err = (pair{}).sign(selfSigned(hosts), selfSignedLifetime, now); err != nil {
			return fmt.Errorf("creating certificate %s: %w", s.Pair, err)
		}
		if err := save(s.Pair, current); err != nil {
			return err
		}
	}
	// Written every time: a crash may have come between the two files.
	return atomicfile.Write(s.Certificate, encodeCertificate(current.cert))
}

func selfSigned(hosts []string) *x509.Certificate {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "ichor-hub"},
		BasicConstraintsValid: true,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}

// covers says whether a certificate is for all hosts.
func covers(cert *x509.Certificate, hosts []string) bool {
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// Fingerprint is the SHA-256 of the first certificate in a file, as people compare it, such as AB:CD for the first two bytes.
func Fingerprint(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading certificate: %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", fmt.Errorf("reading certificate %s: %w", path, errors.New("it does not begin with one in PEM"))
	}
	sum := sha256.Sum256(block.Bytes)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":"), nil
}
