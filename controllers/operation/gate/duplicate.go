// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// duplicated keeps everything disruptive from a target on which two machines cannot be told apart: the one that is meant may not be the one
// that is met. The condition knows machines that are not approved, and those that answer twice.
func duplicated(in Input) string {
	machines := in.Machines
	if in.Stage.Joins {
		machines = append(slices.Clone(machines), in.Machine)
	}
	if message := Duplicate(machines); message != "" {
		return message
	}
	condition := meta.FindStatusCondition(in.Cluster.Status.Conditions, v1alpha1.MachinesDiscoveredCondition)
	if condition != nil && condition.Reason == v1alpha1.MachinesDuplicateReason {
		return condition.Message
	}
	return ""
}

// identities are what no two machines of a cluster share.
var identities = []struct {
	name string
	of   func(*v1alpha1.TalosMachine) string
}{
	{"UUID", func(m *v1alpha1.TalosMachine) string { return m.Spec.UUID }},
	{"etcd member ID", func(m *v1alpha1.TalosMachine) string { return m.Status.EtcdMemberID }},
	{"address", func(m *v1alpha1.TalosMachine) string { return m.Spec.Address }},
	{"node name", func(m *v1alpha1.TalosMachine) string { return m.Status.NodeName }},
}

// Duplicate names two records that are of the same machine, or of two that cannot be told apart; nothing if there are none.
func Duplicate(machines []*v1alpha1.TalosMachine) string {
	ordered := slices.SortedFunc(slices.Values(machines), func(a, b *v1alpha1.TalosMachine) int { return cmp.Compare(a.Name, b.Name) })
	for _, identity := range identities {
		owner := map[string]string{}
		for _, machine := range ordered {
			value := strings.ToLower(identity.of(machine))
			if value == "" {
				continue
			}
			if first, taken := owner[value]; taken {
				return fmt.Sprintf("%s and %s have the same %s %q: delete the TalosMachine that is not there any more", first, machine.Name, identity.name, value)
			}
			owner[value] = machine.Name
		}
	}
	return ""
}
