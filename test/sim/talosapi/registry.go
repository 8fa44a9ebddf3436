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

	"ichor.maesh.dev/hub/test/sim/machine"
)

// Registry holds the resource types that nodes serve. It is read-only, so that one serves every node of every cluster.
type Registry struct {
	editions []*edition // The newest first.
}

// edition is what the versions from one minor on serve, up to the next edition.
type edition struct {
	since uint64                 // A minor of Talos 1.
	state state.CoreState        // The namespace "meta".
	types map[resource.Type]bool // The value says whether the type is sensitive.
}

// namespaces are those of Talos.
var namespaces = map[resource.Namespace]string{
	"cluster":        "Cluster configuration and discovery resources.",
	"cluster-raw":    "Cluster unmerged raw resources.",
	"config":         "Talos node configuration.",
	"containers":     "Container resources.",
	"controlplane":   "Kubernetes control plane resources.",
	"cri":            "CRI resources.",
	"etcd":           "etcd resources.",
	"files":          "Files and file-like resources.",
	"hardware":       "Hardware resources.",
	"k8s":            "Kubernetes all node types resources.",
	"kubespan":       "KubeSpan resources.",
	"network":        "Networking resources.",
	"network-config": "Networking configuration resources.",
	"perf":           "Stats resources.",
	"runtime":        "Talos runtime resources.",
	"secrets":        "Resources with secret material.",
	"security":       "Security resources.",
	"storage":        "Storage resources.",
}

// NewRegistry makes the registry.
func NewRegistry() (*Registry, error) {
	r := &Registry{}
	for i := range introduced {
		e, err := newEdition(i)
		if err != nil {
			return nil, fmt.Errorf("resource types of Talos 1.%d: %w", introduced[i].minor, err)
		}
		r.editions = append([]*edition{e}, r.editions...)
	}
	return r, nil
}

// newEdition has the types of the first rows of the table, up to the given one.
func newEdition(last int) (*edition, error) {
	ctx := context.Background()
	core := inmem.NewStateWithOptions(inmem.WithHistoryInitialCapacity(1), inmem.WithHistoryMaxCapacity(1), inmem.WithHistoryGap(0))(meta.NamespaceName)
	e := &edition{since: introduced[last].minor, state: core, types: map[resource.Type]bool{
		meta.ResourceDefinitionType: false, meta.NamespaceType: false,
	}}
	if err := registerNamespaces(ctx, core); err != nil {
		return nil, err
	}
	types := cosiregistry.NewResourceRegistry(state.WrapCore(core))
	if err := types.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("register resource definitions: %w", err)
	}
	for _, row := range introduced[:last+1] {
		for _, t := range row.types {
			if err := types.Register(ctx, t); err != nil {
				return nil, err
			}
			definition := t.ResourceDefinition()
			e.types[definition.Type] = definition.Sensitivity == meta.Sensitive
		}
	}
	return e, nil
}

func registerNamespaces(ctx context.Context, core state.CoreState) error {
	registry := cosiregistry.NewNamespaceRegistry(state.WrapCore(core))
	if err := registry.RegisterDefault(ctx); err != nil {
		return fmt.Errorf("register namespaces: %w", err)
	}
	for name, description := range namespaces {
		if err := registry.Register(ctx, name, description); err != nil {
			return fmt.Errorf("register namespace %s: %w", name, err)
		}
	}
	return nil
}

// of returns the types that a system serves. Versions older than all editions share the oldest.
func (r *Registry) of(system machine.Slot) *edition {
	oldest := len(r.editions) - 1
	for _, e := range r.editions[:oldest] {
		if system.AtLeast(e.since) {
			return e
		}
	}
	return r.editions[oldest]
}
