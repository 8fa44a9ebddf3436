// SPDX-License-Identifier: Apache-2.0

// Package access reaches the management API for those who call a hub, and as them.
//
// Writes go there by impersonation, so its authorizer and its audit decide and know. Reads of what the hub watches anyway come from its
// informers, once the management API has said that the caller may read it.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/recent"
	"ichor.maesh.dev/hub/hub/service"
)

// +kubebuilder:rbac:groups="",resources=users;groups;serviceaccounts,verbs=impersonate
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=*,verbs=impersonate

const (
	// requestTimeout bounds a request to the management API for a caller.
	requestTimeout = 30 * time.Second

	// clients is how many callers' clients are kept, and keptFor how long one is.
	clients, keptFor = 1024, 10 * time.Minute
)

// Options say how the management API is reached.
type Options struct {
	// Config is the hub's own access.
	Config *rest.Config

	// Reader reads from the hub's informers what the hub watches.
	Reader client.Reader

	// Scheme and Mapper know the types.
	Scheme *runtime.Scheme
	Mapper meta.RESTMapper

	// Clock tells the time.
	Clock recent.Clock
}

// Access is the way to the management API for every caller. They share the hub's connections to it.
type Access struct {
	options  Options
	base     http.RoundTripper
	reviewer *reviewer
	clients  *cache.LRUExpireCache
}

// New returns an Access. It asks the management API nothing yet.
func New(o Options) (*Access, error) {
	o.Config = rest.CopyConfig(o.Config)
	// The management API gives every user its share.
	o.Config.QPS = -1
	base, err := rest.TransportFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("preparing connections for callers: %w", err)
	}
	own, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("creating client to review access with: %w", err)
	}
	return &Access{
		options: o, base: base, clients: cache.NewLRUExpireCacheWithClock(clients, o.Clock),
		reviewer: newReviewer(own.AuthorizationV1().SubjectAccessReviews(), o.Clock),
	}, nil
}

// Session begins a call of whoever the context says that it is; nobody else's name is taken.
func (a *Access) Session(ctx context.Context) (*service.Session, error) {
	caller, ok := auth.From(ctx)
	if !ok {
		return nil, auth.Unauthenticated("no credentials: sign in with: ichor login")
	}
	c, err := a.client(caller)
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return &service.Session{Caller: caller, Client: c, Live: c.Client, Rights: rights{reviewer: a.reviewer, caller: caller}}, nil
}

// client is the client of a caller. One is kept for as long as the caller is the same in everything that the management API decides on.
func (a *Access) client(caller auth.Caller) (*guarded, error) {
	as, err := impersonation(caller)
	if err != nil {
		return nil, err
	}
	key, err := keyOf(as)
	if err != nil {
		return nil, err
	}
	if kept, ok := a.clients.Get(key); ok {
		return kept.(*guarded), nil
	}
	writer, err := client.New(a.options.Config, client.Options{
		HTTPClient: &http.Client{Transport: transport.NewImpersonatingRoundTripper(as, a.base), Timeout: requestTimeout},
		Scheme:     a.options.Scheme, Mapper: a.options.Mapper,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the client of user %.64q: %w", caller.Name, err)
	}
	c := &guarded{Client: writer, informers: a.options.Reader, reviewer: a.reviewer, caller: caller}
	a.clients.Add(key, c, keptFor)
	return c, nil
}

// impersonation is whom the management API sees. A request that names nobody would be the hub's own, so there is none without a name.
func impersonation(caller auth.Caller) (transport.ImpersonationConfig, error) {
	if caller.Name == "" {
		return transport.ImpersonationConfig{}, errors.New("the caller has no name")
	}
	for _, group := range caller.Groups {
		if group == "" {
			return transport.ImpersonationConfig{}, fmt.Errorf("user %.64q is in a group without a name", caller.Name)
		}
	}
	return transport.ImpersonationConfig{UserName: caller.Name, UID: caller.UID, Groups: caller.Groups, Extra: caller.Extra}, nil
}
