// SPDX-License-Identifier: Apache-2.0

// Package tlsfault spoils the TLS side of simulated servers on order: with certificates that clients must not accept, and by refusing
// the certificates of clients.
package tlsfault

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"ichor.maesh.dev/hub/test/sim/fault"
)

// Problems of certificates, as the faults name them.
const (
	Expired        = "expired"
	NotYetValid    = "not-yet-valid"
	OtherAuthority = "other-authority"
)

// Far is longer than any simulated certificate is valid.
const Far = 20 * 365 * 24 * time.Hour

// Server makes the TLS configurations of one server.
type Server struct {
	// Config is what the server uses while nothing is ordered.
	Config *tls.Config
	// Faults are asked at each handshake.
	Faults *fault.Registry
	// API is talos or kube.
	API string
	// Site is where a handshake takes place.
	Site func(*tls.ClientHelloInfo) fault.Site
	// Spoiled issues a certificate with a problem.
	Spoiled func(problem string) (tls.Certificate, error)
}

// ConfigForClient is for tls.Config.GetConfigForClient.
func (s *Server) ConfigForClient(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	at := s.Site(hello)
	config := s.Config
	if problem := problem(s.Faults, fault.ServerCertificate, at, s.API); problem != "" {
		certificate, err := s.Spoiled(problem)
		if err != nil {
			return nil, err
		}
		config = config.Clone()
		config.Certificates = []tls.Certificate{certificate}
	}
	if problem := problem(s.Faults, fault.ClientCertificate, at, s.API); problem != "" {
		config = config.Clone()
		distrust(config, problem)
	}
	return config, nil
}

// distrust makes a server find that problem with every certificate of a client.
func distrust(config *tls.Config, problem string) {
	switch problem {
	case Expired:
		config.Time = func() time.Time { return time.Now().Add(Far) }
	case NotYetValid:
		config.Time = func() time.Time { return time.Now().Add(-Far) }
	case OtherAuthority:
		config.ClientCAs = x509.NewCertPool()
	}
}

// Distrusted says whether the clients of a server are refused.
func Distrusted(faults *fault.Registry, at fault.Site, api string) bool {
	return problem(faults, fault.ClientCertificate, at, api) != ""
}

// State sums up what is ordered for a server, and is empty if nothing is. Connections made in another state would not notice.
func State(faults *fault.Registry, at fault.Site, api string) string {
	server, client := problem(faults, fault.ServerCertificate, at, api), problem(faults, fault.ClientCertificate, at, api)
	if server == "" && client == "" {
		return ""
	}
	return server + "/" + client
}

func problem(faults *fault.Registry, name string, at fault.Site, api string) string {
	for _, f := range faults.Standing(name, at) {
		if which := f.Params[fault.ParamAPI]; which == api || which == "both" {
			return f.Params[fault.ParamProblem]
		}
	}
	return ""
}
