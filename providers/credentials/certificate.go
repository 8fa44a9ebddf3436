// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// warnBefore is how long before its end a client certificate is worth a word.
const warnBefore = 30 * 24 * time.Hour

// clockSkew is how far the clock of who signed a certificate may be ahead of the hub's.
const clockSkew = 5 * time.Minute

// Problem is what is wrong with a credential that can be read, or soon will be.
type Problem struct {
	// Reason is one of the condition CredentialsValid.
	Reason string

	// Message names the certificate, and dates where they matter. It is the same every time.
	Message string
}

// Certificate is a client certificate.
type Certificate struct {
	// NotBefore and NotAfter bound its validity.
	NotBefore, NotAfter time.Time

	// Organizations are the groups that it claims for its user; Talos calls them roles.
	Organizations []string

	// owner says whose it is, for messages.
	owner string

	// foreign says why the authority of the same file did not sign it; nothing if it did.
	foreign string
}

// parseCertificate reads a certificate with its key, and finds out whether an authority signed it. No authority signs anything.
func parseCertificate(owner string, crt, key, ca []byte) (*Certificate, error) {
	leaf, rest, err := firstCertificate(crt)
	if err != nil {
		return nil, err
	}
	if _, err := tls.X509KeyPair(crt, key); err != nil {
		return nil, fmt.Errorf("the key does not belong to the certificate: %w", err)
	}
	parsed := &Certificate{NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, Organizations: leaf.Subject.Organization, owner: owner}
	if len(ca) > 0 {
		parsed.foreign = foreign(leaf, rest, ca)
	}
	return parsed, nil
}

// foreign asks at a time at which the certificate was valid: its dates are judged elsewhere.
func foreign(leaf *x509.Certificate, rest, ca []byte) string {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	between.AppendCertsFromPEM(rest)
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Sprintf("was signed by %q, and not by the CA of the same file", leaf.Issuer)
	}
	return ""
}

func firstCertificate(data []byte) (first *x509.Certificate, rest []byte, err error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, nil, errors.New("no PEM block found")
	}
	first, err = x509.ParseCertificate(block.Bytes)
	return first, rest, err
}

// checkAuthorities says what is wrong with a file of CA certificates.
func checkAuthorities(data []byte) error {
	_, _, err := firstCertificate(data)
	return err
}

// check says why the certificate cannot be used at a time; nil if it can. A credential without certificate has none.
func (c *Certificate) check(now time.Time, expired string) *Problem {
	switch {
	case c == nil:
		return nil
	case now.After(c.NotAfter):
		return &Problem{expired, fmt.Sprintf("the client certificate of %s ended on %s", c.owner, day(c.NotAfter))}
	case now.Add(clockSkew).Before(c.NotBefore):
		return &Problem{v1alpha1.CredentialsNotYetValidReason, fmt.Sprintf("the client certificate of %s is not valid before %s", c.owner, day(c.NotBefore))}
	case c.foreign != "":
		return &Problem{v1alpha1.CredentialsInvalidReason, fmt.Sprintf("the client certificate of %s %s", c.owner, c.foreign)}
	}
	return nil
}

// warning says that the certificate ends soon; nil if it does not.
func (c *Certificate) warning(now time.Time) *Problem {
	if c == nil || now.Add(warnBefore).Before(c.NotAfter) {
		return nil
	}
	return &Problem{v1alpha1.CredentialsExpiringReason, fmt.Sprintf("the client certificate of %s ends on %s", c.owner, day(c.NotAfter))}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
