// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"ichor.maesh.dev/hub/hub/auth/idp"
)

// providerTimeout bounds a request to an identity provider.
const providerTimeout = 10 * time.Second

// oidcOptions are the flags about an identity provider.
type oidcOptions struct {
	idp.Options

	secretFile, caFile string
}

// addTo adds the flags, which mean what those of kube-apiserver mean.
func (o *oidcOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.Issuer, "oidc-issuer-url", "", "URL of the OpenID Connect provider that people sign in with")
	flags.StringVar(&o.ClientID, "oidc-client-id", "", "client ID of the hub, for browsers")
	flags.StringVar(&o.secretFile, "oidc-client-secret-file", "", "file with the secret of that client (default: it has none)")
	flags.StringVar(&o.CLIClientID, "oidc-cli-client-id", "", "client ID of ichor, which has no secret (default: that of the hub)")
	flags.StringSliceVar(&o.Scopes, "oidc-scopes", nil, fmt.Sprintf("scopes to ask for (default %s)", strings.Join(idp.DefaultScopes, ",")))
	flags.StringVar(&o.UsernameClaim, "oidc-username-claim", "", `claim that names the user (default "sub")`)
	flags.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "", `what stands before it; "-" for nothing (default: the issuer and "#", or nothing if the claim is "email")`)
	flags.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim that names the user's groups (default: no groups)")
	flags.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "", "what stands before each group")
	flags.StringVar(&o.caFile, "oidc-ca-file", "", "certificates that the provider is trusted by (default: those of the system)")
}

func (o *oidcOptions) check(hasURL bool) error {
	if o.Issuer == "" {
		for _, flag := range [][2]string{
			{"--oidc-client-id", o.ClientID}, {"--oidc-client-secret-file", o.secretFile}, {"--oidc-cli-client-id", o.CLIClientID},
			{"--oidc-scopes", strings.Join(o.Scopes, ",")}, {"--oidc-username-claim", o.UsernameClaim}, {"--oidc-username-prefix", o.UsernamePrefix},
			{"--oidc-groups-claim", o.GroupsClaim}, {"--oidc-groups-prefix", o.GroupsPrefix}, {"--oidc-ca-file", o.caFile},
		} {
			if flag[1] != "" {
				return fmt.Errorf("%s %q: it is about a provider, which --oidc-issuer-url has to name", flag[0], flag[1])
			}
		}
		return nil
	}
	issuer, err := url.Parse(o.Issuer)
	switch {
	case err != nil || issuer.Scheme != "https" || issuer.Host == "":
		return fmt.Errorf("--oidc-issuer-url %q: want a URL that begins with https://", o.Issuer)
	case o.ClientID == "":
		return errors.New("--oidc-client-id: it is needed with --oidc-issuer-url")
	case !hasURL:
		return errors.New("--external-url: it is needed with --oidc-issuer-url, for the way back from the provider")
	}
	return nil
}

// options name the identity provider; nil if there is none.
func (o *oidcOptions) options() (*idp.Options, error) {
	if o.Issuer == "" {
		return nil, nil //nolint:nilnil // There is none.
	}
	named := o.Options
	if o.secretFile != "" {
		secret, err := os.ReadFile(o.secretFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-client-secret-file: %w", err)
		}
		if named.ClientSecret = strings.TrimSpace(string(secret)); named.ClientSecret == "" {
			return nil, fmt.Errorf("--oidc-client-secret-file %s: the file is empty", o.secretFile)
		}
	}
	if o.caFile == "" {
		return &named, nil
	}
	authorities, err := os.ReadFile(o.caFile)
	if err != nil {
		return nil, fmt.Errorf("--oidc-ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("--oidc-ca-file %s: there is no certificate in it", o.caFile)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	named.HTTPClient = &http.Client{Transport: transport, Timeout: providerTimeout}
	return &named, nil
}
