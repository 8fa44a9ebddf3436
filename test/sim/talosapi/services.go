// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// newServices makes the server behind the nodes' apid servers. One serves all nodes of a cluster; a metadata key that only
// apid can set says which one is meant.
func newServices(c *Cluster) *grpc.Server {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(c.identifyUnary, recordUnary, offerUnary, authorizeUnary),
		grpc.ChainStreamInterceptor(c.identifyStream, recordStream, offerStream, authorizeStream),
	)
	machineapi.RegisterMachineServiceServer(server, machineService{})
	machineapi.RegisterImageServiceServer(server, imageService{})
	machineapi.RegisterLifecycleServiceServer(server, lifecycleService{})
	clusterapi.RegisterClusterServiceServer(server, clusterService{})
	storageapi.RegisterStorageServiceServer(server, storageService{})
	timeapi.RegisterTimeServiceServer(server, timeService{})
	cosiv1alpha1.RegisterStateServer(server, stateService{})
	return server
}

// call is what the interceptors know about a call.
type call struct {
	node   *node
	method string
	caller caller
}

type callKey struct{}

// callFrom returns the call that a handler serves. Every handler runs behind identify, so there always is one.
func callFrom(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) } //nolint:forcetypeassert // As said.

// nodeFrom returns the node that a handler serves.
func nodeFrom(ctx context.Context) *node { return callFrom(ctx).node }

func (c *Cluster) identify(ctx context.Context, method string) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	names := md[mdSimNode]
	if len(names) != 1 || c.byName[names[0]] == nil {
		return nil, status.Error(codes.Internal, "call without a node")
	}
	who := caller{roles: md[mdRole]}
	if values := md[mdSimCaller]; len(values) > 0 {
		who.name = values[0]
	}
	return context.WithValue(ctx, callKey{}, &call{node: c.byName[names[0]], method: method, caller: who}), nil
}

func (c *Cluster) identifyUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := c.identify(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (c *Cluster) identifyStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := c.identify(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, contextStream{ServerStream: stream, ctx: ctx})
}

// contextStream is a stream with another context.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // grpc hands contexts to stream handlers in no other way.
}

// Context implements grpc.ServerStream.
func (s contextStream) Context() context.Context { return s.ctx }

// errNotAuthorized is Talos's answer to a role that may not call a method.
var errNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

func (c *call) authorize() error {
	roles, _ := role.Parse(c.caller.roles)
	if !roles.IncludesAny(ruleOf(c.method).roles) {
		return errNotAuthorized
	}
	return nil
}

func authorizeUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := callFrom(ctx).authorize(); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func authorizeStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := callFrom(stream.Context()).authorize(); err != nil {
		return err
	}
	return next(srv, stream)
}
