// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"connectrpc.com/connect"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// backend is a management API, seen by whoever a kubeconfig names.
type backend struct {
	options Options
	client  client.Client
	rights  *rights

	http      *http.Client
	discovery *discovery.DiscoveryClient

	callerMu sync.Mutex
	caller   *auth.Caller // Set by the first call that succeeds in asking.

	mu     sync.Mutex
	live   map[string]*live
	closed bool
}

func newBackend(o Options) (*backend, error) {
	httpClient, err := rest.HTTPClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the management API: %w", err)
	}
	c, err := client.New(o.Config, client.Options{HTTPClient: httpClient, Scheme: scheme.New()})
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the management API at %s: %w", o.Config.Host, err)
	}
	asked, err := discovery.NewDiscoveryClientForConfigAndClient(o.Config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the management API at %s: %w", o.Config.Host, err)
	}
	return &backend{options: o, client: c, rights: newRights(c), http: httpClient, discovery: asked, live: map[string]*live{}}, nil
}

// identify notes in the context who calls. Which hub this is anybody may ask.
func (b *backend) identify(ctx context.Context, spec connect.Spec) (context.Context, error) {
	if spec.Procedure == ichorv1alpha1connect.HubServiceGetHubProcedure {
		return ctx, nil
	}
	b.callerMu.Lock()
	defer b.callerMu.Unlock()
	if b.caller == nil {
		caller, err := b.whoAmI(ctx)
		if err != nil {
			return nil, err
		}
		b.caller = caller
	}
	return auth.With(ctx, *b.caller), nil
}

// whoAmI asks the management API who the kubeconfig's user is.
func (b *backend) whoAmI(ctx context.Context) (*auth.Caller, error) {
	caller := &auth.Caller{Method: auth.KubeconfigMethod, Client: b.options.Client}
	review := &authenticationv1.SelfSubjectReview{}
	err := b.client.Create(ctx, review)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return caller, nil // They are somebody, whom the management API does not name. It knows what they may do all the same.
	case err != nil:
		return nil, refused(fmt.Errorf("asking the management API at %s who you are: %w", b.options.Config.Host, err))
	}
	user := review.Status.UserInfo
	caller.Name, caller.UID, caller.Groups = user.Username, user.UID, user.Groups
	caller.Extra = make(map[string][]string, len(user.Extra))
	for key, values := range user.Extra {
		caller.Extra[key] = values
	}
	return caller, nil
}

// refused gives an error of the management API the code that it has for callers.
func refused(err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return connect.NewError(connect.CodeUnauthenticated, err)
	case apierrors.IsForbidden(err):
		return connect.NewError(connect.CodePermissionDenied, err)
	case meta.IsNoMatchError(err):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

// Session implements service.Backend.
func (b *backend) Session(ctx context.Context) (*service.Session, error) {
	caller, _ := auth.From(ctx)
	return &service.Session{Caller: caller, Client: b.client, Rights: b.rights.of(caller)}, nil
}

// Fleet implements service.Backend: it is loaded for each call.
func (b *backend) Fleet(ctx context.Context, namespaces ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return fleet.Load(ctx, b.client, b.of(namespaces)...)
}

// of are the namespaces to look at.
func (b *backend) of(namespaces []string) []string {
	if len(namespaces) == 0 {
		return b.options.Namespaces
	}
	return namespaces
}
