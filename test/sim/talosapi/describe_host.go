// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"fmt"
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// The one disk of a machine, and how its partitions share it.
const (
	diskID     = "vda"
	diskPath   = "/dev/" + diskID
	diskSize   = 40 << 30
	memorySize = 8 << 30
)

var volumes = []struct {
	id        string
	partition int
	size      uint64
	pretty    string
	format    block.FilesystemType
}{
	{id: constants.MetaPartitionLabel, partition: 4, size: 1 << 20, pretty: "1.0 MB"},
	{id: constants.StatePartitionLabel, partition: 5, size: 100 << 20, pretty: "105 MB", format: block.FilesystemTypeXFS},
	{id: constants.EphemeralPartitionLabel, partition: 6, size: 38 << 30, pretty: "41 GB", format: block.FilesystemTypeXFS},
}

func (n *node) disks() []resource.Resource {
	disk := block.NewDisk(block.NamespaceName, diskID)
	*disk.TypedSpec() = block.DiskSpec{
		DevPath: diskPath, Size: diskSize, PrettySize: "43 GB", IOSize: 512, SectorSize: 512,
		Serial: n.MachineID[:20], Transport: "virtio", SubSystem: "/sys/class/block",
	}
	system := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
	*system.TypedSpec() = block.SystemDiskSpec{DiskID: diskID, DevPath: diskPath}
	list := []resource.Resource{disk, system}
	for _, v := range volumes {
		r := block.NewVolumeStatus(block.NamespaceName, v.id)
		*r.TypedSpec() = block.VolumeStatusSpec{
			Phase: block.VolumePhaseReady, Type: block.VolumeTypePartition,
			Location: fmt.Sprintf("%s%d", diskPath, v.partition), ParentLocation: diskPath, PartitionIndex: v.partition,
			Size: v.size, PrettySize: v.pretty, Filesystem: v.format,
		}
		list = append(list, r)
	}
	return list
}

// services are the resources of the services that run.
func (n *node) services() []resource.Resource {
	var list []resource.Resource
	for _, s := range n.systemServices() {
		if !s.running() {
			continue
		}
		r := v1alpha1.NewService(s.id)
		r.TypedSpec().Running, r.TypedSpec().Healthy, r.TypedSpec().Unknown = true, s.checked, !s.checked
		list = append(list, r)
	}
	return list
}

func (n *node) network() []resource.Resource {
	status := network.NewStatus(network.NamespaceName, network.StatusID)
	*status.TypedSpec() = network.StatusSpec{AddressReady: true, ConnectivityReady: true, HostnameReady: true, EtcFilesReady: true}
	hostname := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	hostname.TypedSpec().Hostname = n.Name
	addresses := network.NewNodeAddress(network.NamespaceName, network.NodeAddressCurrentID)
	addresses.TypedSpec().Addresses = []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(n.Address), 16)}
	clock := time.NewStatus()
	clock.TypedSpec().Synced = true
	return []resource.Resource{status, hostname, addresses, clock}
}
