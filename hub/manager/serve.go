// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes"
	"ichor.maesh.dev/hub/hub/access"
	"ichor.maesh.dev/hub/hub/audit"
	"ichor.maesh.dev/hub/hub/auth/methods"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/server"
	"ichor.maesh.dev/hub/hub/service"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Serving says how to serve the hub's services. Every replica serves them, whichever leads.
type Serving struct {
	// Listener is where connections come in. Run closes it.
	Listener net.Listener

	// Certificates serve HTTPS; nil serves plain HTTP.
	Certificates server.Certificates

	// ExternalURL is how browsers know the hub, nil if that is how it listens.
	ExternalURL *url.URL

	// SignIn are the ways to sign in. Run fills in the access to the management API.
	SignIn methods.Options

	// Hub is what the hub says of itself; how to sign in is added.
	Hub *pb.GetHubResponse

	// UI serves the page; nil serves a hint that there is none.
	UI http.Handler

	// Audit bounds what is kept of the audit.
	Audit audit.Limits
}

// everywhere runs on every replica, whichever leads.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e everywhere) NeedLeaderElection() bool { return false }

// hubBackend stands behind the services of a hub.
type hubBackend struct {
	*access.Access

	fleet *fleet.Fleet
	audit *audit.Log
}

// Fleet implements service.Backend: there is one of all namespaces.
func (b *hubBackend) Fleet(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return b.fleet, nil, nil
}

// Audit is what is known of the audit, in all namespaces.
func (b *hubBackend) Audit(context.Context, ...string) (*audit.Log, []*pb.Failure, error) {
	return b.audit, nil, nil
}

// serve serves until ctx ends, and closes the channel after that. It begins before anything is known, and says so at first; when the hub ends,
// streams end at once and not after everything else. A server that fails ends the hub.
func serve(ctx context.Context, mgr ctrl.Manager, config *rest.Config, reach reach, o Options, fail context.CancelCauseFunc) (served <-chan struct{}, err error) {
	over := make(chan struct{})
	if o.Serve == nil {
		close(over)
		return over, nil
	}
	s, err := setUpServing(mgr, config, reach, o.Serve, service.Share{WatchFilter: o.WatchFilter, Namespace: o.Namespace}, o.Installation)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(over)
		if err := s.Run(ctx); err != nil {
			fail(err)
		}
	}()
	return over, nil
}

// setUpServing prepares the server, and what feeds it.
func setUpServing(mgr ctrl.Manager, config *rest.Config, reach reach, o *Serving, share service.Share, own Installation) (*server.Server, error) {
	signIn := o.SignIn
	signIn.Config = config
	ways, err := methods.New(signIn)
	if err != nil {
		return nil, fmt.Errorf("preparing the ways to sign in: %w", err)
	}
	backend, err := setUpBackend(mgr, config)
	if err != nil {
		return nil, err
	}
	log := mgr.GetLogger().WithName("server")
	if err := mgr.Add(&audit.Pruner{Client: mgr.GetClient(), Limits: o.Audit, Clock: clock.RealClock{}}); err != nil {
		return nil, fmt.Errorf("adding what bounds the audit: %w", err)
	}
	reachable, err := reachable(config)
	if err != nil {
		return nil, err
	}
	return server.New(server.Options{
		Services: &service.Server{
			Backend: backend, Now: time.Now, Hub: o.Hub, SignIn: ways.SignIn, Share: share, Previewer: previewer{kubernetes.New(reach.talos, reach.kube, nil)},
			Installation: own.key(),
		},
		Calls:        []connect.HandlerOption{connect.WithInterceptors(audit.Interceptor(audit.NewRecorder(mgr.GetClient(), log.WithName("audit"))))},
		Listener:     o.Listener,
		Certificates: o.Certificates,
		ExternalURL:  o.ExternalURL,
		Guard:        ways.Guard,
		Auth:         ways.Handler(),
		UI:           o.UI,
		Ready:        backend.checks(reachable),
		Log:          log,
	})
}

// setUpBackend prepares what every replica knows.
func setUpBackend(mgr ctrl.Manager, config *rest.Config) (*hubBackend, error) {
	reach, err := access.New(access.Options{Config: config, Reader: mgr.GetCache(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), Clock: clock.RealClock{}})
	if err != nil {
		return nil, fmt.Errorf("preparing the access of callers: %w", err)
	}
	b := &hubBackend{Access: reach, fleet: fleet.New(), audit: audit.NewLog()}
	err = mgr.Add(everywhere(func(ctx context.Context) error { return b.fleet.Start(ctx, mgr.GetCache()) }))
	if err != nil {
		return nil, fmt.Errorf("adding what feeds the fleet: %w", err)
	}
	err = mgr.Add(everywhere(func(ctx context.Context) error { return b.audit.Start(ctx, mgr.GetCache()) }))
	if err != nil {
		return nil, fmt.Errorf("adding what feeds the audit: %w", err)
	}
	return b, nil
}

// checks are what must hold before anybody should be sent to this replica.
func (b *hubBackend) checks(reachable func(context.Context) error) []server.Check {
	return []server.Check{{Name: "fleet", Holds: synced(b.fleet)}, {Name: "audit", Holds: synced(b.audit)}, {Name: "management-api", Holds: reachable}}
}

// synced is a check that what is read in the background has been read once.
func synced(of interface{ Synced() bool }) func(context.Context) error {
	return func(context.Context) error {
		if !of.Synced() {
			return errors.New("not every object has been read yet")
		}
		return nil
	}
}

// reachable returns a check that the management API answers.
func reachable(config *rest.Config) (func(context.Context) error, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to look whether the management API answers: %w", err)
	}
	return func(ctx context.Context) error { return client.RESTClient().Get().AbsPath("/version").Do(ctx).Error() }, nil
}
