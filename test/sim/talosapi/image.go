// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"errors"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
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
	image, err := nodeFrom(stream.Context()).Pull(stream.Context(), storeOf(req.GetContainerd()), req.GetImageRef())
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

// List lists the images that were pulled into one store.
func (imageService) List(req *machineapi.ImageServiceListRequest, stream grpc.ServerStreamingServer[machineapi.ImageServiceListResponse]) error {
	for _, image := range nodeFrom(stream.Context()).Images(storeOf(req.GetContainerd())) {
		if err := stream.Send(&machineapi.ImageServiceListResponse{Name: image.Name, Digest: image.Digest, Size: 90 << 20}); err != nil {
			return err
		}
	}
	return nil
}

// storeOf is the store that a request names.
func storeOf(c *common.ContainerdInstance) machine.Store {
	return machine.Store{Driver: c.GetDriver(), Namespace: c.GetNamespace()}
}

// criStore is the store that the older calls name: they know the containerd of Kubernetes only.
func criStore(namespace common.ContainerdNamespace) machine.Store {
	return machine.Store{Driver: common.ContainerDriver_CRI, Namespace: namespace}
}

// ImagePull is the older way to pull an image.
func (machineService) ImagePull(ctx context.Context, req *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse, error) {
	if _, err := nodeFrom(ctx).Pull(ctx, criStore(req.GetNamespace()), req.GetReference()); err != nil {
		return nil, pullError(err)
	}
	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, nil
}

// ImageList is the older way to list images.
func (machineService) ImageList(req *machineapi.ImageListRequest, stream grpc.ServerStreamingServer[machineapi.ImageListResponse]) error {
	for _, image := range nodeFrom(stream.Context()).Images(criStore(req.GetNamespace())) {
		if err := stream.Send(&machineapi.ImageListResponse{Name: image.Name, Digest: image.Digest, Size: 90 << 20}); err != nil {
			return err
		}
	}
	return nil
}
