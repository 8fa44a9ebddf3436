// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// Server implements every service of a hub. The hub serves it to the network, and the command line to itself: who calls, what they may do and
// where the answers come from is the Backend's, and nothing here knows which of the two it is.
type Server struct {
	ichorv1alpha1connect.UnimplementedOperationServiceHandler
	ichorv1alpha1connect.UnimplementedClusterServiceHandler
	ichorv1alpha1connect.UnimplementedHubServiceHandler
	ichorv1alpha1connect.UnimplementedAuditServiceHandler
	ichorv1alpha1connect.UnimplementedSnapshotServiceHandler

	Backend Backend

	// Now tells the time.
	Now func() time.Time

	// Verifier looks at clusters that are imported; nil is verify.Live.
	Verifier Verifier

	// Share is which clusters are this hub's.
	Share Share

	// Previewer asks clusters for what a plan cannot know without them; nil asks nobody.
	Previewer Previewer

	// Installation is the hub's own IchorInstallation; empty where no hub serves.
	Installation client.ObjectKey

	// Watch says how watches behave.
	Watch WatchOptions

	// Hub is what GetHub answers, and SignIn its sign_in; nil means that there is nothing to sign in to.
	Hub    *pb.GetHubResponse
	SignIn func(context.Context) *pb.SignIn
}

// Backend is what stands behind a Server.
type Backend interface {
	// Session begins a call as its caller. Its error is one of Connect.
	Session(ctx context.Context) (*Session, error)

	// Fleet is what is known of every cluster, machine and operation in some namespaces; of all that there are if none is named. A hub keeps
	// one for all callers, so what a caller may see of it is asked of the session's Rights. Failures name what is missing.
	Fleet(ctx context.Context, namespaces ...string) (*fleet.Fleet, []*pb.Failure, error)
}

// Session is what one call sees and changes: all of it as whoever calls.
type Session struct {
	Caller auth.Caller

	// Client reads what the caller may read, and writes as the caller. On a hub it reads from the informers.
	Client client.Client

	// Live reads and writes as the caller, past every cache. What is about to be changed is read through it. nil means that Client does so.
	Live client.Client

	// Rights are the caller's.
	Rights Rights
}

// Rights say what a caller may do. Answers may be some seconds old; what is written is judged by the management API itself.
type Rights interface {
	// May returns nil if the caller may do something, and an error of Connect with code permission_denied that names it otherwise.
	May(ctx context.Context, what authorizationv1.ResourceAttributes) error

	// Readable says which of the namespaces the caller may list a resource of our API group in, such as "talosoperations". What could not be
	// found out is named in failures, and left out.
	Readable(ctx context.Context, resource string, namespaces []string) (readable map[string]bool, failures []*pb.Failure)
}
