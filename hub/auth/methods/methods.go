// SPDX-License-Identifier: Apache-2.0

// Package methods puts the ways to sign in together.
package methods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/auth/idp"
	"ichor.maesh.dev/hub/hub/auth/link"
	"ichor.maesh.dev/hub/hub/auth/session"
	"ichor.maesh.dev/hub/hub/auth/token"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// LogoutPath ends the session of a browser.
const LogoutPath = "/auth/logout"

// recheck is how long a call may go on with credentials that are no longer good.
const recheck = time.Minute

// lookTimeout bounds the look at an identity provider for who asks how to sign in: a provider that is down is not waited for.
const lookTimeout = 2 * time.Second

// public needs no credentials: how to sign in, and whether the hub is well.
var public = []string{ichorv1alpha1connect.HubServiceGetHubProcedure, "/grpc.health.v1.Health/"}

// Options say which ways there are.
type Options struct {
	// Config is the hub's own access to the management API, which is asked whose a token is.
	Config *rest.Config

	// Audiences are those of which a token of the management API must be for one; none is the management API itself.
	Audiences []string

	// ExternalURL is where people reach the hub, such as https://ichor.example.com. Only an identity provider needs it.
	ExternalURL string

	// Keys seal sessions. All replicas have the same.
	Keys session.Keys

	// Lifetime is how long a session lasts; 0 means session.DefaultLifetime.
	Lifetime time.Duration

	// OIDC is the identity provider, nil where there is none.
	OIDC *idp.Options

	// Link takes one-time links, nil where there are none. The links are files of one hub, so it must be the only replica.
	Link *link.Options

	// TrustedProxies are those whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix

	// Recheck is how often the credentials of a call that goes on are looked at again; 0 means once a minute.
	Recheck time.Duration

	// Now tells the time; nil is time.Now.
	Now func() time.Time
}

// Methods are the ways to sign in to a hub.
type Methods struct {
	guard    *auth.Guard
	sessions *session.Sessions
	provider *idp.Provider
	link     *link.Handler
}

// New puts the ways together. It asks nobody anything yet.
func New(o Options) (*Methods, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	sessions, err := o.sessions()
	if err != nil {
		return nil, err
	}
	m := &Methods{sessions: sessions}
	sessions.Tokens = func(ctx context.Context, token string) (auth.Caller, error) { return m.guard.Bearer(ctx, token) }
	m.guard = &auth.Guard{
		Bearers: []auth.Bearer{sessions}, Cookie: sessions.FromCookie, Public: public, Proxies: o.TrustedProxies,
		Refusals: auth.NewRefusals(o.Now), Recheck: cmp.Or(o.Recheck, recheck),
	}
	if o.OIDC != nil {
		if m.provider, err = o.provider(sessions); err != nil {
			return nil, err
		}
		m.guard.Bearers = append(m.guard.Bearers, m.provider)
	}
	if o.Link != nil {
		m.link = link.NewHandler(*o.Link, sessions)
	}
	clients, err := kubernetes.NewForConfig(unlimited(o.Config))
	if err != nil {
		return nil, fmt.Errorf("creating client to review tokens with: %w", err)
	}
	// The last one, since it takes every token that is nobody else's.
	m.guard.Bearers = append(m.guard.Bearers, token.NewReviewer(clients.AuthenticationV1().TokenReviews(), o.Audiences, now(o.Now)))
	return m, nil
}

func (o Options) sessions() (*session.Sessions, error) {
	if o.Lifetime == 0 {
		o.Lifetime = session.DefaultLifetime
	}
	if o.Lifetime < time.Minute || o.Lifetime > session.MaxLifetime {
		return nil, fmt.Errorf("lifetime of sessions %s: want %s to %s", o.Lifetime, time.Minute, session.MaxLifetime)
	}
	if o.Keys.Empty() {
		return nil, errors.New("session key: there is none")
	}
	return &session.Sessions{Keys: o.Keys, Lifetime: o.Lifetime, Now: o.Now}, nil
}

func (o Options) provider(sessions *session.Sessions) (*idp.Provider, error) {
	hub, err := url.Parse(o.ExternalURL)
	if err != nil || hub.Scheme != "https" || hub.Host == "" || (hub.Path != "" && hub.Path != "/") {
		return nil, fmt.Errorf("external URL %q: an identity provider needs it to send people back to, such as https://ichor.example.com", o.ExternalURL)
	}
	return idp.New(*o.OIDC, o.ExternalURL, sessions)
}

// unlimited leaves it to the management API what it can take.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

// now is a clock.
type now func() time.Time

// Now tells the time.
func (n now) Now() time.Time { return n() }

// Guard returns a handler that lets nobody through whom it does not know, but to say how to sign in.
func (m *Methods) Guard(next http.Handler) http.Handler { return m.guard.Wrap(next) }

// Handler serves what browsers sign in and out by, below /auth/.
func (m *Methods) Handler() http.Handler {
	mux := http.NewServeMux()
	if m.provider != nil {
		mux.HandleFunc("GET "+idp.LoginPath, m.provider.Login)
		mux.HandleFunc("GET "+idp.CallbackPath, m.provider.Callback)
	}
	if m.link != nil {
		mux.Handle(link.Path, m.link)
	}
	mux.HandleFunc("POST "+TokenPath, m.keepToken)
	mux.HandleFunc("POST "+LogoutPath, m.logout)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		header.Set("Referrer-Policy", "same-origin") // A link's code goes nowhere else, and a form still says where it comes from.
		header.Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

// logout makes the browser forget its session. Another site must not do that to somebody.
func (m *Methods) logout(w http.ResponseWriter, r *http.Request) {
	if err := session.FromOwnSite(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	http.SetCookie(w, session.Cookie(session.CookieName, "", 0))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// SignIn says how people sign in.
func (m *Methods) SignIn(ctx context.Context) *pb.SignIn {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s := &pb.SignIn{Token: true, Link: m.link != nil}
	if m.provider != nil {
		o := m.provider.Options()
		s.Oidc = &pb.SignIn_Oidc{Issuer: o.Issuer, ClientId: o.CLIClientID, Scopes: o.Scopes, Device: m.provider.HasDevices(ctx)}
	}
	return s
}
