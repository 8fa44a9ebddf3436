// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

const memorySize = 8 << 30

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
