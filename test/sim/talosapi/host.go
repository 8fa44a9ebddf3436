// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Memory reports a machine that is half full.
func (machineService) Memory(context.Context, *emptypb.Empty) (*machineapi.MemoryResponse, error) {
	const total = memorySize >> 10 // In KiB, as in /proc/meminfo.
	return &machineapi.MemoryResponse{Messages: []*machineapi.Memory{{Meminfo: &machineapi.MemInfo{
		Memtotal: total, Memfree: total / 4, Memavailable: total / 2, Buffers: total / 64, Cached: total / 4,
	}}}}, nil
}

// storageService is StorageService of the node that a call is for.
type storageService struct {
	storageapi.UnimplementedStorageServiceServer
}

// Disks lists the disks.
func (storageService) Disks(ctx context.Context, _ *emptypb.Empty) (*storageapi.DisksResponse, error) {
	return &storageapi.DisksResponse{Messages: []*storageapi.Disks{{Disks: nodeFrom(ctx).storageDisks()}}}, nil
}

// timeService is TimeService of the node that a call is for. The simulation has one clock.
type timeService struct {
	timeapi.UnimplementedTimeServiceServer
}

// Time asks the configured time server.
func (s timeService) Time(ctx context.Context, _ *emptypb.Empty) (*timeapi.TimeResponse, error) {
	server := constants.DefaultNTPServer
	active, _ := nodeFrom(ctx).Config()
	if c := active.NetworkTimeSyncConfig(); c != nil && len(c.Servers()) > 0 {
		server = c.Servers()[0]
	}
	return s.TimeCheck(ctx, &timeapi.TimeRequest{Server: server})
}

// TimeCheck asks any time server.
func (timeService) TimeCheck(ctx context.Context, req *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	if req.GetServer() == "" {
		return nil, status.Error(codes.InvalidArgument, "ntp server is required")
	}
	now := timestamppb.New(nodeFrom(ctx).cluster.Clock.Now())
	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{Server: req.GetServer(), Localtime: now, Remotetime: now}}}, nil
}
