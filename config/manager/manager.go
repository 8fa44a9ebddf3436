// SPDX-License-Identifier: Apache-2.0

// Package manager carries the manifests of the hub's own Deployment, and what goes with it.
package manager

import "embed"

// Manifests are all manifests of this directory. They are named one by one since kustomization.yaml is none.
//
//go:embed deployment.yaml service.yaml poddisruptionbudget.yaml networkpolicy.yaml
var Manifests embed.FS
