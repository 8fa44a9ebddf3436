// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/audit"
	"ichor.maesh.dev/hub/hub/auth/link"
	"ichor.maesh.dev/hub/hub/auth/methods"
	"ichor.maesh.dev/hub/hub/auth/session"
	"ichor.maesh.dev/hub/hub/manager"
	"ichor.maesh.dev/hub/hub/page"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/standalone"
	"ichor.maesh.dev/hub/hub/standalone/pki"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/ui"
)

const (
	// listenNowhere serves nothing.
	listenNowhere = "0"

	// usualListen and usualStandaloneListen are where a hub listens if nothing is said: a standalone one only for its own machine.
	usualListen, usualStandaloneListen = ":8443", "127.0.0.1:8443"

	// usualSessionSecret is where replicas keep the key of sessions.
	usualSessionSecret = "ichor-hub-session" //nolint:gosec // The name of a Secret is none.
)

// servingOptions are the flags about what the hub serves.
type servingOptions struct {
	listen            string
	certFile, keyFile string
	plain             bool
	externalURL       string
	sessionSecret     string
	sessionLifetime   time.Duration
	tokenAudiences    []string
	trustedProxies    []string
	audit             audit.Limits
	oidc              oidcOptions
}

func (o *servingOptions) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", "", fmt.Sprintf(`address to serve on; "0" serves nothing (default %q with --standalone, otherwise %q)`, usualStandaloneListen, usualListen))
	flags.StringVar(&o.certFile, "tls-cert-file", "", "certificate to serve with, and those that sign it; read again when it changes (default with --standalone: one that signs itself)")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "key of the certificate")
	flags.BoolVar(&o.plain, "insecure-plain-http", false, "serve plain HTTP, on a loopback address only: for a proxy on the same machine")
	flags.StringVar(&o.externalURL, "external-url", "", "URL by which browsers reach the hub, such as https://ichor.example.com (default with --standalone: where it listens)")
	flags.StringVar(&o.sessionSecret, "session-secret", usualSessionSecret, "Secret with the key of sessions, in the namespace of the election; created when missing")
	flags.DurationVar(&o.sessionLifetime, "session-lifetime", session.DefaultLifetime, "how long people stay signed in")
	flags.StringSliceVar(&o.tokenAudiences, "token-audience", nil, "audience that tokens of the management API are for (default: the management API itself)")
	flags.StringSliceVar(&o.trustedProxies, "trusted-proxy", nil, "addresses, such as 10.0.0.0/8, whose X-Forwarded-For header is believed")
	flags.DurationVar(&o.audit.MaxAge, "audit-max-age", audit.DefaultLimits.MaxAge, "how long entries of the audit are kept; 0 keeps them whatever their age")
	flags.IntVar(&o.audit.MaxEntries, "audit-max-entries", audit.DefaultLimits.MaxEntries, "how many entries of the audit are kept in a namespace, beside a tenth of that of what changed nothing and a tenth of what clients report; 0 keeps all")
	flags.IntVar(&o.audit.MaxTotal, "audit-max-total", audit.DefaultLimits.MaxTotal, "how many entries of the audit are kept in all namespaces together; 0 keeps all")
	o.oidc.addTo(flags)
	cmd.MarkFlagsRequiredTogether("tls-cert-file", "tls-private-key-file")
	cmd.MarkFlagsMutuallyExclusive("insecure-plain-http", "tls-cert-file")
	cmd.MarkFlagsMutuallyExclusive("standalone", "session-secret")
}

// check refuses what does not fit together, and fills in where to listen.
func (o *servingOptions) check(isStandalone bool) error {
	if o.listen == "" {
		o.listen = usualListen
		if isStandalone {
			o.listen = usualStandaloneListen
		}
	}
	if o.listen == listenNowhere {
		return nil
	}
	host, _, err := net.SplitHostPort(o.listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen %q: want an address such as 127.0.0.1:8443, or 0 to serve nothing", o.listen)
	case o.plain && !loopback(host):
		return fmt.Errorf("--listen %q: --insecure-plain-http is for a loopback address, such as 127.0.0.1:8080", o.listen)
	case !isStandalone && !o.plain && o.certFile == "":
		return fmt.Errorf("--tls-cert-file: it is needed to serve on %s; give a certificate and its key, or serve nothing with --listen 0", o.listen)
	}
	if err := o.checkBounds(); err != nil {
		return err
	}
	if err := o.checkExternalURL(); err != nil {
		return err
	}
	return o.oidc.check(o.externalURL != "" || isStandalone)
}

// checkBounds refuses what nobody can mean.
func (o *servingOptions) checkBounds() error {
	switch {
	case o.audit.MaxAge < 0:
		return fmt.Errorf("--audit-max-age %s: want 0s or more", o.audit.MaxAge)
	case o.audit.MaxEntries < 0:
		return fmt.Errorf("--audit-max-entries %d: want 0 or more", o.audit.MaxEntries)
	case o.audit.MaxTotal < 0:
		return fmt.Errorf("--audit-max-total %d: want 0 or more", o.audit.MaxTotal)
	case o.sessionLifetime < time.Minute || o.sessionLifetime > session.MaxLifetime:
		return fmt.Errorf("--session-lifetime %s: want %s to %s", o.sessionLifetime, time.Minute, session.MaxLifetime)
	}
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (o *servingOptions) checkExternalURL() error {
	if o.externalURL == "" {
		return nil
	}
	u, err := url.Parse(o.externalURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("--external-url %q: want a URL without a path, such as https://ichor.example.com", o.externalURL)
	}
	o.externalURL = "https://" + u.Host
	return nil
}

// open begins to listen; nil if the hub serves nothing. It comes first of all: an address that is taken is told before anything else starts.
func (o *servingOptions) open(ctx context.Context) (net.Listener, error) {
	if o.listen == listenNowhere {
		return nil, nil //nolint:nilnil // The type has a value for nothing.
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", o.listen, err)
	}
	return listener, nil
}

// hosts are what a standalone hub's own certificate is for; none if it needs no such certificate.
func (o *servingOptions) hosts() []string {
	if o.listen == listenNowhere || o.plain || o.certFile != "" {
		return nil
	}
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if host, _, err := net.SplitHostPort(o.listen); err == nil && !slices.Contains(hosts, host) && !everyAddress(host) {
		hosts = append(hosts, host)
	}
	if name, err := os.Hostname(); err == nil && !slices.Contains(hosts, name) {
		hosts = append(hosts, name)
	}
	if u, err := url.Parse(o.externalURL); err == nil && u.Host != "" && !slices.Contains(hosts, u.Hostname()) {
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

func everyAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// url is where clients find the hub, for people.
func (o *servingOptions) url(listener net.Listener) string {
	if o.externalURL != "" {
		return o.externalURL
	}
	scheme := "https"
	if o.plain {
		scheme = "http"
	}
	address := listener.Addr().(*net.TCPAddr)
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(address.Port))
}

// serving is what both ways to run a hub have in common.
func (o *servingOptions) serving(listener net.Listener, keys session.Keys, certFile, keyFile string) (*manager.Serving, error) {
	s := &manager.Serving{Listener: listener, Audit: o.audit, Hub: &pb.GetHubResponse{Version: version}}
	s.SignIn = methods.Options{Audiences: o.tokenAudiences, ExternalURL: o.externalURL, Keys: keys, Lifetime: o.sessionLifetime}
	var err error
	if s.UI, err = page.Handler(ui.Files()); err != nil {
		return nil, err
	}
	if s.SignIn.TrustedProxies, err = prefixes(o.trustedProxies); err != nil {
		return nil, err
	}
	if s.SignIn.OIDC, err = o.oidc.options(); err != nil {
		return nil, err
	}
	if o.externalURL != "" {
		if s.ExternalURL, err = url.Parse(o.externalURL); err != nil {
			return nil, fmt.Errorf("--external-url: %w", err)
		}
	}
	if !o.plain {
		if s.Certificates, err = certwatcher.New(certFile, keyFile); err != nil {
			return nil, fmt.Errorf("reading the certificate to serve with: %w", err)
		}
	}
	return s, nil
}

// standalone prepares to serve beside the API server that comes with the hub, and tells people where.
func (o *servingOptions) standalone(out io.Writer, dataDir string, instance *standalone.Instance, listener net.Listener) (*manager.Serving, error) {
	if listener == nil {
		return nil, nil //nolint:nilnil // It serves nothing.
	}
	keys, err := session.FileKeys(standalone.SessionKey(dataDir))
	if err != nil {
		return nil, err
	}
	at := o.url(listener)
	if o.oidc.Issuer != "" {
		o.externalURL = at
	}
	certFile, keyFile := o.certFile, o.keyFile
	if certFile == "" {
		certFile, keyFile = instance.Certificate().Pair, instance.Certificate().Pair
	}
	s, err := o.serving(listener, keys, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	s.Hub.Standalone = true
	s.SignIn.Link = &link.Options{Store: link.Store{Dir: standalone.LoginLinks(dataDir)}}
	if err := instance.Announce(at); err != nil {
		return nil, err
	}
	return s, o.tell(out, dataDir, at, certFile)
}

// tell says where the hub is, and how to get in.
func (o *servingOptions) tell(out io.Writer, dataDir, at, certFile string) error {
	if o.plain {
		fmt.Fprintf(out, "Serving: %s\n", at)
	} else {
		fingerprint, err := pki.Fingerprint(certFile)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Serving: %s (certificate SHA-256 %s)\n", at, fingerprint)
	}
	return printLink(out, dataDir, at)
}

// onKubernetes prepares to serve beside other replicas.
func (o *servingOptions) onKubernetes(ctx context.Context, config *rest.Config, namespace string, listener net.Listener) (*manager.Serving, error) {
	if listener == nil {
		return nil, nil //nolint:nilnil // It serves nothing.
	}
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the management API: %w", err)
	}
	keys, err := session.SecretKeys(ctx, c, client.ObjectKey{Namespace: namespace, Name: o.sessionSecret})
	if err != nil {
		return nil, err
	}
	return o.serving(listener, keys, o.certFile, o.keyFile)
}

// prefixes reads --trusted-proxy.
func prefixes(texts []string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if ip, ipErr := netip.ParseAddr(text); ipErr == nil {
			prefix, err = ip.Prefix(ip.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxy %q: want an address such as 10.0.0.1 or 10.0.0.0/8", text)
		}
		list = append(list, prefix)
	}
	return list, nil
}
