// SPDX-License-Identifier: Apache-2.0

// Package deep is what runs behind the APIs of a cluster in the deep simulation: on each control plane a real etcd member and a real
// API server, as processes with the certificates and keys of the machine's config. It stands where the shallow simulation has models in
// memory, behind the same interfaces.
//
// The processes listen on the addresses of their machines, which are in 127/8, and end with the simulator, however that ends.
package deep
