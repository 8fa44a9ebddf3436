// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Filter shares the clusters of a management cluster out among hubs, by the label that Cluster API's controllers share them out by. Who belongs
// to a cluster belongs to its hub. A nil Filter leaves all to one.
type Filter struct {
	// Reader reads TalosClusters and Clusters; a cache is good enough.
	Reader client.Reader

	// Value is the value of the label cluster.x-k8s.io/watch-filter.
	Value string
}

// Watches says whether a cluster is this hub's. The label of its TalosCluster counts, and that of its Cluster where the TalosCluster has
// none. What is left of a cluster that is gone is everybody's: somebody has to clear it away.
func (f *Filter) Watches(ctx context.Context, key client.ObjectKey) (bool, error) {
	if f == nil || f.Value == "" {
		return true, nil
	}
	known := false
	for _, object := range []client.Object{&v1alpha1.TalosCluster{}, &clusterv1.Cluster{}} {
		switch err := f.Reader.Get(ctx, key, object); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return false, fmt.Errorf("reading whose cluster %s is: %w", key, err)
		}
		if value, labelled := object.GetLabels()[clusterv1.WatchLabel]; labelled {
			return value == f.Value, nil
		}
		known = true
	}
	return !known, nil
}
