// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim/machine"
)

// Reset checks what is to be wiped as Talos does, and starts the reset sequence.
func (machineService) Reset(ctx context.Context, req *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	n := nodeFrom(ctx)
	if err := n.checkReset(req); err != nil {
		return nil, err
	}
	reset := machine.Reset{
		Graceful: req.GetGraceful(), Reboot: req.GetReboot(), System: req.GetMode() != machineapi.ResetRequest_USER_DISKS,
		Disks: req.GetUserDisksToWipe(),
	}
	for _, partition := range req.GetSystemPartitionsToWipe() {
		if partition.GetWipe() {
			reset.Partitions = append(reset.Partitions, partition.GetLabel())
		}
	}
	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: n.Machine.Reset(reset)}}}, nil
}

// checkReset answers in Talos's words, which have no code of their own.
func (n *node) checkReset(req *machineapi.ResetRequest) error {
	disks, partitions := req.GetUserDisksToWipe(), req.GetSystemPartitionsToWipe()
	switch {
	case len(disks) > 0 && req.GetMode() == machineapi.ResetRequest_SYSTEM_DISK:
		return status.Error(codes.Unknown, "reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
	case len(partitions) > 0 && req.GetMode() == machineapi.ResetRequest_USER_DISKS:
		return status.Error(codes.Unknown, "reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter")
	}
	known := map[string]bool{}
	for _, disk := range n.diskList() {
		known[disk.path] = true
	}
	for _, path := range disks {
		switch {
		case !known[path]:
			return status.Errorf(codes.Unknown, "reset user disk failed: device %s wasn't found", path)
		case path == diskPath:
			return status.Errorf(codes.Unknown, "reset user disk failed: device %s is the system disk", path)
		}
	}
	for _, partition := range partitions {
		if !n.hasVolume(partition.GetLabel()) {
			return status.Errorf(codes.Unknown, "failed to get volume status with label %q: resource %s(runtime/%s@undefined) doesn't exist",
				partition.GetLabel(), block.VolumeStatusType, partition.GetLabel())
		}
	}
	return nil
}
