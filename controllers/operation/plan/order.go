// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Order sorts machines into the order in which a rolling operation takes them: control planes first and the leader of etcd last
// among them, then workers; within a tier by the upgrade-order label (missing last), then by name. It returns their names.
func Order(machines []*v1alpha1.TalosMachine, leader string) []string {
	sorted := slices.Clone(machines)
	slices.SortFunc(sorted, func(a, b *v1alpha1.TalosMachine) int {
		return cmp.Or(
			last(a.Spec.Role != v1alpha1.ControlPlaneRole, b.Spec.Role != v1alpha1.ControlPlaneRole),
			last(a.Name == leader, b.Name == leader),
			compareLabels(a, b),
			cmp.Compare(a.Name, b.Name),
		)
	})
	names := make([]string, 0, len(sorted))
	for _, machine := range sorted {
		names = append(names, machine.Name)
	}
	return names
}

// last puts the one for which something holds behind the other.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func compareLabels(a, b *v1alpha1.TalosMachine) int {
	labelA, okA := a.Labels[v1alpha1.UpgradeOrderLabel]
	labelB, okB := b.Labels[v1alpha1.UpgradeOrderLabel]
	return cmp.Or(last(!okA, !okB), cmp.Compare(labelA, labelB))
}

// SplitHeld parts machines into those that a rolling operation takes and the names of those that it skips.
func SplitHeld(machines []*v1alpha1.TalosMachine) (taken []*v1alpha1.TalosMachine, held []string) {
	for _, machine := range machines {
		if machine.Held() {
			held = append(held, machine.Name)
			continue
		}
		taken = append(taken, machine)
	}
	slices.Sort(held)
	return taken, held
}

// ControlPlanes counts the control planes among machines.
func ControlPlanes(machines []*v1alpha1.TalosMachine) int {
	count := 0
	for _, machine := range machines {
		if machine.Spec.Role == v1alpha1.ControlPlaneRole {
			count++
		}
	}
	return count
}
