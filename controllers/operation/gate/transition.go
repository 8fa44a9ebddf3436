// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/talos"
)

// EvenControlPlanes says that an even number of control planes is approved, which is what a replacement looks like half-way; nothing if
// it is odd.
func EvenControlPlanes(machines []*v1alpha1.TalosMachine) string {
	count := plan.ControlPlanes(machines)
	switch {
	case count == 0 || count%2 == 1:
		return ""
	case count > 2:
		return fmt.Sprintf("%d control planes are approved: with an even number, one may be under replacement; an override of gate %s lets %[1]d that stay pass",
			count, v1alpha1.ControlPlaneTransitioningReason)
	}
	return fmt.Sprintf("%d control planes are approved: with an even number, one may be under replacement", count)
}

// MembersInTransition says that etcd's members are not the control planes that are approved, or not voters yet; nothing if they are.
// Members that do not answer are no sign of a replacement.
func MembersInTransition(machines []*v1alpha1.TalosMachine, etcd map[string]EtcdView) string {
	for _, machine := range controlPlanes(machines) {
		view, seen := etcd[machine.Name]
		if !seen || view.Trouble != "" {
			continue
		}
		if i := slices.IndexFunc(view.Members, func(m talos.EtcdMember) bool { return m.Learner }); i >= 0 {
			return fmt.Sprintf("etcd member %s is a learner", memberName(view.Members[i]))
		}
		if members, approved := len(view.Members), plan.ControlPlanes(machines); members != approved {
			return fmt.Sprintf("etcd has %d members and the cluster %d approved control planes", members, approved)
		}
	}
	return ""
}
