// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// nodeFlag is a parameter of kind node as the command line has it.
type nodeFlag struct{ name, value string }

// nodeFlagsOf are the parameters that are given. Values of flags are in lower case, with dashes between words.
func nodeFlagsOf(node *v1alpha1.NodeParameters) []nodeFlag {
	if node == nil {
		return nil
	}
	flags := []nodeFlag{{"mode", strings.ToLower(string(node.RebootMode))}, {"service", node.Service}, {"alarms", flagWord(node.Alarms)}}
	if reset := node.Reset; reset != nil {
		var wipe []string
		for _, target := range reset.Wipe {
			wipe = append(wipe, flagWord(target))
		}
		flags = append(flags, nodeFlag{"manner", flagWord(reset.Manner)}, nodeFlag{"wipe", strings.Join(wipe, ",")}, nodeFlag{"after", flagWord(reset.After)})
	}
	if remove := node.Remove; remove != nil {
		flags = append(flags, nodeFlag{"reason", remove.Reason})
	}
	given := flags[:0]
	for _, flag := range flags {
		if flag.value != "" {
			given = append(given, flag)
		}
	}
	return given
}

// nodeWords are the words that name the action, and the machine if there is one.
func nodeWords(node *v1alpha1.NodeParameters) []string {
	words := []string{"node", actionWord(node.Action)}
	if node.Action == v1alpha1.RemoveAction {
		words[0] = "machine"
	}
	if node.Machine != "" {
		words = append(words, node.Machine)
	}
	return words
}

// nodeFlags are the words that give the parameters of kind node.
func nodeFlags(node *v1alpha1.NodeParameters) []string {
	var words []string
	for _, flag := range nodeFlagsOf(node) {
		words = append(words, "--"+flag.name, flag.value)
	}
	if node.Dead() {
		words = append(words, "--dead")
	}
	return words
}

// describeNode says in words what is done to which machine.
func describeNode(node *v1alpha1.NodeParameters) string {
	words := fmt.Sprintf("%s of %s", node.Action, cmp.Or(node.Machine, "every etcd member"))
	for _, flag := range nodeFlagsOf(node) {
		words += ", " + flag.name + " " + flag.value
	}
	if node.Dead() {
		words += ", as dead"
	}
	return words
}
