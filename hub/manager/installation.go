// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/installation"
	"ichor.maesh.dev/hub/controllers/operation"
	"ichor.maesh.dev/hub/controllers/operation/kind/ichor"
	provider "ichor.maesh.dev/hub/providers/installation"
)

// Installation is how the hub itself is installed.
type Installation struct {
	// Namespace is the hub's own.
	Namespace string

	// Version is what this hub is.
	Version string

	// Standalone says that the hub brings its own management API.
	Standalone bool
}

// key is the IchorInstallation of the hub; empty if it has none.
func (i Installation) key() client.ObjectKey {
	if i.Namespace == "" {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: i.Namespace, Name: v1alpha1.IchorInstallationName}
}

// setUp has the hub written down, and lets operations upgrade it. Where that is not possible they are refused with the reason.
func (i Installation) setUp(mgr ctrl.Manager, operations *operation.Reconciler, options controller.Options) error {
	if i.Namespace == "" {
		return nil
	}
	live := &provider.Live{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Namespace: i.Namespace}
	operations.Installation, operations.Executors[v1alpha1.IchorKind] = i.key(), ichor.New(live, i.Version)
	own := &installation.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Key: i.key(), Version: i.Version, Standalone: i.Standalone}
	if err := own.SetupWithManager(mgr, options); err != nil {
		return fmt.Errorf("setting up the controller of the IchorInstallation: %w", err)
	}
	return nil
}
