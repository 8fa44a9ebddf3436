// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stateService is the resource API of the node that a call is for.
type stateService struct {
	cosiv1alpha1.UnimplementedStateServer
}

func stateOf(ctx context.Context) cosiv1alpha1.StateServer { return nodeFrom(ctx).current().server }

// Get implements the resource API.
func (stateService) Get(ctx context.Context, req *cosiv1alpha1.GetRequest) (*cosiv1alpha1.GetResponse, error) {
	return stateOf(ctx).Get(ctx, req)
}

// List implements the resource API.
func (stateService) List(req *cosiv1alpha1.ListRequest, stream grpc.ServerStreamingServer[cosiv1alpha1.ListResponse]) error {
	return stateOf(stream.Context()).List(req, stream)
}

// Watch implements the resource API.
func (stateService) Watch(req *cosiv1alpha1.WatchRequest, stream grpc.ServerStreamingServer[cosiv1alpha1.WatchResponse]) error {
	return stateOf(stream.Context()).Watch(req, stream)
}

// Create refuses, as Talos does.
func (stateService) Create(context.Context, *cosiv1alpha1.CreateRequest) (*cosiv1alpha1.CreateResponse, error) {
	return nil, errReadOnly
}

// Update refuses, as Talos does.
func (stateService) Update(context.Context, *cosiv1alpha1.UpdateRequest) (*cosiv1alpha1.UpdateResponse, error) {
	return nil, errReadOnly
}

// Destroy refuses, as Talos does.
func (stateService) Destroy(context.Context, *cosiv1alpha1.DestroyRequest) (*cosiv1alpha1.DestroyResponse, error) {
	return nil, errReadOnly
}

var errReadOnly = status.Error(codes.PermissionDenied, "write access is not allowed")

// access is the rule for reading resources: known types only, and secrets for administrators only.
func access(ctx context.Context, a state.Access) error {
	c := callFrom(ctx)
	if err := c.refused(a.ResourceType, "before"); err != nil {
		return err
	}
	sensitive, ok := c.node.cluster.Registry.of(c.node.State().Running).types[a.ResourceType]
	if !ok {
		return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", a.ResourceType)
	}
	roles, _ := role.Parse(c.caller.roles)
	if sensitive && !roles.Includes(role.Admin) {
		return errNotAuthorized
	}
	c.node.reveal(a.ResourceType)
	return nil
}
