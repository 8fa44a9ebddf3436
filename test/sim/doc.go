// SPDX-License-Identifier: Apache-2.0

// Package sim simulates fleets of Talos clusters in one process. Every node serves the real Talos API over mutual TLS on an
// address of its own, and every cluster a Kubernetes API; versions, A/B slots, boot IDs, etcd membership, pods and faults behave
// like those of real machines, only faster. A journal records every call.
//
// Clusters are shallow, which means that nothing runs behind the APIs, unless they are asked to be deep: see the package of that name. It
// needs Linux, where all of 127/8 is there without set-up.
package sim
