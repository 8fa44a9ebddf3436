// SPDX-License-Identifier: Apache-2.0

// Package e2e kills the leader of several hubs, again and again, while they upgrade a fleet.
package e2e
