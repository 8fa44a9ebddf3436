// SPDX-License-Identifier: Apache-2.0

package idp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/session"
)

const (
	// LoginPath is where browsers begin to sign in.
	LoginPath = "/auth/login"

	// CallbackPath is where the provider sends them back to.
	CallbackPath = "/auth/callback"

	// ReturnParameter names the page to show afterwards.
	ReturnParameter = "return"

	// attemptCookie and the beginning of the state name the cookie of an attempt to sign in, so that several may go on in a browser.
	attemptCookie   = "__Host-ichor-login-"
	attemptPurpose  = "login-attempt/v1"
	attemptLifetime = 10 * time.Minute
	stateInName     = 8
)

// attempt is what the browser keeps, sealed, between leaving for the provider and coming back.
type attempt struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Return   string    `json:"return"`
	Expires  time.Time `json:"expires"`
}

// Login sends a browser to the provider.
func (p *Provider) Login(w http.ResponseWriter, r *http.Request) {
	back, err := localPath(r.URL.Query().Get(ReturnParameter))
	if err != nil {
		auth.Sorry(w, r, err.Error(), http.StatusBadRequest)
		return
	}
	provider, err := p.Discover(r.Context())
	if err != nil {
		auth.Sorry(w, r, err.Error(), http.StatusBadGateway)
		return
	}
	begun := attempt{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Return: back,
		Expires: p.now().Add(attemptLifetime),
	}
	sealed, err := p.sessions.Keys.Seal(attemptPurpose, begun)
	if err != nil {
		auth.Sorry(w, r, err.Error(), http.StatusInternalServerError)
		return
	}
	http.SetCookie(w, session.Cookie(cookieOf(begun.State), sealed, attemptLifetime))
	to := p.oauth2(provider).AuthCodeURL(begun.State, oidc.Nonce(begun.Nonce), oauth2.S256ChallengeOption(begun.Verifier))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// Callback takes a browser back from the provider, and begins its session.
func (p *Provider) Callback(w http.ResponseWriter, r *http.Request) {
	begun, err := p.attempt(r)
	if err != nil {
		auth.Sorry(w, r, err.Error(), http.StatusBadRequest)
		return
	}
	// Whatever comes of it, the attempt is over.
	http.SetCookie(w, session.Cookie(cookieOf(begun.State), "", 0))
	if refusal := r.URL.Query().Get("error"); refusal != "" {
		auth.Sorry(w, r, fmt.Sprintf("the identity provider refused: %.64q %.128q", refusal, r.URL.Query().Get("error_description")), http.StatusForbidden)
		return
	}
	user, err := p.exchange(r.Context(), r.URL.Query().Get("code"), begun)
	if err != nil {
		auth.Sorry(w, r, fmt.Sprintf("signing in: %s; begin again at %s", err, LoginPath), http.StatusForbidden)
		return
	}
	if err := p.sessions.SetCookie(w, user); err != nil {
		auth.Sorry(w, r, err.Error(), http.StatusForbidden)
		return
	}
	http.Redirect(w, r, begun.Return, http.StatusSeeOther)
}

// attempt is the one that a callback ends: the browser that comes back is the one that left.
func (p *Provider) attempt(r *http.Request) (attempt, error) {
	again := fmt.Errorf("this is not the end of an attempt to sign in from this browser, or it took longer than %s; begin again at %s", attemptLifetime, LoginPath)
	state := r.URL.Query().Get("state")
	if len(state) < stateInName {
		return attempt{}, again
	}
	cookie, err := r.Cookie(cookieOf(state))
	if err != nil {
		return attempt{}, again
	}
	var begun attempt
	if err := p.sessions.Keys.Open(attemptPurpose, cookie.Value, &begun); err != nil {
		return attempt{}, again
	}
	if subtle.ConstantTimeCompare([]byte(begun.State), []byte(state)) != 1 || !p.now().Before(begun.Expires) {
		return attempt{}, again
	}
	return begun, nil
}

// exchange turns a code into the user whom the provider means.
func (p *Provider) exchange(ctx context.Context, code string, begun attempt) (auth.Caller, error) {
	provider, err := p.Discover(ctx)
	if err != nil {
		return auth.Caller{}, err
	}
	ctx = oidc.ClientContext(ctx, p.options.HTTPClient)
	tokens, err := p.oauth2(provider).Exchange(ctx, code, oauth2.VerifierOption(begun.Verifier))
	if err != nil {
		return auth.Caller{}, fmt.Errorf("exchanging the code: %w", err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	if raw == "" {
		return auth.Caller{}, errors.New("the identity provider gave no ID token")
	}
	token, err := p.verify(ctx, provider, raw, p.options.ClientID)
	if err != nil {
		return auth.Caller{}, err
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(begun.Nonce)) != 1 {
		return auth.Caller{}, errors.New("the ID token is of another attempt")
	}
	return p.options.caller(token)
}

func cookieOf(state string) string { return attemptCookie + state[:stateInName] }

// localPath is a page of the hub; others are refused, so that no link to the hub leads elsewhere. Browsers read backslashes as slashes, and
// leave out tabs and ends of lines.
func localPath(back string) (string, error) {
	if back == "" {
		return "/", nil
	}
	u, err := url.Parse(back)
	local := err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && strings.HasPrefix(back, "/") && !strings.HasPrefix(back, "//") &&
		!strings.ContainsFunc(back, func(c rune) bool { return c == '\\' || c <= ' ' || c == 0x7f })
	if !local {
		return "", fmt.Errorf("parameter %s=%.64q: want a path of the hub, such as /clusters", ReturnParameter, back)
	}
	return back, nil
}
