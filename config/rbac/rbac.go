// SPDX-License-Identifier: Apache-2.0

// Package rbac carries the roles that the hub installs.
package rbac

import "embed"

// HubRole is the ClusterRole of the hub itself, generated from the markers in the code.
const HubRole = "ichor-hub"

// The ClusterRoles of people. Each has the rights of the one before, too.
const (
	ViewerRole   = "ichor-viewer"
	OperatorRole = "ichor-operator"
	AdminRole    = "ichor-admin"
)

// The groups that have these roles everywhere in standalone mode. On a cluster, whoever installs the hub binds the roles.
const (
	ViewersGroup   = "ichor:viewers"
	OperatorsGroup = "ichor:operators"
	AdminsGroup    = "ichor:admins"
)

// Groups are the groups of standalone mode and their roles.
var Groups = map[string]string{
	ViewersGroup:   ViewerRole,
	OperatorsGroup: OperatorRole,
	AdminsGroup:    AdminRole,
}

// Manifests are all manifests of this directory.
//
//go:embed role.yaml *_*.yaml
var Manifests embed.FS
