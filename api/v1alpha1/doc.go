// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API types of Ichor hub: the target clusters, their machines and the operations on them.
//
// The types follow the conventions of Cluster API's v1beta2 contract: conditions come first in status, an absent
// condition reads as Unknown, references are names in the same namespace, and nothing is defaulted behind the
// user's back.
//
// +kubebuilder:object:generate=true
// +groupName=ichor.maesh.dev
package v1alpha1
