// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"context"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Observe looks at a machine: its Talos API, its etcd member, its Node and the storage there.
func (s Sequence) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	var seen kind.Observation
	s.observeTalos(ctx, scope, unit, &seen)
	s.observeNode(ctx, scope, unit, &seen)
	return seen
}

func (s Sequence) observeTalos(ctx context.Context, scope kind.Scope, unit kind.Unit, seen *kind.Observation) {
	reader, err := s.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		seen.TalosTrouble = talos.Trouble(err)
		return
	}
	if seen.Talos, err = reader.Machine(ctx, unit.Machine.Spec.Address); err != nil {
		seen.TalosTrouble, seen.TalosSilent = talos.Trouble(err), talos.Silent(err)
		return
	}
	if unit.Machine.Spec.Role != v1alpha1.ControlPlaneRole {
		return
	}
	etcd, err := reader.Etcd(ctx, unit.Machine.Spec.Address)
	if err != nil {
		seen.EtcdTrouble = talos.Trouble(err)
		return
	}
	seen.Etcd = &etcd
}

func (s Sequence) observeNode(ctx context.Context, scope kind.Scope, unit kind.Unit, seen *kind.Observation) {
	reader, err := s.Kube.Reader(ctx, scope.Cluster)
	if err != nil {
		seen.NodeTrouble = kube.Trouble(err)
		return
	}
	if seen.Node, err = reader.Node(ctx, nodeName(unit)); err != nil {
		seen.NodeTrouble = kube.Trouble(err)
	}
	if seen.Node == nil {
		return
	}
	if seen.Storage, err = s.Storage.Look(ctx, scope.Cluster, *seen.Node); err != nil {
		seen.StorageTrouble = err.Error()
	}
}
