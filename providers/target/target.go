// SPDX-License-Identifier: Apache-2.0

// Package target names a managed cluster for the adapters that reach it.
package target

import "k8s.io/apimachinery/pkg/types"

// Target is a managed cluster, as the adapters need to know it.
type Target struct {
	// NamespacedName is that of its TalosCluster.
	types.NamespacedName

	// KubeconfigSecret and TalosconfigSecret are the names of the Secrets with its credentials, in the same namespace.
	KubeconfigSecret, TalosconfigSecret string

	// TalosconfigContext is the context that the user chose; empty means the one named like the cluster, else the only one.
	TalosconfigContext string

	// AllowInsecure lets a kubeconfig through that does not check the certificate of the server: the user has said so.
	AllowInsecure bool

	// ControlPlanes are the addresses of the known control planes. They stand in for an endpoint that does not answer.
	ControlPlanes []string
}
