// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// EtcdRecover takes a snapshot for the bootstrap that is to begin with it.
func (machineService) EtcdRecover(stream grpc.ClientStreamingServer[common.Data, machineapi.EtcdRecoverResponse]) error {
	n, err := etcdNode(stream.Context(), "etcd recover")
	if err != nil {
		return err
	}
	var snapshot bytes.Buffer
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		snapshot.Write(message.GetBytes())
	}
	if !n.Upload(snapshot.Bytes()) && n.Etcd().Recover(n.Name, snapshot.Bytes()) != nil {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}
	return stream.SendAndClose(&machineapi.EtcdRecoverResponse{Messages: []*machineapi.EtcdRecover{{}}})
}

// Bootstrap begins a cluster of etcd on a control plane that has no data. It answers before that has begun.
func (machineService) Bootstrap(ctx context.Context, req *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	n, err := etcdNode(ctx, "bootstrap")
	if err != nil {
		return nil, err
	}
	if err := n.Wake(ctx); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if n.Etcd().Preparing(n.Name) {
		if _, lost := n.cluster.Faults.Fire(fault.BootstrapLost, n.Site()); lost {
			return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
		}
	}
	switch err := n.Etcd().Bootstrap(n.Name, req.GetRecoverEtcd(), req.GetRecoverSkipHashCheck()); {
	case errors.Is(err, etcd.ErrHasData):
		return nil, status.Error(codes.AlreadyExists, err.Error())
	case errors.Is(err, etcd.ErrNotPreparing):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}
