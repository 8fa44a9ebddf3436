// SPDX-License-Identifier: Apache-2.0

// Package rbac carries the roles that the hub installs.
package rbac

import "embed"

// HubRole is the ClusterRole of the hub itself, generated from the markers in the code.
const HubRole = "ichor-hub"

// Manifests are all manifests of this directory.
//
//go:embed *.yaml
var Manifests embed.FS
