// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestParseURL(t *testing.T) {
	for text, row := range map[string]struct{ want, err string }{
		"https://hub.example.com":        {want: "https://hub.example.com"},
		"https://hub.example.com:8443/":  {want: "https://hub.example.com:8443"},
		"hub.example.com:8443":           {want: "https://hub.example.com:8443"},
		"https://example.com/hub/":       {want: "https://example.com/hub"},
		"http://127.0.0.1:8080":          {want: "http://127.0.0.1:8080"},
		"http://[::1]:8080":              {want: "http://[::1]:8080"},
		"http://localhost:8080":          {want: "http://localhost:8080"},
		"http://hub.example.com":         {err: "without TLS anybody on the way could read the credentials; use https"},
		"ftp://hub.example.com":          {err: `the scheme is "ftp"; it has to be https`},
		"https://":                       {err: "names no host"},
		"https://:8443":                  {err: "names no host"},
		"https://hub.example.com?x=1":    {err: "only a scheme, a host, a port and a path are allowed"},
		"https://me:secret@example.com":  {err: `hub "https://me:xxxxx@example.com"`},
		"https://hub.example.com:port":   {err: "is no URL"},
		"https://hub.example.com/#login": {err: "only a scheme"},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			parsed, err := ParseURL(text)
			if row.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(row.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parsed.String()).To(Equal(row.want))
		})
	}
}

func TestParseFingerprint(t *testing.T) {
	want := strings.TrimSuffix(strings.Repeat("AB:", 32), ":")
	for name, text := range map[string]string{
		"as written": want, "plain": strings.Repeat("ab", 32), "with the algorithm": "SHA256:" + want, "with spaces": strings.Repeat("Ab ", 32),
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(ParseFingerprint(text)).To(Equal(want)) })
	}
	for _, text := range []string{"", "SHA256:", "abc", strings.Repeat("ab", 20), strings.Repeat("zz", 32)} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseFingerprint(text)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("64 hexadecimal digits")))
		})
	}
}

func bearing(token string) Bearer {
	return func(context.Context) (string, error) { return token, nil }
}

// A hub is spoken to only if the system, a certificate authority or the fingerprint vouches for it, and nobody else gets the token.
func TestTrust(t *testing.T) {
	g := NewWithT(t)
	var seen []string
	hub := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization")+" "+r.Header.Get("User-Agent"))
	}))
	t.Cleanup(hub.Close)
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw}))
	get := func(trust Trust) error {
		client, err := Client(trust, bearing("secret"), "ichor/test")
		g.Expect(err).NotTo(HaveOccurred())
		response, err := client.Get(hub.URL)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}

	err := get(Trust{})
	g.Expect(Untrusted(err)).To(BeTrue(), "%v", err)
	other, err := ParseFingerprint(strings.Repeat("00", 32))
	g.Expect(err).NotTo(HaveOccurred())
	var mismatch *FingerprintError
	g.Expect(errors.As(get(Trust{Fingerprint: other}), &mismatch)).To(BeTrue())
	g.Expect(mismatch.Got).To(Equal(Fingerprint(hub.Certificate())))
	g.Expect(Untrusted(mismatch)).To(BeFalse())
	g.Expect(seen).To(BeEmpty(), "nothing is sent to who is not trusted")

	g.Expect(get(Trust{CertificateAuthority: authority})).To(Succeed())
	g.Expect(get(Trust{Fingerprint: Fingerprint(hub.Certificate())})).To(Succeed())
	g.Expect(seen).To(Equal([]string{"Bearer secret ichor/test", "Bearer secret ichor/test"}))

	_, err = Client(Trust{CertificateAuthority: "nothing"}, nil, "")
	g.Expect(err).To(MatchError("the certificate authority is no PEM with certificates"))
}

func TestCertificate(t *testing.T) {
	g := NewWithT(t)
	calls := 0
	hub := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	t.Cleanup(hub.Close)
	parsed, err := url.Parse(hub.URL)
	g.Expect(err).NotTo(HaveOccurred())
	certificate, err := Certificate(t.Context(), parsed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(certificate.Equal(hub.Certificate())).To(BeTrue())
	g.Expect(calls).To(BeZero())
}

// A redirect is not followed: it may lead to somebody who must not get the token.
func TestRedirectsAreNotFollowed(t *testing.T) {
	g := NewWithT(t)
	calls := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	t.Cleanup(elsewhere.Close)
	hub := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(hub.Close)
	client, err := Client(Trust{}, bearing("secret"), "")
	g.Expect(err).NotTo(HaveOccurred())
	response, err := client.Get(hub.URL)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(response.StatusCode).To(Equal(http.StatusTemporaryRedirect))
	g.Expect(calls).To(BeZero())
}

// Without a token that is good, nothing is sent.
func TestSignInErrorsReachTheCaller(t *testing.T) {
	g := NewWithT(t)
	calls := 0
	hub := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	t.Cleanup(hub.Close)
	client, err := Client(Trust{}, func(context.Context) (string, error) { return "", &SignInError{errors.New("expired")} }, "")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.Post(hub.URL, "text/plain", strings.NewReader("x")) //nolint:bodyclose // There is none.
	var signIn *SignInError
	g.Expect(errors.As(err, &signIn)).To(BeTrue())
	g.Expect(calls).To(BeZero())
}
