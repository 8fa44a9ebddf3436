// SPDX-License-Identifier: Apache-2.0

// Package dial opens connections to hubs: by which certificate a hub is known, and as whom it is spoken to.
package dial

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Trust is what makes a hub the right one. Without either, the certificates of the system vouch for it.
type Trust struct {
	// CertificateAuthority are certificates as PEM.
	CertificateAuthority string

	// Fingerprint is the SHA-256 of the hub's own certificate, as Fingerprint writes it. It stands for every other check.
	Fingerprint string
}

// FingerprintError means that a hub has another certificate than the one that was trusted.
type FingerprintError struct{ Want, Got string }

// Error names both, since a person has to compare them.
func (e *FingerprintError) Error() string {
	return fmt.Sprintf("the hub's certificate has the fingerprint %s and not %s: either it was renewed, or this is not the hub", e.Got, e.Want)
}

// ParseURL checks the address of a hub. The port of the scheme is the default; nothing but a local hub is spoken to without TLS.
func ParseURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("hub %q is no URL such as https://hub.example.com: %w", text, errors.Unwrap(err))
	case parsed.Host == "" || parsed.Hostname() == "":
		return nil, fmt.Errorf("hub %q names no host; it is a URL such as https://hub.example.com", text)
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		return nil, fmt.Errorf("hub %q: only a scheme, a host, a port and a path are allowed, as in https://hub.example.com", parsed.Redacted())
	case parsed.Scheme == "http" && !loopback(parsed.Hostname()):
		return nil, fmt.Errorf("hub %q: without TLS anybody on the way could read the credentials; use https", text)
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return nil, fmt.Errorf("hub %q: the scheme is %q; it has to be https", text, parsed.Scheme)
	}
	parsed.Path = strings.TrimRight(parsed.Path, "/")
	return parsed, nil
}

// Protected says whether nobody on the way can read what a URL is asked for.
func Protected(u *url.URL) bool {
	return u.Hostname() != "" && (u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()))
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Fingerprint is how people compare certificates: the SHA-256 of one, as pairs of hexadecimal digits.
func Fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}

// ParseFingerprint reads a fingerprint in any of the usual ways to write one.
func ParseFingerprint(text string) (string, error) {
	plain := strings.NewReplacer(":", "", " ", "").Replace(text)
	if len(plain) > len("SHA256") && strings.EqualFold(plain[:len("SHA256")], "SHA256") {
		plain = plain[len("SHA256"):]
	}
	sum, err := hex.DecodeString(plain)
	if err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("fingerprint %q is not a SHA-256: 64 hexadecimal digits, with or without colons", text)
	}
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":"), nil
}

// config is how TLS checks the hub.
func (t Trust) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case t.Fingerprint != "":
		config.InsecureSkipVerify = true // The one certificate that the user trusts is compared instead.
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if got := Fingerprint(state.PeerCertificates[0]); got != t.Fingerprint {
				return &FingerprintError{Want: t.Fingerprint, Got: got}
			}
			return nil
		}
	case t.CertificateAuthority != "":
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(t.CertificateAuthority)) {
			return nil, errors.New("the certificate authority is no PEM with certificates")
		}
	}
	return config, nil
}

// Certificate is what a hub presents, whoever vouches for it. It is for showing to a person: nothing is sent on that connection.
func Certificate(ctx context.Context, hub *url.URL) (*x509.Certificate, error) {
	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: hub.Hostname(),
		InsecureSkipVerify: true, //nolint:gosec // A person compares the fingerprint before anything is sent.
	}}
	connection, err := dialer.DialContext(ctx, "tcp", hostPort(hub))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of %s: %w", hub.Host, err)
	}
	defer connection.Close() //nolint:errcheck // Nothing was written.
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func hostPort(hub *url.URL) string {
	port := hub.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(hub.Hostname(), port)
}

// Untrusted says whether a call failed since nobody vouches for the hub's certificate.
func Untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
