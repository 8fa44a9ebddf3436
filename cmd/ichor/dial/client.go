// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"
)

// A connection that says nothing for so long is asked whether it is there, and given up if it does not answer.
const (
	pingAfter   = 15 * time.Second
	pingTimeout = 15 * time.Second
)

// Bearer is the token that is sent with every call; empty for a call without credentials. It may get another one first.
type Bearer func(context.Context) (string, error)

// SignInError means that only signing in again helps.
type SignInError struct{ Err error }

// Error says why.
func (e *SignInError) Error() string { return e.Err.Error() }

// Unwrap is why.
func (e *SignInError) Unwrap() error { return e.Err }

// Client is an HTTP client for one hub. bearer may be nil.
func Client(trust Trust, bearer Bearer, userAgent string) (*http.Client, error) {
	config, err := trust.config()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	return &http.Client{
		Transport: &caller{next: transport, bearer: bearer, userAgent: userAgent},
		// Whoever redirects may be somebody else, and must not get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// caller says who calls.
type caller struct {
	next      http.RoundTripper
	bearer    Bearer
	userAgent string
}

// RoundTrip adds to the request who calls.
func (c *caller) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("User-Agent", c.userAgent)
	if c.bearer != nil {
		token, err := c.bearer(request.Context())
		if err != nil {
			if request.Body != nil {
				request.Body.Close() //nolint:errcheck // It is not sent.
			}
			return nil, err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
	}
	return c.next.RoundTrip(request)
}

// ProviderClient is an HTTP client for an identity provider. A hub with a certificate authority of its own is in a place that has one, so
// that vouches for the provider, too, beside those of the system.
func ProviderClient(trust Trust) *http.Client {
	const timeout = 30 * time.Second
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if trust.CertificateAuthority != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		roots.AppendCertsFromPEM([]byte(trust.CertificateAuthority))
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &http.Client{Transport: transport, Timeout: timeout}
}
