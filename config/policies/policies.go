// SPDX-License-Identifier: Apache-2.0

// Package policies carries the admission policies that the hub installs: RBAC knows verbs and resources, and they ask it about more than that.
package policies

import "embed"

// Manifests are all manifests of this directory.
//
//go:embed *.yaml
var Manifests embed.FS
