// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// Volume is a volume of a machine.
type Volume struct {
	// ID is its name, such as EPHEMERAL; volumes of users begin with u- or r-.
	ID string

	// Partition volumes have a partition of their own. Others are directories, or lie in memory.
	Partition bool

	// Disk is the path of the disk that it lies on, and System whether that is the disk which Talos booted from.
	Disk   string
	System bool

	// Size is how large it is, in words.
	Size string
}

func (c *connection) Volumes(ctx context.Context, address string) ([]Volume, error) {
	ctx = at(ctx, address)
	list, err := safe.StateListAll[*block.VolumeStatus](ctx, c.client.COSI)
	if err != nil {
		return nil, fmt.Errorf("volumes at %s: %w", address, err)
	}
	system, err := get[*block.SystemDisk](ctx, c, block.NamespaceName, block.SystemDiskType, block.SystemDiskID)
	if err != nil {
		return nil, fmt.Errorf("volumes at %s: %w", address, err)
	}
	var volumes []Volume
	for status := range list.All() {
		spec := status.TypedSpec()
		if spec.Location == "" {
			continue // It is declared, and not there yet.
		}
		volume := Volume{
			ID: status.Metadata().ID(), Partition: spec.Type == block.VolumeTypePartition, Size: spec.PrettySize,
			Disk: cmp.Or(spec.ParentLocation, spec.Location),
		}
		volume.System = system != nil && volume.Disk == system.TypedSpec().DevPath
		volumes = append(volumes, volume)
	}
	slices.SortFunc(volumes, func(a, b Volume) int { return cmp.Compare(a.ID, b.ID) })
	return volumes, nil
}

// Reset is what a reset wipes, and what the machine does then.
type Reset struct {
	// Partitions are the labels of partitions on the system disk, Disks the paths of other disks, which are wiped as a whole.
	Partitions, Disks []string

	// PowerOff powers the machine off afterwards; otherwise it reboots.
	PowerOff bool
}

// Reset asks for nothing graceful: who resets has drained the machine and had its etcd member leave, and looked at both. It never leaves out
// what to wipe: Talos takes that for everything, itself included.
func (c *connection) Reset(ctx context.Context, address string, reset Reset) error {
	request := &machineapi.ResetRequest{Reboot: !reset.PowerOff, UserDisksToWipe: reset.Disks, Mode: machineapi.ResetRequest_ALL}
	switch {
	case len(reset.Partitions) == 0 && len(reset.Disks) == 0:
		return fmt.Errorf("resetting %s: nothing to wipe was named", address)
	case len(reset.Partitions) == 0:
		request.Mode = machineapi.ResetRequest_USER_DISKS
	case len(reset.Disks) == 0:
		request.Mode = machineapi.ResetRequest_SYSTEM_DISK
	}
	for _, label := range reset.Partitions {
		request.SystemPartitionsToWipe = append(request.SystemPartitionsToWipe, &machineapi.ResetPartitionSpec{Label: label, Wipe: true})
	}
	if err := c.client.ResetGeneric(c.guarded(ctx, address), request); err != nil {
		return fmt.Errorf("resetting %s: %w", address, err)
	}
	return nil
}
