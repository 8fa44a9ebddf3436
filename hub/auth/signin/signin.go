// SPDX-License-Identifier: Apache-2.0

// Package signin signs a command line in to a hub: by an identity provider, or by a link of a hub that has none. It is the side of whoever
// signs in, and trusts nothing that the hub says but where to go.
package signin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	// freshness is how long a token must still be good to be used.
	freshness = 30 * time.Second

	// requestTimeout bounds a request where the caller gives no client.
	requestTimeout = 30 * time.Second
)

// Token is what a command line keeps of having signed in.
type Token struct {
	// Bearer goes with every request.
	Bearer string `json:"bearer"`

	// Refresh gets a new one where there is one.
	Refresh string `json:"refresh,omitempty"`

	// Expires is when Bearer ends.
	Expires time.Time `json:"expires"`
}

// Fresh says whether a token is good for another request.
func (t Token) Fresh(now time.Time) bool {
	return t.Bearer != "" && now.Add(freshness).Before(t.Expires)
}

// Provider is an identity provider, and the command line as it knows it.
type Provider struct {
	Issuer   string
	ClientID string

	// Scopes are asked for beyond openid and offline_access, which are always.
	Scopes []string

	// HTTPClient reaches the provider; nil is one that trusts the system's certificates.
	HTTPClient *http.Client
}

// client is what there is to know to talk to a provider.
type client struct {
	*oauth2.Config
	verifier *oidc.IDTokenVerifier
}

// connect looks the provider up. The context that it returns carries the HTTP client.
func (p Provider) connect(ctx context.Context) (context.Context, client, error) {
	if p.HTTPClient == nil {
		p.HTTPClient = &http.Client{Timeout: requestTimeout}
	}
	ctx = oidc.ClientContext(ctx, p.HTTPClient)
	found, err := oidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return ctx, client{}, fmt.Errorf("looking up identity provider %s: %w", p.Issuer, err)
	}
	config := &oauth2.Config{ClientID: p.ClientID, Endpoint: found.Endpoint(), Scopes: p.scopes()}
	// A command line has no secret, so it names itself in the body: trying out which way a provider likes would use a code up.
	config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	return ctx, client{Config: config, verifier: found.Verifier(&oidc.Config{ClientID: p.ClientID})}, nil
}

func (p Provider) scopes() []string {
	scopes := slices.Clone(p.Scopes)
	for _, needed := range []string{oidc.ScopeOpenID, oidc.ScopeOfflineAccess} {
		if !slices.Contains(scopes, needed) {
			scopes = append(scopes, needed)
		}
	}
	return scopes
}

// token takes the ID token out of a provider's answer. nonce is empty where the flow has none.
func (c client) token(ctx context.Context, answer *oauth2.Token, nonce string) (Token, error) {
	raw, _ := answer.Extra("id_token").(string)
	if raw == "" {
		return Token{}, errors.New("the identity provider gave no ID token")
	}
	verified, err := c.verifier.Verify(ctx, raw)
	if err != nil {
		return Token{}, fmt.Errorf("verifying the ID token: %w", err)
	}
	if verified.Nonce != nonce && nonce != "" {
		return Token{}, errors.New("the ID token is of another attempt to sign in")
	}
	return Token{Bearer: raw, Refresh: answer.RefreshToken, Expires: verified.Expiry}, nil
}

// Device signs in on another device. prompt tells where to go, and the code to enter there.
func (p Provider) Device(ctx context.Context, prompt func(url, code string)) (Token, error) {
	ctx, c, err := p.connect(ctx)
	if err != nil {
		return Token{}, err
	}
	if c.Endpoint.DeviceAuthURL == "" {
		return Token{}, fmt.Errorf("identity provider %s does not sign in on another device: sign in with a browser on this one", p.Issuer)
	}
	device, err := c.DeviceAuth(ctx)
	if err != nil {
		return Token{}, fmt.Errorf("asking identity provider %s for a code: %w", p.Issuer, err)
	}
	url := device.VerificationURIComplete
	if url == "" {
		url = device.VerificationURI
	}
	prompt(url, device.UserCode)
	answer, err := c.DeviceAccessToken(ctx, device)
	if err != nil {
		return Token{}, fmt.Errorf("waiting for the sign-in on another device: %w", err)
	}
	return c.token(ctx, answer, "")
}

// Renew gets a new token by the refresh token of an old one.
func (p Provider) Renew(ctx context.Context, t Token) (Token, error) {
	if t.Refresh == "" {
		return Token{}, errors.New("there is no refresh token: sign in again with: ichor login")
	}
	ctx, c, err := p.connect(ctx)
	if err != nil {
		return Token{}, err
	}
	answer, err := c.TokenSource(ctx, &oauth2.Token{RefreshToken: t.Refresh}).Token()
	if err != nil {
		return Token{}, fmt.Errorf("renewing the sign-in: %w; sign in again with: ichor login", err)
	}
	return c.token(ctx, answer, "")
}

// attempt is what ties a provider's answer to the question.
type attempt struct{ state, nonce, verifier string }

func newAttempt() attempt {
	return attempt{state: rand.Text(), nonce: rand.Text(), verifier: oauth2.GenerateVerifier()}
}
