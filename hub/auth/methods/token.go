// SPDX-License-Identifier: Apache-2.0

package methods

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/hub/auth/session"
)

// TokenPath is where a browser begins a session with a bearer token.
const TokenPath = "/auth/token" //nolint:gosec // It is a path.

// maxTokenBody bounds what is read of a request for a session.
const maxTokenBody = 32 << 10

// tokenRequest is what the page sends.
type tokenRequest struct {
	Token string `json:"token"`
}

// refusal is why no session begins.
type refusal struct {
	Message string `json:"message"`
}

// keepToken begins a session for a token that somebody brought. The browser then keeps it where no script can read it. A page of another site
// must not sign somebody in as another user than they think they are.
func (m *Methods) keepToken(w http.ResponseWriter, r *http.Request) {
	if err := session.FromOwnSite(r); err != nil {
		refuseSession(w, http.StatusForbidden, err)
		return
	}
	var asked tokenRequest
	contentType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxTokenBody)).Decode(&asked)
	if contentType != "application/json" || err != nil || asked.Token == "" {
		refuseSession(w, http.StatusBadRequest, errors.New(`body: want {"token":"..."} of type application/json`))
		return
	}
	if _, err := m.guard.Bearer(m.guard.Sourced(r).Context(), asked.Token); err != nil {
		refuseSession(w, statusOf(err), err)
		return
	}
	if err := m.sessions.KeepToken(w, asked.Token); err != nil {
		refuseSession(w, http.StatusBadRequest, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func statusOf(err error) int {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable:
		return http.StatusServiceUnavailable
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	default:
		return http.StatusUnauthorized
	}
}

func refuseSession(w http.ResponseWriter, status int, err error) {
	message := err.Error()
	if said := new(connect.Error); errors.As(err, &said) {
		message = said.Message() // The code is in the status.
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(refusal{Message: message}) //nolint:errchkjson // Whoever asked is gone if it fails.
}
