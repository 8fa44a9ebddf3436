// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"

	cryptox509 "github.com/siderolabs/crypto/x509"

	"ichor.maesh.dev/hub/test/sim/link"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// Server is what one API server of the cluster works with at the moment.
type Server struct {
	// Node is the control plane that it is on.
	Node string
	// Certificate is its own, Issuer the CA that has issued it, and Clients are the CAs of its clients.
	Certificate tls.Certificate
	Issuer      *cryptox509.PEMEncodedCertificateAndKey
	Clients     *x509.CertPool
	// Tokens signs and verifies tokens of service accounts.
	Tokens *Tokens
	// Encryption are the keys with which it can read Secrets in etcd; it writes with the first.
	Encryption []secrets.EncryptionKey
}

// backendKey is under what the context of a connection has its backend.
type backendKey struct{}

// place is at which address a request came in, and which backend of a load balancer it is for.
func place(r *http.Request) (local net.Addr, backend string) {
	local, _ = r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	backend, _ = r.Context().Value(backendKey{}).(string)
	return local, backend
}

// serverOf is the API server that got a request.
func (a *API) serverOf(r *http.Request) (*Server, error) { return a.Server(place(r)) }

// version is that of the server which got the request.
func (a *API) version(r *http.Request) string { return a.Version(place(r)) }

// tlsConfig is for a new connection. Whoever shows no certificate, or one of another CA, hears of it in HTTP.
func (a *API) tlsConfig(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	server, err := a.Server(hello.Conn.LocalAddr(), link.Backend(hello.Conn))
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{server.Certificate},
		ClientCAs: server.Clients, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"},
	}, nil
}
