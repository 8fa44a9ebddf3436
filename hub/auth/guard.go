// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
)

// maxClient bounds what is kept of a User-Agent.
const maxClient = 128

// Bearer is a method that knows callers by a bearer token.
type Bearer interface {
	// Owns says whether a token is one of this method. It looks at the token's form only, and proves nothing.
	Owns(token string) bool

	// Authenticate says whose a token is. Its error is one of Connect.
	Authenticate(ctx context.Context, token string) (Caller, error)
}

// Guard stands before the services and lets nobody in whom it does not know.
type Guard struct {
	// Bearers are asked in order: the first one that owns a token decides.
	Bearers []Bearer

	// Cookie says who has the session of a request's cookie, and false if the request has none. Its error is one of Connect.
	Cookie func(*http.Request) (Caller, bool, error)

	// Public are the paths that need no credentials; one that ends with a slash stands for all below it.
	Public []string

	// Proxies are those whose X-Forwarded-For is believed.
	Proxies []netip.Prefix

	// Refusals bound what tokens that are no good cost; nil bounds nothing.
	Refusals *Refusals

	// Recheck is how often the credentials of a call that goes on are looked at again: a watch may outlive them by hours.
	Recheck time.Duration
}

// Wrap returns a handler that passes requests on with their Caller in the context, and answers all others in the protocol that they use.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := g.admit(r)
		switch {
		case err != nil:
			refuse(writer, w, r, err)
		case caller == nil:
			next.ServeHTTP(w, r)
		default:
			ctx, end := g.watch(With(r.Context(), *caller), r)
			defer end()
			next.ServeHTTP(w, r.WithContext(ctx))
		}
	})
}

// watch returns a context that ends when the credentials of a request are no longer good; its cause says so. Where nobody can tell, the call
// goes on.
func (g *Guard) watch(ctx context.Context, r *http.Request) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	shown := &http.Request{Method: r.Method, Host: r.Host, Header: r.Header.Clone()} // The handler may do with its own what it likes.
	first := time.AfterFunc(g.Recheck, func() { g.recheck(ctx, shown, cancel) })
	return ctx, func() {
		first.Stop()
		cancel(nil)
	}
}

// recheck looks at credentials again and again until the call is over, or they are no longer good.
func (g *Guard) recheck(ctx context.Context, shown *http.Request, end context.CancelCauseFunc) {
	ticker := time.NewTicker(g.Recheck)
	defer ticker.Stop()
	for {
		_, err := g.authenticate(ctx, shown)
		if code := connect.CodeOf(err); err != nil && (code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied) {
			end(err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// refuse answers a request that is not let in. Whoever sent it is gone if the answer cannot be written.
func refuse(writer *connect.ErrorWriter, w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("Cache-Control", "no-store")
	if connect.CodeOf(err) == connect.CodeUnauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	_ = writer.Write(w, r, err)
}

// admit finds out who sent a request; nil if that does not matter.
func (g *Guard) admit(r *http.Request) (*Caller, error) {
	if err := refusePretence(r.Header); err != nil {
		return nil, err
	}
	if g.public(r.URL.Path) {
		return nil, nil //nolint:nilnil // That is the third way.
	}
	r = g.Sourced(r)
	caller, err := g.authenticate(r.Context(), r)
	if err != nil {
		return nil, err
	}
	caller.Source, caller.Client = g.source(r), client(r)
	return &caller, nil
}

// refusePretence refuses headers in which somebody says who they are. The hub takes nobody's word for it, and it says so rather than to
// answer as if the header were not there: behind a proxy that sets such headers, everybody would else be whoever the proxy signs in as.
func refusePretence(header http.Header) error {
	var found []string
	for name := range header {
		// Header names that a proxy or a client wrote in another way mean the same.
		lower := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if strings.HasPrefix(lower, "impersonate-") || strings.HasPrefix(lower, "x-remote-") {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return connect.NewError(connect.CodePermissionDenied,
		fmt.Errorf("header %.64s is not allowed: the hub does not act for somebody else; sign in as the user that you want to be", found[0]))
}

func (g *Guard) public(path string) bool {
	return slices.ContainsFunc(g.Public, func(public string) bool {
		return path == public || strings.HasSuffix(public, "/") && strings.HasPrefix(path, public)
	})
}

// authenticate finds out who sent a request. Credentials in the header go before a cookie, which the browser sends on its own.
func (g *Guard) authenticate(ctx context.Context, r *http.Request) (Caller, error) {
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		return g.bearer(ctx, values)
	}
	if g.Cookie != nil {
		if caller, found, err := g.Cookie(r); found || err != nil {
			return caller, err
		}
	}
	return Caller{}, Unauthenticated("no credentials: sign in with: ichor login")
}

// Sourced is a request whose context says where it comes from, which bounds how many tokens may be refused.
func (g *Guard) Sourced(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), sourceKey{}, g.source(r)))
}

func (g *Guard) bearer(ctx context.Context, values []string) (Caller, error) {
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Caller{}, Unauthenticated(`header Authorization: want it once, as "Bearer TOKEN"`)
	}
	return g.Bearer(ctx, token)
}

// Bearer says whose a bearer token is; the context is that of a request that is Sourced. Its error is one of Connect.
func (g *Guard) Bearer(ctx context.Context, token string) (Caller, error) {
	for i, method := range g.Bearers {
		if method.Owns(token) {
			return g.Refusals.judge(ctx, i, token, func() (Caller, error) { return method.Authenticate(ctx, token) })
		}
	}
	return Caller{}, Unauthenticated("the bearer token is of no kind that this hub takes")
}

// source is the address that a call came from: the peer, or what the proxies before it say.
func (g *Guard) source(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr // Not from the network.
	}
	source := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		from, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil || !g.proxy(source) {
			break
		}
		source = from.Unmap()
	}
	return source.String()
}

func (g *Guard) proxy(address netip.Addr) bool {
	return slices.ContainsFunc(g.Proxies, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

func client(r *http.Request) string {
	agent := r.UserAgent()
	return strings.ToValidUTF8(agent[:min(len(agent), maxClient)], "")
}

// Unauthenticated says that a call has no credentials that are good, and what to do about it.
func Unauthenticated(message string) error {
	return connect.NewError(connect.CodeUnauthenticated, errors.New(message))
}
