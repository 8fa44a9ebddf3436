// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/machine"
)

// imageService is ImageService of the node that a call is for.
type imageService struct {
	machineapi.UnimplementedImageServiceServer
}

// Pull fetches an image; the last message has its resolved name.
func (imageService) Pull(req *machineapi.ImageServicePullRequest, stream grpc.ServerStreamingServer[machineapi.ImageServicePullResponse]) error {
	if err := stream.Send(pullProgress()); err != nil {
		return err
	}
	image, err := nodeFrom(stream.Context()).Pull(stream.Context(), req.GetImageRef())
	if err != nil {
		return pullError(err)
	}
	return stream.Send(&machineapi.ImageServicePullResponse{
		Response: &machineapi.ImageServicePullResponse_Name{Name: image.Resolved},
	})
}

func pullProgress() *machineapi.ImageServicePullResponse {
	return &machineapi.ImageServicePullResponse{
		Response: &machineapi.ImageServicePullResponse_PullProgress{
			PullProgress: &machineapi.ImageServicePullProgress{
				LayerId:  "sha256:layer",
				Progress: &machineapi.ImageServicePullLayerProgress{Total: 90 << 20},
			},
		},
	}
}

func pullError(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, machine.ErrInvalidReference):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, machine.ErrNoSuchImage):
		return status.Error(codes.NotFound, "failed to pull image: "+err.Error())
	}
	return status.Error(codes.Internal, "failed to pull image: "+err.Error())
}

// List lists the images that were pulled.
func (imageService) List(_ *machineapi.ImageServiceListRequest, stream grpc.ServerStreamingServer[machineapi.ImageServiceListResponse]) error {
	for _, image := range nodeFrom(stream.Context()).Images() {
		if err := stream.Send(&machineapi.ImageServiceListResponse{Name: image.Name, Digest: image.Digest, Size: 90 << 20}); err != nil {
			return err
		}
	}
	return nil
}
