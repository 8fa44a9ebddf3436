// SPDX-License-Identifier: Apache-2.0

// Package service is what people do with the hub: import targets, plan and start operations, steer them.
//
// Everything is done with the client of whoever asks, so the API server's authorizer and audit decide and know.
package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
	configplan "ichor.maesh.dev/hub/controllers/operation/kind/config/plan"
	restoreplan "ichor.maesh.dev/hub/controllers/operation/kind/etcdrestore/plan"
	ichorplan "ichor.maesh.dev/hub/controllers/operation/kind/ichor/plan"
	keyplan "ichor.maesh.dev/hub/controllers/operation/kind/keyrotation/plan"
	kubernetesplan "ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/plan"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	shutdownplan "ichor.maesh.dev/hub/controllers/operation/kind/shutdown/plan"
	talosplan "ichor.maesh.dev/hub/controllers/operation/kind/talos/plan"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
)

// planners are the planners of the kinds that the service can start.
var planners = map[v1alpha1.OperationKind]plan.Planner{
	v1alpha1.TalosKind:      talosplan.Planner{},
	v1alpha1.NodeKind:       nodeplan.Planner{},
	v1alpha1.KubernetesKind: kubernetesplan.Planner{StoresSnapshots: true},
	v1alpha1.ConfigKind:     configplan.Planner{},
	v1alpha1.ShutdownKind:   shutdownplan.Planner{StoresSnapshots: true},
	v1alpha1.IchorKind:      ichorplan.Planner{},

	v1alpha1.KeyRotationKind: keyplan.Planner{StoresSnapshots: true},
	v1alpha1.CARotationKind:  rotationplan.Planner{},
	v1alpha1.EtcdRestoreKind: restoreplan.Planner{StoresSnapshots: true},
}

// Service acts on the management API as one user.
type Service struct {
	// Client is the user's.
	Client client.Client

	// Rights are the user's. nil leaves every question to the management API.
	Rights Rights

	// User is the user's name; empty if it is not known.
	User string

	// Now tells the time.
	Now func() time.Time

	// Inspector looks at machines that are to join; nil is talos.Inspect.
	Inspector Inspector

	// Verifier looks at the targets that are imported; nil is verify.Live.
	Verifier Verifier

	// Share is which clusters are this hub's.
	Share Share

	// Installation is the hub's own IchorInstallation. Where no hub serves it is empty, and means the only one of the management cluster.
	Installation client.ObjectKey
}

// Facts reads what the management API knows of a target.
func (s *Service) Facts(ctx context.Context, key client.ObjectKey) (targets.Facts, error) {
	facts, err := targets.Load(ctx, s.Client, key)
	if err != nil {
		return targets.Facts{}, err
	}
	if facts.Cluster == nil {
		return targets.Facts{}, unknownCluster(key)
	}
	return facts, nil
}

// Machine finds a machine by the name of its TalosMachine or of its Node. cluster limits the search and may be empty.
func (s *Service) Machine(ctx context.Context, namespace, cluster, name string) (*v1alpha1.TalosMachine, error) {
	list := &v1alpha1.TalosMachineList{}
	options := []client.ListOption{client.InNamespace(namespace)}
	if cluster != "" {
		options = append(options, client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	}
	if err := s.Client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i], nil
		}
	}
	switch found := byNode(list.Items, name); len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, &NotFoundError{What: fmt.Sprintf("there is no machine %q", name), Help: "list them with: ichor machine list"}
	default:
		var names []string
		for _, machine := range found {
			names = append(names, machine.Name)
		}
		return nil, &InvalidError{
			Field: "machine", Value: name, Allowed: fmt.Sprintf("it is one of %s: name the cluster with --cluster, or use a full name", strings.Join(names, ", ")),
		}
	}
}

// byNode are the machines whose Node has a name.
func byNode(machines []v1alpha1.TalosMachine, name string) []*v1alpha1.TalosMachine {
	var found []*v1alpha1.TalosMachine
	for i := range machines {
		if strings.EqualFold(machines[i].Status.NodeName, name) {
			found = append(found, &machines[i])
		}
	}
	return found
}

// Operation reads one operation.
func (s *Service) Operation(ctx context.Context, key client.ObjectKey) (*v1alpha1.TalosOperation, error) {
	op := &v1alpha1.TalosOperation{}
	err := s.Client.Get(ctx, key, op)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &NotFoundError{
			What: fmt.Sprintf("there is no operation %q in namespace %q", key.Name, key.Namespace),
			Help: "list them with: ichor operation list",
		}
	case err != nil:
		return nil, fmt.Errorf("reading operation %s: %w", key, err)
	}
	return op, nil
}
