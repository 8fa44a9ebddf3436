// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"maps"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/providers/capi"
)

// Share is which clusters of a management cluster a hub works on. The zero value is all of them.
type Share struct {
	// WatchFilter is the value of --watch-filter.
	WatchFilter string

	// Namespace is the value of --namespace.
	Namespace string
}

// mine refuses what is asked for a cluster that this hub's controllers do not work on: it would be accepted, and nothing would happen.
func (s *Service) mine(ctx context.Context, key client.ObjectKey) error {
	if s.Share.Namespace != "" && s.Share.Namespace != key.Namespace {
		return &StateError{
			What: fmt.Sprintf("this hub works in namespace %q alone (--namespace), and cluster %s is not in it", s.Share.Namespace, key),
			Help: "ask the hub of that namespace",
		}
	}
	filter := &capi.Filter{Reader: s.Client, Value: s.Share.WatchFilter}
	if watched, err := filter.Watches(ctx, key); err != nil || watched {
		return err
	}
	return &StateError{
		What: fmt.Sprintf("this hub works only on clusters with label %s=%s (--watch-filter), and cluster %s is none of them", clusterv1.WatchLabel, s.Share.WatchFilter, key),
		Help: "ask the hub of the cluster, or label its TalosCluster",
	}
}

// claim makes a cluster that is imported one of this hub's by the label that it has then, and refuses one that another hub works on.
func (s *Service) claim(ctx context.Context, in Import) (Import, error) {
	key, own := client.ObjectKey{Namespace: in.Namespace, Name: in.Name}, s.Share.WatchFilter
	if own == "" {
		return in, s.mine(ctx, key)
	}
	if value, chosen := in.Labels[clusterv1.WatchLabel]; chosen && value != own {
		return in, &InvalidError{Field: fmt.Sprintf("labels[%q]", clusterv1.WatchLabel), Value: value, Allowed: fmt.Sprintf("this hub works on clusters with %q (--watch-filter)", own)}
	}
	labels := maps.Clone(in.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[clusterv1.WatchLabel] = own
	in.Labels = labels
	other, err := (&capi.Filter{Reader: s.Client, Value: own}).Another(ctx, key)
	if err != nil || other == "" {
		return in, err
	}
	return in, &StateError{
		What: fmt.Sprintf("cluster %s is another hub's: it has label %s=%s, and this hub works on %s (--watch-filter)", key, clusterv1.WatchLabel, other, own),
		Help: "ask that hub, or change the label",
	}
}
