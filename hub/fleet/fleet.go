// SPDX-License-Identifier: Apache-2.0

// Package fleet is what a hub knows of its clusters, machines and operations, rendered as messages.
package fleet

// Fleet holds messages of clusters, machines and operations, and the order in which they changed.
type Fleet struct{}
