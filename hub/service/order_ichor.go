// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
)

// hubPath is the field of an IchorInstallation's spec that operations bring about.
var hubPath = []string{"version"}

// installation reads the IchorInstallation that an order is about; nil if it is about no hub, or there is none.
func (s *Service) installation(ctx context.Context, spec v1alpha1.TalosOperationSpec) (*v1alpha1.IchorInstallation, error) {
	if spec.Kind != v1alpha1.IchorKind || s.Installation.Name != "" {
		return targets.Installation(ctx, s.Client, s.Installation, spec)
	}
	list := &v1alpha1.IchorInstallationList{}
	if err := s.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing IchorInstallations: %w", err)
	}
	switch len(list.Items) {
	case 0:
		return nil, nil //nolint:nilnil // The plan says so.
	case 1:
		return &list.Items[0], nil
	}
	var namespaces []string
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	return nil, &InvalidError{Field: "order.kind", Value: string(spec.Kind), Allowed: fmt.Sprintf(
		"several hubs work on this management cluster, in namespaces %s: ask the one that is meant", commas(namespaces))}
}

// declares is the object whose spec says what the operation brings about.
func (s *Start) declares() client.Object {
	if s.Installation != nil {
		return s.Installation
	}
	return s.Facts.Cluster
}

// changeOfHub compares what the spec of an IchorInstallation asks for with what a start wants of it.
func changeOfHub(installation *v1alpha1.IchorInstallation, target v1alpha1.OperationTarget) change {
	c := change{object: installation, kind: "IchorInstallation", apply: map[string]any{}}
	c.take(hubPath, installation.Spec.Version, target.IchorVersion)
	return c
}
