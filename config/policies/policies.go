// SPDX-License-Identifier: Apache-2.0

// Package policies carries the admission policies that the hub installs: RBAC knows verbs and resources, and they ask it about more than that.
package policies

import "embed"

// Manifests are all manifests of this directory, and of the one below. They are named one by one since kustomization.yaml is none.
//
//go:embed audit.yaml clusters.yaml machines.yaml operations.yaml snapshots.yaml status.yaml mutating/created-by.yaml
var Manifests embed.FS
