// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// serviceSince says with which minor of Talos 1 a service came. What is not listed has always been there.
var serviceSince = map[string]uint64{
	"machine.DebugService":     13,
	"machine.ImageService":     13,
	"machine.LifecycleService": 13,
}

// offered refuses calls of services that the node's version does not have, in the words of a server that never heard of them.
func (c *call) offered() error {
	service, _, _ := strings.Cut(strings.TrimPrefix(c.method, "/"), "/")
	if !c.node.State().Running.AtLeast(serviceSince[service]) {
		return status.Errorf(codes.Unimplemented, "unknown service %s", service)
	}
	return nil
}

func offerUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := callFrom(ctx).offered(); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func offerStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := callFrom(stream.Context()).offered(); err != nil {
		return err
	}
	return next(srv, stream)
}
