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
	value, labelled, known, err := f.label(ctx, key)
	return labelled && value == f.Value || !known, err
}

// Another is the label of another hub that a cluster has; empty if it has none, or this hub's.
func (f *Filter) Another(ctx context.Context, key client.ObjectKey) (string, error) {
	value, _, _, err := f.label(ctx, key)
	if value == f.Value {
		return "", err
	}
	return value, err
}

// label is the label that says whose a cluster is, and whether there is such a cluster.
func (f *Filter) label(ctx context.Context, key client.ObjectKey) (value string, labelled, known bool, err error) {
	for _, object := range []client.Object{&v1alpha1.TalosCluster{}, &clusterv1.Cluster{}} {
		switch err := f.Reader.Get(ctx, key, object); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return "", false, true, fmt.Errorf("reading whose cluster %s is: %w", key, err)
		}
		known = true
		if value, labelled := object.GetLabels()[clusterv1.WatchLabel]; labelled {
			return value, true, true, nil
		}
	}
	return "", false, known, nil
}

// Clears says whether what hubs have left on a cluster is this hub's to take back: that of its own clusters, and that of a cluster which has
// no TalosCluster any more. Whose that was, its label said.
func (f *Filter) Clears(ctx context.Context, live client.Reader, key client.ObjectKey) (bool, error) {
	if watched, err := f.Watches(ctx, key); err != nil || watched {
		return watched, err
	}
	err := live.Get(ctx, key, &v1alpha1.TalosCluster{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading whether a hub manages cluster %s: %w", key, err)
	}
	return err != nil, nil
}
