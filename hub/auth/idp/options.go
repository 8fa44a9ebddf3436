// SPDX-License-Identifier: Apache-2.0

// Package idp knows callers by an OpenID Connect identity provider: people by a browser, command lines by an ID token.
package idp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/standalone/pki"
)

const (
	// providerTimeout bounds a request to the provider.
	providerTimeout = 10 * time.Second

	subjectClaim, emailClaim, verifiedClaim = "sub", "email", "email_verified"

	// noPrefix says that users have no prefix.
	noPrefix = "-"

	// reserved begins the names that Kubernetes gives out itself. An identity provider does not.
	reserved = "system:"
)

// DefaultScopes are what is asked of a provider. Refresh tokens are the command line's, which adds oidc.ScopeOfflineAccess.
var DefaultScopes = []string{oidc.ScopeOpenID, "profile", "email", "groups"}

// Options name an identity provider. They mean what those of kube-apiserver mean, so that a user is the same to both.
type Options struct {
	// Issuer is the provider's URL.
	Issuer string

	// ClientID is the hub's own, for browsers; ClientSecret is empty where the provider gave it none.
	ClientID, ClientSecret string

	// CLIClientID is the command line's, which has no secret; empty means ClientID. ID tokens for it are taken.
	CLIClientID string

	// Scopes are asked for; none means DefaultScopes.
	Scopes []string

	// UsernameClaim names the user; empty means "sub".
	UsernameClaim string

	// UsernamePrefix stands before the claim; empty means the issuer and "#", or nothing if the claim is "email". "-" means nothing.
	UsernamePrefix string

	// GroupsClaim names the user's groups; empty means none. GroupsPrefix stands before each.
	GroupsClaim, GroupsPrefix string

	// HTTPClient reaches the provider; nil is one that trusts the system's certificates.
	HTTPClient *http.Client
}

// complete checks the options and fills in what is not said.
func (o Options) complete() (Options, error) {
	issuer, err := url.Parse(o.Issuer)
	switch {
	case err != nil || issuer.Host == "":
		return o, fmt.Errorf("OIDC issuer %q: want a URL such as https://id.example.com", o.Issuer)
	case issuer.Scheme != "https" && !loopback(issuer):
		return o, fmt.Errorf("OIDC issuer %q: want https", o.Issuer)
	case o.ClientID == "":
		return o, errors.New("OIDC client ID: it is empty")
	}
	o.CLIClientID = cmp.Or(o.CLIClientID, o.ClientID)
	o.UsernameClaim = cmp.Or(o.UsernameClaim, subjectClaim)
	if o.UsernamePrefix == "" && o.UsernameClaim != emailClaim {
		o.UsernamePrefix = o.Issuer + "#"
	}
	o.UsernamePrefix = strings.TrimPrefix(o.UsernamePrefix, noPrefix)
	if len(o.Scopes) == 0 {
		o.Scopes = DefaultScopes
	}
	if !slices.Contains(o.Scopes, oidc.ScopeOpenID) {
		return o, fmt.Errorf("OIDC scopes %q: %s is missing", o.Scopes, oidc.ScopeOpenID)
	}
	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{Timeout: providerTimeout}
	}
	return o, nil
}

// loopback says whether a provider is on this machine, where a test's or a developer's may do without certificates.
func loopback(u *url.URL) bool {
	return slices.Contains([]string{"127.0.0.1", "::1", "localhost"}, u.Hostname())
}

// caller is the user of a token that has been verified.
func (o Options) caller(token *oidc.IDToken) (auth.Caller, error) {
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return auth.Caller{}, fmt.Errorf("reading the claims of the ID token: %w", err)
	}
	name, err := o.username(claims)
	if err != nil {
		return auth.Caller{}, err
	}
	groups, err := o.groups(claims)
	if err != nil {
		return auth.Caller{}, err
	}
	return auth.Caller{Name: name, Groups: auth.WithAuthenticated(groups), Method: auth.OIDCMethod, Expires: token.Expiry}, nil
}

func (o Options) username(claims map[string]any) (string, error) {
	name, _ := claims[o.UsernameClaim].(string)
	if name == "" {
		return "", fmt.Errorf("claim %q of the ID token: want the name of the user", o.UsernameClaim)
	}
	if verified, said := claims[verifiedClaim]; o.UsernameClaim == emailClaim && said && verified != true {
		return "", fmt.Errorf("claim %q of the ID token: the provider has not verified %.64q", emailClaim, name)
	}
	switch name = o.UsernamePrefix + name; {
	case strings.HasPrefix(name, reserved):
		return "", fmt.Errorf("claim %q of the ID token: a user must not be named %.64q, since %s is Kubernetes' own", o.UsernameClaim, name, reserved)
	case name == pki.HubUser: // With its rights in standalone mode they would write its records, and be anybody.
		return "", fmt.Errorf("claim %q of the ID token: a user must not be named %q, since that is the hub's own name", o.UsernameClaim, name)
	}
	return name, nil
}

func (o Options) groups(claims map[string]any) ([]string, error) {
	claim, said := claims[o.GroupsClaim]
	if o.GroupsClaim == "" || !said {
		return nil, nil
	}
	values, isList := claim.([]any)
	if !isList {
		values = []any{claim}
	}
	groups := make([]string, 0, len(values))
	for _, value := range values {
		name, _ := value.(string)
		if name == "" {
			return nil, fmt.Errorf("claim %q of the ID token: want names of groups", o.GroupsClaim)
		}
		group := o.GroupsPrefix + name
		if strings.HasPrefix(group, reserved) {
			return nil, fmt.Errorf("claim %q of the ID token: a group must not be named %.64q, since %s is Kubernetes' own", o.GroupsClaim, group, reserved)
		}
		groups = append(groups, group)
	}
	return groups, nil
}
