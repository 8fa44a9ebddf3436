// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"ichor.maesh.dev/hub/hub/auth"
)

const (
	// CookieName is the cookie of a session. The prefix keeps other hosts of the domain from setting it.
	CookieName = "__Host-ichor-session"

	// tokenPrefix marks the bearer tokens that the hub itself hands out.
	tokenPrefix = "ichor-session."

	// A cookie is not taken for a token, or the other way around.
	cookiePurpose, tokenPurpose = "session-cookie/v1", "session-token/v1"

	// maxCookie is what browsers take.
	maxCookie = 4000

	// DefaultLifetime is how long a session lasts.
	DefaultLifetime = 8 * time.Hour

	// MaxLifetime is how long one may.
	MaxLifetime = 24 * time.Hour
)

// Sessions begin sessions and know them again.
type Sessions struct {
	// Keys seal the sessions; all replicas have the same.
	Keys Keys

	// Lifetime is how long a session lasts.
	Lifetime time.Duration

	// Now tells the time.
	Now func() time.Time

	// Tokens says whose a token is that a browser brought instead of a user; nil takes none.
	Tokens func(ctx context.Context, token string) (auth.Caller, error)
}

// session is what is sealed.
type session struct {
	Name    string      `json:"name"`
	Groups  []string    `json:"groups,omitempty"`
	Method  auth.Method `json:"method"`
	Expires time.Time   `json:"expires"`

	// Token stands for the user: whose it is, and whether it is still good, is asked each time.
	Token string `json:"token,omitempty"`
}

func (s *Sessions) begin(user auth.Caller) session {
	return session{Name: user.Name, Groups: user.Groups, Method: user.Method, Expires: s.Now().Add(s.Lifetime).UTC().Truncate(time.Second)}
}

// Token begins a session for a command line.
func (s *Sessions) Token(user auth.Caller) (token string, expires time.Time, err error) {
	begun := s.begin(user)
	sealed, err := s.Keys.Seal(tokenPurpose, begun)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("beginning a session for user %q: %w", user.Name, err)
	}
	return tokenPrefix + sealed, begun.Expires, nil
}

// SetCookie begins a session for a browser.
func (s *Sessions) SetCookie(w http.ResponseWriter, user auth.Caller) error {
	fits, err := s.setCookie(w, s.begin(user))
	if err != nil {
		return fmt.Errorf("beginning a session for user %q: %w", user.Name, err)
	}
	if !fits {
		return fmt.Errorf("beginning a session for user %.64q: the names of %d groups do not fit in a cookie; make the identity provider tell the hub of fewer", user.Name, len(user.Groups))
	}
	return nil
}

// KeepToken begins a session for a browser whose user brought a token. The session is no better than the token: when that is taken back, or
// ends, so does the session.
func (s *Sessions) KeepToken(w http.ResponseWriter, token string) error {
	begun := s.begin(auth.Caller{Method: auth.TokenMethod})
	begun.Token = token
	fits, err := s.setCookie(w, begun)
	if err != nil {
		return fmt.Errorf("beginning a session for a token: %w", err)
	}
	if !fits {
		return fmt.Errorf("beginning a session for a token: its %d bytes do not fit in a cookie; bring a shorter one", len(token))
	}
	return nil
}

func (s *Sessions) setCookie(w http.ResponseWriter, begun session) (fits bool, err error) {
	sealed, err := s.Keys.Seal(cookiePurpose, begun)
	if err != nil || len(sealed) > maxCookie {
		return false, err
	}
	http.SetCookie(w, Cookie(CookieName, sealed, s.Lifetime))
	return true, nil
}

// Cookie is a cookie that scripts cannot read, and that other sites cannot send along but by a link to this one. It is deleted if it lasts
// for no time.
func Cookie(name, value string, lasts time.Duration) *http.Cookie {
	age := int(lasts.Seconds())
	if age <= 0 {
		age = -1
	}
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode}
}

// FromCookie says who has the session of a request's cookie; false if the request has none. The browser sends the cookie whoever made it
// send the request, so what changes something must come from a page of the hub.
func (s *Sessions) FromCookie(r *http.Request) (auth.Caller, bool, error) {
	cookie, err := r.Cookie(CookieName)
	if err != nil {
		return auth.Caller{}, false, nil //nolint:nilerr // There is none, which is all that it says.
	}
	caller, err := s.open(r.Context(), cookiePurpose, cookie.Value)
	if err != nil {
		return auth.Caller{}, true, err
	}
	if err := fromOwnPage(r); err != nil {
		return auth.Caller{}, true, connect.NewError(connect.CodePermissionDenied, err)
	}
	return caller, true, nil
}

// Owns implements auth.Bearer.
func (s *Sessions) Owns(token string) bool { return strings.HasPrefix(token, tokenPrefix) }

// Authenticate implements auth.Bearer.
func (s *Sessions) Authenticate(ctx context.Context, token string) (auth.Caller, error) {
	return s.open(ctx, tokenPurpose, strings.TrimPrefix(token, tokenPrefix))
}

func (s *Sessions) open(ctx context.Context, purpose, text string) (auth.Caller, error) {
	var opened session
	if err := s.Keys.Open(purpose, text, &opened); err != nil {
		return auth.Caller{}, auth.Unauthenticated(fmt.Sprintf("the session is not valid, since %s: sign in again", err))
	}
	if !s.Now().Before(opened.Expires) {
		return auth.Caller{}, auth.Unauthenticated(fmt.Sprintf("the session ended at %s: sign in again", opened.Expires.Format(time.RFC3339)))
	}
	if opened.Token != "" {
		return s.ofToken(ctx, opened)
	}
	return auth.Caller{Name: opened.Name, Groups: opened.Groups, Method: opened.Method, Expires: opened.Expires}, nil
}

// ofToken asks whose the token of a session is now.
func (s *Sessions) ofToken(ctx context.Context, opened session) (auth.Caller, error) {
	if s.Tokens == nil {
		return auth.Caller{}, auth.Unauthenticated("this hub takes no tokens of others: sign in again")
	}
	caller, err := s.Tokens(ctx, opened.Token)
	if err != nil {
		return auth.Caller{}, err
	}
	if caller.Expires.IsZero() || opened.Expires.Before(caller.Expires) {
		caller.Expires = opened.Expires
	}
	return caller, nil
}
