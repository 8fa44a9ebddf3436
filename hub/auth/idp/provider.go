// SPDX-License-Identifier: Apache-2.0

package idp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/session"
)

// Provider is an identity provider as the hub knows it. It is looked up when it is first needed, and again as long as it does not answer:
// a provider that is down keeps no hub from starting.
type Provider struct {
	options     Options
	redirectURL string
	sessions    *session.Sessions
	now         func() time.Time

	found   atomic.Pointer[oidc.Provider]
	looking singleflight.Group
}

// New returns a Provider whose browsers come back to a path below the hub's own URL.
func New(o Options, hub string, sessions *session.Sessions) (*Provider, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	return &Provider{options: o, redirectURL: strings.TrimSuffix(hub, "/") + CallbackPath, sessions: sessions, now: sessions.Now}, nil
}

// Options are those of the provider, with nothing left to be filled in.
func (p *Provider) Options() Options { return p.options }

// HasDevices says whether the provider has the device flow; one that does not answer has none.
func (p *Provider) HasDevices(ctx context.Context) bool {
	found, err := p.Discover(ctx)
	return err == nil && found.Endpoint().DeviceAuthURL != ""
}

// Discover looks the provider up.
func (p *Provider) Discover(ctx context.Context) (*oidc.Provider, error) {
	if found := p.found.Load(); found != nil {
		return found, nil
	}
	looked := p.looking.DoChan("", func() (any, error) {
		found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.options.HTTPClient), p.options.Issuer)
		if err == nil {
			p.found.Store(found)
		}
		return found, err
	})
	select {
	case result := <-looked:
		if result.Err != nil {
			return nil, fmt.Errorf("looking up identity provider %s: %w", p.options.Issuer, result.Err)
		}
		return result.Val.(*oidc.Provider), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("looking up identity provider %s: %w", p.options.Issuer, ctx.Err())
	}
}

// Owns implements auth.Bearer: the provider's tokens name it as their issuer.
func (p *Provider) Owns(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	return json.Unmarshal(payload, &claims) == nil && claims.Issuer == p.options.Issuer
}

// Authenticate implements auth.Bearer for the ID tokens of the command line.
func (p *Provider) Authenticate(ctx context.Context, token string) (auth.Caller, error) {
	provider, err := p.Discover(ctx)
	if err != nil {
		return auth.Caller{}, connect.NewError(connect.CodeUnavailable, err)
	}
	verified, err := p.verify(ctx, provider, token, p.options.CLIClientID)
	if err != nil {
		return auth.Caller{}, err
	}
	caller, err := p.options.caller(verified)
	if err != nil {
		return auth.Caller{}, connect.NewError(connect.CodeUnauthenticated, err)
	}
	return caller, nil
}

// verify checks the signature, the issuer, the audience and the expiry of an ID token.
func (p *Provider) verify(ctx context.Context, provider *oidc.Provider, token, audience string) (*oidc.IDToken, error) {
	verified, err := provider.Verifier(&oidc.Config{ClientID: audience, Now: p.now}).Verify(ctx, token)
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return nil, auth.Unauthenticated(fmt.Sprintf("the ID token expired at %s: sign in again", expired.Expiry.UTC().Format(time.RFC3339)))
	case err != nil:
		return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("verifying the ID token: %w", err))
	}
	return verified, nil
}

func (p *Provider) oauth2(provider *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.options.ClientID, ClientSecret: p.options.ClientSecret, Endpoint: provider.Endpoint(),
		RedirectURL: p.redirectURL, Scopes: p.options.Scopes,
	}
}
