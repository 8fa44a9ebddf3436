// SPDX-License-Identifier: Apache-2.0

// Package tlsfault spoils the TLS side of simulated servers on order: with certificates that clients must not accept, and by refusing
// the certificates of clients.
package tlsfault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
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
	// Config is what the server uses for a connection while nothing is ordered. Whoever makes it does not use it otherwise.
	Config func(*tls.ClientHelloInfo) (*tls.Config, error)
	// Faults are asked at each handshake.
	Faults *fault.Registry
	// API is talos or kube.
	API string
	// Site is where a handshake takes place.
	Site func(*tls.ClientHelloInfo) fault.Site
	// Spoiled issues a certificate with a problem.
	Spoiled func(hello *tls.ClientHelloInfo, problem string) (tls.Certificate, error)
}

// ConfigForClient is for tls.Config.GetConfigForClient.
func (s *Server) ConfigForClient(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	at := s.Site(hello)
	config, err := s.Config(hello)
	if err != nil {
		return nil, err
	}
	if problem := problem(s.Faults, fault.ServerCertificate, at, s.API); problem != "" {
		certificate, err := s.Spoiled(hello, problem)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	for _, f := range orders(s.Faults, fault.ClientCertificate, at, s.API) {
		if serial := f.Params[fault.ParamSerial]; serial != "" {
			revoke(config, serial)
		} else {
			distrust(config, f.Params[fault.ParamProblem])
		}
	}
	return config, nil
}

// revoke makes a server that verifies the certificates of its clients refuse the one of a serial number.
func revoke(config *tls.Config, serial string) {
	next := config.VerifyConnection
	if config.ClientAuth != tls.RequireAndVerifyClientCert {
		return // It says so by other means.
	}
	config.VerifyConnection = func(cs tls.ConnectionState) error {
		if Serial(cs.PeerCertificates[0]) == serial {
			return errRevoked
		}
		if next == nil {
			return nil
		}
		return next(cs)
	}
}

var errRevoked = errors.New("the certificate was ordered to be refused")

// Serial is the serial number of a certificate as the faults name it.
func Serial(certificate *x509.Certificate) string { return certificate.SerialNumber.Text(16) }

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

// Distrusted says whether a client is refused that shows that certificate.
func Distrusted(faults *fault.Registry, at fault.Site, api string, certificate *x509.Certificate) bool {
	return slices.ContainsFunc(orders(faults, fault.ClientCertificate, at, api), func(f fault.Fault) bool {
		serial := f.Params[fault.ParamSerial]
		return serial == "" || serial == Serial(certificate)
	})
}

// State sums up what is ordered for a server, and is empty if nothing is. Connections made in another state would not notice.
func State(faults *fault.Registry, at fault.Site, api string) string {
	var state []string
	for _, name := range []string{fault.ServerCertificate, fault.ClientCertificate} {
		for _, f := range orders(faults, name, at, api) {
			state = append(state, name+"/"+f.Params[fault.ParamProblem]+"/"+f.Params[fault.ParamSerial])
		}
	}
	return strings.Join(state, " ")
}

func problem(faults *fault.Registry, name string, at fault.Site, api string) string {
	for _, f := range orders(faults, name, at, api) {
		return f.Params[fault.ParamProblem]
	}
	return ""
}

// orders are the faults of a name that concern an API at a site.
func orders(faults *fault.Registry, name string, at fault.Site, api string) []fault.Fault {
	return slices.DeleteFunc(faults.Standing(name, at), func(f fault.Fault) bool {
		which := f.Params[fault.ParamAPI]
		return which != api && which != "both"
	})
}
