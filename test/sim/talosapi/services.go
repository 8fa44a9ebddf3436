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

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
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
	resp, err := next(ctx, req)
	if lost := callFrom(ctx).refused("", "after"); lost != nil { // The journal knows better.
		return nil, lost
	}
	return resp, err
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
	if err := c.refused("", "before"); err != nil {
		return err
	}
	if c.method == applyInMaintenance && c.node.inMaintenance() {
		return nil // Nobody could have a credential for a machine that knows none.
	}
	roles, _ := role.Parse(c.caller.roles)
	if !roles.IncludesAny(ruleOf(c.method).roles) {
		return errNotAuthorized
	}
	return nil
}

// refused asks whether the call was ordered to fail, as a call or as one for a type of resource.
func (c *call) refused(resource, when string) error {
	f, refused := c.node.cluster.Faults.FireIf(fault.TalosRefused, c.node.Site(), func(f fault.Fault) bool {
		method := journal.Filter{Method: f.Params[fault.ParamMethod]}
		return f.Params[fault.ParamWhen] == when && f.Params[fault.ParamResource] == resource && method.Matches(journal.Entry{Sequence: 1, Method: shortMethod(c.method)})
	})
	if !refused {
		return nil
	}
	return status.Error(refusals[f.Params[fault.ParamCode]], f.Params[fault.ParamMessage])
}

// refusals are the codes that can be ordered.
var refusals = map[string]codes.Code{
	"PermissionDenied": codes.PermissionDenied, "Unimplemented": codes.Unimplemented, "Unavailable": codes.Unavailable,
	"InvalidArgument":    codes.InvalidArgument,
	"FailedPrecondition": codes.FailedPrecondition, "Internal": codes.Internal,
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
