// SPDX-License-Identifier: Apache-2.0

// Package capi is the hub's way to live beside Cluster API: it tells whose a Cluster is, finds the Machine that a node is, and asks
// Cluster API to leave a machine alone while the hub works on it.
package capi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Infrastructure is how the Cluster of an imported target names its TalosCluster.
func Infrastructure(name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "TalosCluster", Name: name}
}

// Adopted says whether Cluster API's providers made a Cluster and manage its machines. A Cluster that is there for the hub alone has
// its TalosCluster as its infrastructure, and no control plane of anybody's.
func Adopted(cluster *clusterv1.Cluster) bool {
	if cluster == nil {
		return false
	}
	infrastructure := cluster.Spec.InfrastructureRef
	return cluster.Spec.Topology.IsDefined() || cluster.Spec.ControlPlaneRef.IsDefined() ||
		(infrastructure.IsDefined() && infrastructure != Infrastructure(cluster.Name))
}

// OptedOut says whether whoever owns a Cluster keeps the hub from it.
func OptedOut(cluster *clusterv1.Cluster) bool {
	if cluster == nil {
		return false
	}
	_, out := cluster.Annotations[v1alpha1.OptOutAnnotation]
	return out
}

// Paused says whether a Cluster is paused: nobody but who moves or mends it changes anything that belongs to it.
func Paused(cluster *clusterv1.Cluster) bool {
	if cluster == nil {
		return false
	}
	_, annotated := cluster.Annotations[clusterv1.PausedAnnotation]
	return annotated || ptr.Deref(cluster.Spec.Paused, false)
}

// Machines are the Machines of Cluster API.
type Machines struct {
	// Client reads and marks them.
	Client client.Client

	// Live reads uncached.
	Live client.Reader
}

// Of are the Machines of a Cluster. Where Cluster API's definition of a Machine is not installed there are none.
func (m Machines) Of(ctx context.Context, cluster client.ObjectKey) ([]clusterv1.Machine, error) {
	return machinesOf(ctx, m.Client, cluster)
}

// Now is Of as it is now, and not as a cache remembers it.
func (m Machines) Now(ctx context.Context, cluster client.ObjectKey) ([]clusterv1.Machine, error) {
	return machinesOf(ctx, m.Live, cluster)
}

func machinesOf(ctx context.Context, reader client.Reader, cluster client.ObjectKey) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	err := reader.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing Machines of cluster %s: %w", cluster, err)
	}
	return list.Items, nil
}
