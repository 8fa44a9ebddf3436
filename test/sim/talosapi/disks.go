// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// The system disk of a machine, and how its partitions share it.
const (
	diskID   = "vda"
	diskPath = "/dev/" + diskID
	diskSize = 40 << 30

	userDiskSize = 10 << 30
)

// volume is a volume with a partition of its own.
type volume struct {
	id        string
	disk      string
	partition int
	size      uint64
	pretty    string
	format    block.FilesystemType
}

var systemVolumes = []volume{
	{id: constants.MetaPartitionLabel, disk: diskPath, partition: 4, size: 1 << 20, pretty: "1.0 MB"},
	{id: constants.StatePartitionLabel, disk: diskPath, partition: 5, size: 100 << 20, pretty: "105 MB", format: block.FilesystemTypeXFS},
	{id: constants.EphemeralPartitionLabel, disk: diskPath, partition: 6, size: 38 << 30, pretty: "41 GB", format: block.FilesystemTypeXFS},
}

// disk is one disk of a machine.
type disk struct {
	id, path, pretty string
	size             uint64
}

// diskList are the disks of a machine, the system disk first, and one for each volume of users.
func (n *node) diskList() []disk {
	list := []disk{{id: diskID, path: diskPath, size: diskSize, pretty: "43 GB"}}
	for i := range n.UserVolumes {
		id := "vd" + string(rune('b'+i))
		list = append(list, disk{id: id, path: "/dev/" + id, size: userDiskSize, pretty: "11 GB"})
	}
	return list
}

// volumeList are the volumes of a machine.
func (n *node) volumeList() []volume {
	list := slices.Clone(systemVolumes)
	for i, id := range n.SystemVolumes {
		list = append(list, volume{id: id, disk: diskPath, partition: 7 + i, size: 2 << 30, pretty: "2.1 GB", format: block.FilesystemTypeXFS})
	}
	for i, name := range n.UserVolumes {
		list = append(list, volume{
			id: constants.UserVolumePrefix + name, disk: n.diskList()[i+1].path, partition: 1, size: userDiskSize, pretty: "11 GB", format: block.FilesystemTypeXFS,
		})
	}
	return list
}

func (n *node) hasVolume(id string) bool {
	return slices.ContainsFunc(n.volumeList(), func(v volume) bool { return v.id == id })
}

// disks describes disks and volumes. A machine in maintenance mode has no volumes: nothing says what they are for.
func (n *node) disks(maintenance bool) []resource.Resource {
	var list []resource.Resource
	for _, d := range n.diskList() {
		r := block.NewDisk(block.NamespaceName, d.id)
		*r.TypedSpec() = block.DiskSpec{
			DevPath: d.path, Size: d.size, PrettySize: d.pretty, IOSize: 512, SectorSize: 512,
			Serial: n.MachineID[:20], Transport: "virtio", SubSystem: "/sys/class/block",
		}
		list = append(list, r)
	}
	if !n.Blank() {
		system := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
		*system.TypedSpec() = block.SystemDiskSpec{DiskID: diskID, DevPath: diskPath}
		list = append(list, system)
	}
	if maintenance {
		return list
	}
	for _, v := range n.volumeList() {
		r := block.NewVolumeStatus(block.NamespaceName, v.id)
		*r.TypedSpec() = block.VolumeStatusSpec{
			Phase: block.VolumePhaseReady, Type: block.VolumeTypePartition,
			Location: fmt.Sprintf("%s%d", v.disk, v.partition), ParentLocation: v.disk, PartitionIndex: v.partition,
			Size: v.size, PrettySize: v.pretty, Filesystem: v.format,
		}
		list = append(list, r)
	}
	return list
}

// storageDisks are the disks as StorageService tells them.
func (n *node) storageDisks() []*storageapi.Disk {
	var list []*storageapi.Disk
	for _, d := range n.diskList() {
		list = append(list, &storageapi.Disk{
			DeviceName: d.path, Size: d.size, Type: storageapi.Disk_SSD, SystemDisk: d.path == diskPath,
			Serial: n.MachineID[:20], Subsystem: "/sys/class/block",
		})
	}
	return list
}
