// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"ichor.maesh.dev/hub/test/sim/tlsfault"
)

// authenticatedGroup is the group of all who are known.
const authenticatedGroup = "system:authenticated"

// userKey is under what the context of a request has its user.
type userKey struct{}

// userOf is who makes a request.
func userOf(r *http.Request) authenticationv1.UserInfo {
	user, _ := r.Context().Value(userKey{}).(authenticationv1.UserInfo)
	return user
}

// authenticated finds out who makes a request, and returns it with that. Nobody is anonymous.
func (a *API) authenticated(r *http.Request) (*http.Request, bool) {
	server, err := a.serverOf(r)
	if err != nil {
		return r, false
	}
	user, ok := a.byCertificate(r, server)
	if !ok {
		user, ok = a.byToken(r, server)
	}
	if !ok {
		return r, false
	}
	return r.WithContext(context.WithValue(r.Context(), userKey{}, user)), true
}

// byCertificate accepts the certificates of the CAs that the server accepts now, and none that was ordered to be refused.
func (a *API) byCertificate(r *http.Request, server *Server) (authenticationv1.UserInfo, bool) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return authenticationv1.UserInfo{}, false
	}
	certificate := r.TLS.PeerCertificates[0]
	_, err := certificate.Verify(x509.VerifyOptions{Roots: server.Clients, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	local, _ := place(r)
	if err != nil || tlsfault.Distrusted(a.Faults, a.Site(local), "kube", certificate) {
		return authenticationv1.UserInfo{}, false
	}
	return authenticationv1.UserInfo{
		Username: certificate.Subject.CommonName, Groups: append(slices.Clone(certificate.Subject.Organization), authenticatedGroup),
	}, true
}

// byToken accepts the tokens of service accounts.
func (a *API) byToken(r *http.Request, server *Server) (authenticationv1.UserInfo, bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || server.Tokens == nil {
		return authenticationv1.UserInfo{}, false
	}
	claims, err := server.Tokens.verify(token, nil, time.Now())
	if err != nil || a.revoked(claims) != nil {
		return authenticationv1.UserInfo{}, false
	}
	return claims.user(), true
}
