// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/talos"
)

// troubleOfOthers says what is wrong with etcd where the member of one machine is lost, or as good as: all others must be well, agree on
// who belongs to them, and be enough without it.
func troubleOfOthers(lost *v1alpha1.TalosMachine, machines []*v1alpha1.TalosMachine, etcd map[string]EtcdView) string {
	others := slices.DeleteFunc(controlPlanes(machines), func(m *v1alpha1.TalosMachine) bool { return m.Name == lost.Name })
	var reference *EtcdView
	for _, machine := range others {
		member, seen := etcd[machine.Name]
		switch {
		case !seen:
			return fmt.Sprintf("the etcd member of %s has not been asked", machine.Name)
		case member.Trouble != "":
			return fmt.Sprintf("the etcd member of %s cannot be asked: %s", machine.Name, member.Trouble)
		}
		if reference == nil {
			reference = &member
		}
		if trouble := memberTrouble(machine.Name, member, *reference); trouble != "" {
			return trouble
		}
	}
	if reference == nil {
		return "" // It is the only control plane: the plan has judged that.
	}
	return quorumTrouble(len(others), reference.Members)
}

// troubleWithout says why the member of a machine that is lost must not be removed: the others that answer have to be well, agree on who
// belongs to them, be a majority, and have no learner among them, for that would be a second change. Who does not answer is counted as lost as
// well: of five members two may be, one after the other.
func troubleWithout(lost *v1alpha1.TalosMachine, machines []*v1alpha1.TalosMachine, etcd map[string]EtcdView) string {
	var reference *EtcdView
	var silent []string
	well := 0
	for _, machine := range controlPlanes(machines) {
		member, seen := etcd[machine.Name]
		switch {
		case machine.Name == lost.Name:
			continue
		case !seen:
			return fmt.Sprintf("the etcd member of %s has not been asked", machine.Name)
		case member.Trouble != "":
			silent = append(silent, machine.Name)
			continue
		}
		if reference == nil {
			reference = &member
		}
		if trouble := memberTrouble(machine.Name, member, *reference); trouble != "" {
			return trouble
		}
		well++
	}
	if reference == nil {
		return "no other etcd member answers"
	}
	if learner := learnerBeside(lost, reference.Members); learner != "" {
		return learner
	}
	trouble := quorumTrouble(well, reference.Members)
	if trouble != "" && len(silent) > 0 {
		trouble += "; no answer from " + strings.Join(silent, ", ")
	}
	return trouble
}

// learnerBeside names a learner that is not the member of a machine.
func learnerBeside(machine *v1alpha1.TalosMachine, members []talos.EtcdMember) string {
	for _, member := range members {
		if member.Learner && fmt.Sprintf("%x", member.ID) != machine.Status.EtcdMemberID {
			return fmt.Sprintf("etcd member %s is a learner", memberName(member))
		}
	}
	return ""
}

// quorumTrouble says that so many members which are well are not enough.
func quorumTrouble(well int, members []talos.EtcdMember) string {
	voters := len(slices.DeleteFunc(slices.Clone(members), func(m talos.EtcdMember) bool { return m.Learner }))
	if quorum := voters/2 + 1; well < quorum {
		return fmt.Sprintf("etcd has %d members, and %d others are not the %d that it needs", voters, well, quorum)
	}
	return ""
}

// spaceAlarm begins the alarm that etcd raises when its database is full.
const spaceAlarm = "NOSPACE"

// IsSpaceAlarm says whether an alarm is the one about space.
func IsSpaceAlarm(alarm string) bool { return strings.HasPrefix(alarm, spaceAlarm) }

// withoutSpaceAlarms is what the members tell but for alarms about space.
func withoutSpaceAlarms(etcd map[string]EtcdView) map[string]EtcdView {
	views := make(map[string]EtcdView, len(etcd))
	for name, view := range etcd {
		view.Alarms = slices.DeleteFunc(slices.Clone(view.Alarms), IsSpaceAlarm)
		views[name] = view
	}
	return views
}
