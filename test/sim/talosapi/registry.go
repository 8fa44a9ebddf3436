// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	cosiregistry "github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Registry holds the resource types that nodes serve. It is read-only, so that one serves every node of every cluster.
type Registry struct {
	state state.CoreState // The namespace "meta".
	types map[resource.Type]resourceType
}

type resourceType struct {
	definition meta.ResourceWithRD
	since      uint64 // The first minor of Talos 1 that has the type.
}

// served lists the types. Clients find them by their aliases too, through the resource definitions.
var served = []resourceType{
	{definition: &cluster.Member{}},
	{definition: &config.MachineConfig{}},
	{definition: &config.MachineType{}},
	{definition: &etcd.Member{}},
	{definition: &hardware.SystemInformation{}},
	{definition: &k8s.Nodename{}},
	{definition: &runtime.ExtensionStatus{}},
	{definition: &runtime.MachineStatus{}},
	{definition: &runtime.MetaKey{}},
	{definition: &runtime.PlatformMetadata{}},
	{definition: &runtime.SecurityState{}},
	{definition: &runtime.Version{}},
	{definition: &runtime.BootID{}, since: 14},
	{definition: &runtime.ImageFactorySchematic{}, since: 14},
}

// NewRegistry makes the registry.
func NewRegistry() (*Registry, error) {
	ctx := context.Background()
	core := inmem.NewStateWithOptions(inmem.WithHistoryInitialCapacity(1), inmem.WithHistoryMaxCapacity(1), inmem.WithHistoryGap(0))(meta.NamespaceName)
	r := &Registry{state: core, types: map[resource.Type]resourceType{}}
	wrapped := state.WrapCore(core)
	if err := cosiregistry.NewNamespaceRegistry(wrapped).RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("register namespaces: %w", err)
	}
	types := cosiregistry.NewResourceRegistry(wrapped)
	if err := types.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("register resource definitions: %w", err)
	}
	for _, t := range served {
		if err := types.Register(ctx, t.definition); err != nil {
			return nil, err
		}
		r.types[t.definition.ResourceDefinition().Type] = t
	}
	return r, nil
}

// find returns a type that a node of the given version serves.
func (r *Registry) find(typ resource.Type, has func(minor uint64) bool) (resourceType, bool) {
	if typ == meta.ResourceDefinitionType || typ == meta.NamespaceType {
		return resourceType{}, true
	}
	t, ok := r.types[typ]
	return t, ok && has(t.since)
}

func (t resourceType) sensitive() bool {
	return t.definition != nil && t.definition.ResourceDefinition().Sensitivity == meta.Sensitive
}
