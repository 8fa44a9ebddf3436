// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Identity is what is known of a node, to find its Machine by.
type Identity struct {
	// UUID is the identity of the hardware.
	UUID string

	// ProviderID is what the Node's spec says; empty if it says nothing.
	ProviderID string

	// NodeName is the name of the Node.
	NodeName string

	// Addresses are the IP addresses.
	Addresses []string
}

// Find returns the Machine that a node is, or nil. A node that could be two Machines is none of them.
func Find(machines []clusterv1.Machine, node Identity) *clusterv1.Machine {
	var found *clusterv1.Machine
	for i := range machines {
		if !is(&machines[i], node) {
			continue
		}
		if found != nil {
			return nil
		}
		found = &machines[i]
	}
	return found
}

// is compares the strongest mark that both sides have, and no weaker one: names and addresses are used again, hardware is not.
func is(machine *clusterv1.Machine, node Identity) bool {
	switch {
	case machine.Status.NodeInfo != nil && machine.Status.NodeInfo.SystemUUID != "" && node.UUID != "":
		return strings.EqualFold(machine.Status.NodeInfo.SystemUUID, node.UUID)
	case machine.Spec.ProviderID != "" && node.ProviderID != "":
		return machine.Spec.ProviderID == node.ProviderID
	case machine.Status.NodeRef.IsDefined() && node.NodeName != "":
		return machine.Status.NodeRef.Name == node.NodeName
	}
	return slices.ContainsFunc(machine.Status.Addresses, func(a clusterv1.MachineAddress) bool {
		ip := a.Type == clusterv1.MachineInternalIP || a.Type == clusterv1.MachineExternalIP
		return ip && slices.Contains(node.Addresses, a.Address)
	})
}
