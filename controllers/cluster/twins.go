// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/providers/kube"
)

// twins says which two machines that answer claim to be the same: the hardware of both has the same UUID, as that of cloned machines does,
// or both have the same name. One machine that answers at two addresses is none: it has booted once.
func twins(seen probe) string {
	machines := inOrder(seen.machines)
	for i, a := range machines {
		for _, b := range machines[i+1:] {
			if a.trouble != "" || b.trouble != "" || a.facts.BootID == b.facts.BootID {
				continue
			}
			switch {
			case a.facts.UUID != "" && strings.EqualFold(a.facts.UUID, b.facts.UUID):
				return fmt.Sprintf("the machines at %s (%s) and %s (%s) have the same UUID %q: the hub cannot tell them apart",
					a.address, a.facts.NodeName, b.address, b.facts.NodeName, a.facts.UUID)
			case a.facts.NodeName != "" && strings.EqualFold(a.facts.NodeName, b.facts.NodeName):
				return fmt.Sprintf("the machines at %s and %s have the same node name %q: rename one of them", a.address, b.address, a.facts.NodeName)
			}
		}
	}
	return ""
}

// different says whether the two APIs are those of different clusters: both tell of machines, and none of them is the same. Clusters share
// names, so the hardware or the boot must be the same where both are known.
func different(seen probe) bool {
	answering := false
	for _, machine := range seen.machines {
		if machine.trouble != "" {
			continue
		}
		answering = true
		if slices.ContainsFunc(seen.nodes, func(n kube.Node) bool { return sameMachine(n, machine) }) {
			return false
		}
	}
	return answering && len(seen.nodes) > 0
}

func sameMachine(node kube.Node, machine found) bool {
	if node.UUID == "" || machine.facts.UUID == "" {
		return strings.EqualFold(node.Name, machine.facts.NodeName)
	}
	return strings.EqualFold(node.UUID, machine.facts.UUID) || node.BootID != "" && node.BootID == machine.facts.BootID
}

// foreign names the Nodes that do not run Talos. The hub has no business with them.
func foreign(nodes []kube.Node) string {
	var list []string
	for _, node := range nodes {
		if !node.RunsTalos() {
			list = append(list, fmt.Sprintf("%s (%s)", node.Name, node.OSImage))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "left alone, since they do not run Talos: " + strings.Join(list, ", ")
}
