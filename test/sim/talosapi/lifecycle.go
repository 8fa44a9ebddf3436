// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/machine"
)

// lifecycleService is LifecycleService of the node that a call is for.
type lifecycleService struct {
	machineapi.UnimplementedLifecycleServiceServer
}

type upgradeStream = grpc.ServerStreamingServer[machineapi.LifecycleServiceUpgradeResponse]

// Install always finds Talos installed.
func (lifecycleService) Install(*machineapi.LifecycleServiceInstallRequest, grpc.ServerStreamingServer[machineapi.LifecycleServiceInstallResponse]) error {
	return status.Error(codes.AlreadyExists, "machine is already installed")
}

// Upgrade runs the installer of an image that was pulled before. The installer outlives the call: a client that goes away
// loses the exit code and nothing else.
func (lifecycleService) Upgrade(req *machineapi.LifecycleServiceUpgradeRequest, stream upgradeStream) error {
	ref := req.GetSource().GetImageName()
	if ref == "" {
		return status.Error(codes.InvalidArgument, "source image is required")
	}
	run, err := nodeFrom(stream.Context()).Install(storeOf(req.GetContainerd()), ref)
	if err != nil {
		return installError(err)
	}
	if err := sendMessages(stream, run.Begun); err != nil {
		return err
	}
	if run.Cut {
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	select {
	case <-run.Done:
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
	if run.Aborted {
		return status.Error(codes.Unavailable, "machine is going down")
	}
	if err := sendMessages(stream, run.Ended); err != nil {
		return err
	}
	return sendProgress(stream, &machineapi.LifecycleServiceInstallProgress{
		Response: &machineapi.LifecycleServiceInstallProgress_ExitCode{ExitCode: run.Code},
	})
}

func installError(err error) error {
	if errors.Is(err, machine.ErrBusy) {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Internal, "upgrade failed: "+err.Error())
}

func sendMessages(stream upgradeStream, messages []string) error {
	for _, m := range messages {
		err := sendProgress(stream, &machineapi.LifecycleServiceInstallProgress{
			Response: &machineapi.LifecycleServiceInstallProgress_Message{Message: m},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func sendProgress(stream upgradeStream, progress *machineapi.LifecycleServiceInstallProgress) error {
	return stream.Send(&machineapi.LifecycleServiceUpgradeResponse{Progress: progress})
}
