// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/extensions"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	sim "ichor.maesh.dev/hub/test/sim/machine"
)

// describe lists the resources of a node in a given state.
func (n *node) describe(state sim.State) []resource.Resource {
	if state.Maintenance {
		return n.describeInMaintenance(state)
	}
	active, persistent := n.Config()
	list := []resource.Resource{
		machineStatus(state),
		version(state),
		n.machineType(),
		n.nodename(),
		n.systemInformation(),
		n.platformMetadata(),
		n.securityState(),
		config.NewMachineConfig(active),
		config.NewMachineConfigWithID(persistent, config.PersistentID),
	}
	list = append(list, schematic(state)...)
	list = append(list, n.metaKeys()...)
	list = append(list, n.services()...)
	list = append(list, n.disks(false)...)
	list = append(list, n.network()...)
	list = append(list, n.kubernetes(state)...)
	list = append(list, n.secrets()...)
	if state.EtcdUp {
		list = append(list, n.etcdMember())
	}
	for _, other := range n.cluster.nodes {
		if !other.Wiped() { // Discovery forgets who does not tell of itself.
			list = append(list, other.member())
		}
	}
	return list
}

// machineStatus has unmet conditions in the two stages that have conditions at all; a machine in any other stage is ready.
func machineStatus(state sim.State) resource.Resource {
	r := runtime.NewMachineStatus()
	r.TypedSpec().Stage = state.Stage
	r.TypedSpec().Status.Ready = state.StatusReady()
	if !state.StatusReady() {
		r.TypedSpec().Status.UnmetConditions = []runtime.UnmetCondition{{Name: "services", Reason: "kubelet not running"}}
	}
	return r
}

func version(state sim.State) resource.Resource {
	r := runtime.NewVersion()
	r.TypedSpec().Name, r.TypedSpec().Version = "Talos", state.Running.Version
	return r
}

// schematic appears as a pseudo extension before Talos 1.14, and as a resource of its own from then on. The boot ID has a
// resource from 1.14 on as well.
func schematic(state sim.State) []resource.Resource {
	if !state.Running.AtLeast(14) {
		r := runtime.NewExtensionStatus(runtime.NamespaceName, "0")
		r.TypedSpec().Image = "0.sqsh"
		r.TypedSpec().Metadata = extensions.Metadata{
			Name: "schematic", Version: state.Running.Schematic, Author: "Image Factory",
			Description: "Virtual extension which specifies the schematic of the image built with Image Factory.",
		}
		return []resource.Resource{r}
	}
	r := runtime.NewImageFactorySchematic(runtime.NamespaceName, runtime.ImageFactorySchematicID)
	r.TypedSpec().SchematicID = state.Running.Schematic
	r.TypedSpec().APIURL = "https://factory.talos.dev"
	boot := runtime.NewBootID()
	boot.TypedSpec().BootID = state.BootID
	return []resource.Resource{r, boot}
}

func (n *node) machineType() resource.Resource {
	r := config.NewMachineType()
	r.SetMachineType(n.role())
	return r
}

func (n *node) role() machine.Type {
	if n.ControlPlane {
		return machine.TypeControlPlane
	}
	return machine.TypeWorker
}

func (n *node) nodename() resource.Resource {
	r := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
	_, name := n.Told()
	r.TypedSpec().Nodename, r.TypedSpec().HostnameVersion = name, "1"
	return r
}

func (n *node) systemInformation() resource.Resource {
	r := hardware.NewSystemInformation(hardware.SystemInformationID)
	r.TypedSpec().UUID, _ = n.Told()
	r.TypedSpec().Manufacturer, r.TypedSpec().ProductName = "Ichor", "Simulated machine"
	return r
}

func (n *node) platformMetadata() resource.Resource {
	r := runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID)
	r.TypedSpec().Platform, r.TypedSpec().Hostname = n.Platform, n.Hostname
	return r
}

func (n *node) securityState() resource.Resource {
	r := runtime.NewSecurityStateSpec(runtime.NamespaceName)
	r.TypedSpec().SecureBoot, r.TypedSpec().BootedWithUKI = n.SecureBoot, n.SecureBoot
	return r
}

func (n *node) metaKeys() []resource.Resource {
	var list []resource.Resource
	for key, value := range n.Meta() {
		r := runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(key))
		r.TypedSpec().Value = value
		list = append(list, r)
	}
	return list
}

func (n *node) etcdMember() resource.Resource {
	r := etcd.NewMember(etcd.NamespaceName, etcd.LocalMemberID)
	r.TypedSpec().MemberID = fmt.Sprintf("%016x", n.MemberID())
	return r
}

// member is how discovery shows this node to the others.
func (n *node) member() resource.Resource {
	r := cluster.NewMember(cluster.NamespaceName, n.Name)
	id, _ := n.Told()
	identity := sha256.Sum256([]byte(id))
	*r.TypedSpec() = cluster.MemberSpec{
		NodeID:          base64.RawURLEncoding.EncodeToString(identity[:]),
		Addresses:       addresses(n.Addresses()),
		Hostname:        n.Hostname,
		MachineType:     n.role(),
		OperatingSystem: fmt.Sprintf("Talos (%s)", n.State().Running.Version),
	}
	if n.ControlPlane {
		r.TypedSpec().ControlPlane = &cluster.ControlPlane{APIServerPort: 6443}
	}
	return r
}

func addresses(texts []string) []netip.Addr {
	list := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}
