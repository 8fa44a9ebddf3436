// SPDX-License-Identifier: Apache-2.0

// Package openid is an OpenID provider for tests: a real one, of a library, with one user who signs in without being asked.
package openid

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"
)

const (
	// HubClient is the client ID of the hub.
	HubClient = "ichor-hub"

	// HubSecret is its secret.
	HubSecret = "the-secret-of-the-hub"

	// CLIClient is the client ID of the command line, which has no secret.
	CLIClient = "ichor-cli"

	subject, password = "subject-1", "not-asked-for"
)

// User is whom the provider signs in.
type User struct {
	Subject, Email string
	EmailVerified  bool
	Claims         map[string]any
}

// Provider is a running provider.
type Provider struct {
	*httptest.Server

	// Issuer is the URL that the provider calls itself.
	Issuer string

	storage *store

	mu       sync.Mutex
	lifetime time.Duration
	user     User
}

// Start starts a provider that ends with the test. callback is the redirect URL of the hub.
func Start(t testing.TB, callback string) *Provider {
	t.Helper()
	p, err := New(callback, "http", "127.0.0.1")
	if err != nil {
		t.Fatalf("making the OpenID provider: %v", err)
	}
	p.Server.Start()
	t.Cleanup(p.Server.Close)
	return p
}

// New makes a provider that listens but does not serve yet. Its issuer has the scheme and the host, and the port that was free.
func New(callback, scheme, host string) (*Provider, error) {
	p := &Provider{lifetime: time.Hour}
	p.SetUser(User{Email: "ada@example.com", EmailVerified: true, Claims: map[string]any{"groups": []string{"platform", "oncall"}}})
	p.Server = httptest.NewUnstartedServer(nil)
	_, port, err := net.SplitHostPort(p.Listener.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("reading the address of the provider: %w", err)
	}
	p.Issuer = scheme + "://" + net.JoinHostPort(host, port)
	p.storage = &store{
		provider: p,
		Storage: storage.NewStorageWithClients(users{p}, map[string]*storage.Client{
			HubClient: storage.WebClient(HubClient, HubSecret, callback),
			CLIClient: storage.NativeClient(CLIClient, "http://127.0.0.1/callback"),
		}),
	}
	handler, err := p.handler(p.Issuer)
	if err != nil {
		return nil, err
	}
	p.Config.Handler = handler
	return p, nil
}

func (p *Provider) handler(issuer string) (http.Handler, error) {
	config := &op.Config{
		CodeMethodS256: true, AuthMethodPost: true, GrantTypeRefreshToken: true,
		SupportedUILocales: []language.Tag{language.English},
		DeviceAuthorization: op.DeviceAuthorizationConfig{
			Lifetime: time.Minute, PollInterval: time.Second, UserFormPath: "/device", UserCode: op.UserCodeBase20,
		},
	}
	if _, err := rand.Read(config.CryptoKey[:]); err != nil {
		return nil, err
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	provider, err := op.NewProvider(config, p.storage, op.StaticIssuer(issuer), op.WithAllowInsecure(), op.WithLogger(quiet))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", provider)
	signedIn, issuers := op.AuthCallbackURL(provider), op.NewIssuerInterceptor(provider.IssuerFromRequest)
	mux.Handle("/login/", issuers.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.FormValue("authRequestID")
		if err := p.storage.CheckUsernamePassword(subject, password, id); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, signedIn(r.Context(), id), http.StatusFound)
	}))
	return mux, nil
}

// SetUser makes the provider sign in somebody else. Without a Subject it is the same one as before.
func (p *Provider) SetUser(user User) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if user.Subject == "" {
		user.Subject = subject
	}
	p.user = user
}

// SetLifetime makes ID tokens last for some time from now on.
func (p *Provider) SetLifetime(lifetime time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lifetime = lifetime
}

func (p *Provider) current() (User, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.user, p.lifetime
}

// Approve is the user who enters a code on another device.
func (p *Provider) Approve(ctx context.Context, code string) error {
	user, _ := p.current()
	return p.storage.CompleteDeviceAuthorization(ctx, code, user.Subject)
}

// store adds what the library's own store leaves out: the device flow of a client, claims, and how long tokens last.
type store struct {
	*storage.Storage
	provider *Provider
}

// GetClientByClientID implements op.Storage.
func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	known, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{Client: known, provider: s.provider}, nil
}

// SetUserinfoFromRequest implements op.CanSetUserinfoFromRequest.
func (s *store) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, _ op.IDTokenRequest, _ []string) error {
	user, _ := s.provider.current()
	info.Subject, info.Email, info.EmailVerified = user.Subject, user.Email, oidc.Bool(user.EmailVerified) // The library leaves false out.
	for name, value := range user.Claims {
		info.AppendClaims(name, value)
	}
	return nil
}

type client struct {
	op.Client
	provider *Provider
}

// GrantTypes implements op.Client.
func (c client) GrantTypes() []oidc.GrantType {
	return append(c.Client.GrantTypes(), oidc.GrantTypeDeviceCode)
}

// IDTokenLifetime implements op.Client.
func (c client) IDTokenLifetime() time.Duration {
	_, lifetime := c.provider.current()
	return lifetime
}

// IDTokenUserinfoClaimsAssertion implements op.Client.
func (c client) IDTokenUserinfoClaimsAssertion() bool { return true }

// IsScopeAllowed implements op.Client.
func (c client) IsScopeAllowed(scope string) bool { return scope == "groups" }

// users know the provider's one user.
type users struct{ provider *Provider }

// GetUserByID implements storage.UserStore.
func (u users) GetUserByID(string) *storage.User { return u.GetUserByUsername("") }

// GetUserByUsername implements storage.UserStore.
func (u users) GetUserByUsername(string) *storage.User {
	user, _ := u.provider.current()
	return &storage.User{ID: user.Subject, Username: user.Subject, Password: password, Email: user.Email, EmailVerified: user.EmailVerified}
}

// ExampleClientID implements storage.UserStore.
func (u users) ExampleClientID() string { return fmt.Sprintf("%s-service", HubClient) }
