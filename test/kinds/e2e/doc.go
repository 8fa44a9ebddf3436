// SPDX-License-Identifier: Apache-2.0

// Package e2e runs every kind of operation on every shape of cluster that people have, through the hub's and the CLI's own binaries.
package e2e
