// SPDX-License-Identifier: Apache-2.0

// Package crd carries the CustomResourceDefinitions that the hub installs.
package crd

import "embed"

// Own are the hub's own definitions; ClusterAPI is the one of Cluster API's Cluster.
var (
	//go:embed bases/*.yaml
	Own embed.FS
	//go:embed cluster-api/cluster.x-k8s.io_*.yaml
	ClusterAPI embed.FS
)
