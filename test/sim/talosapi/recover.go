// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"errors"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/machine"
)

// EtcdRecover keeps a snapshot for Bootstrap. Each writes over the one before.
func (machineService) EtcdRecover(stream grpc.ClientStreamingServer[common.Data, machineapi.EtcdRecoverResponse]) error {
	n, err := etcdNode(stream.Context(), "etcd recover")
	if err != nil {
		return err
	}
	var data []byte
	for {
		part, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			if err := n.StageRecovery(data); err != nil {
				return recoveryError(err)
			}
			return stream.SendAndClose(&machineapi.EtcdRecoverResponse{Messages: []*machineapi.EtcdRecover{{}}})
		case err != nil:
			return err
		}
		data = append(data, part.GetBytes()...)
	}
}

// Bootstrap begins an etcd. Without a snapshot it begins none here: the simulated clusters have theirs from the start.
func (machineService) Bootstrap(ctx context.Context, req *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	n := nodeFrom(ctx)
	switch {
	case !n.ControlPlane:
		return nil, status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
	case !req.GetRecoverEtcd() && n.State().EtcdPreparing:
		return nil, status.Error(codes.Unimplemented, "bootstrap without a snapshot is not simulated")
	}
	if err := n.Machine.Bootstrap(req.GetRecoverSkipHashCheck()); err != nil {
		return nil, recoveryError(err)
	}
	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

func recoveryError(err error) error {
	switch {
	case errors.Is(err, machine.ErrHasData):
		return status.Error(codes.AlreadyExists, err.Error())
	case errors.Is(err, machine.ErrNotPreparing):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Unknown, err.Error())
}
