// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/talos"
)

// outOfEtcd has the member of a control plane leave before its machine is wiped, and asks the others whether it has. A machine that cannot
// leave is removed by another one, by the ID of its member: a name may be somebody else's by now.
func (e *Executor) outOfEtcd(scope kind.Scope, unit kind.Unit, seen kind.Observation, ask kind.Action) kind.Action {
	own := viewOf(seen)
	switch {
	case unit.Machine.Spec.Role != v1alpha1.ControlPlaneRole:
		return ask
	case own.MembersTrouble != "":
		return waitForMembers(unit, "no other control plane tells who belongs to etcd: "+own.MembersTrouble)
	case !isMember(unit.Machine, own.Members):
		return ask
	case unit.Status.Step == v1alpha1.LeavingStep || unit.Status.Step == v1alpha1.RemovingMemberStep:
		return kind.Action{Verdict: kind.Wait, Message: "waiting until the other etcd members do not know it any more"}
	case scope.Spec.Node.Forced():
		ask.Step = v1alpha1.RemovingMemberStep
		return ask
	}
	ask.Step = v1alpha1.LeavingStep
	return ask
}

// waitForMembers waits at a gate before the member is asked to leave, and within the deadline of that step afterwards.
func waitForMembers(unit kind.Unit, message string) kind.Action {
	if step := unit.Status.Step; step == v1alpha1.LeavingStep || step == v1alpha1.RemovingMemberStep {
		return kind.Action{Verdict: kind.Wait, Message: message}
	}
	return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.EtcdHealthyGate, Message: message}
}

// isMember says whether a machine is among the members of etcd.
func isMember(machine *v1alpha1.TalosMachine, members []talos.EtcdMember) bool {
	id, known := memberID(machine)
	return slices.ContainsFunc(members, func(m talos.EtcdMember) bool {
		return known && m.ID == id || m.Hostname != "" && strings.EqualFold(m.Hostname, machine.Status.NodeName)
	})
}

// memberID is the ID of a machine's etcd member, as it was last seen.
func memberID(machine *v1alpha1.TalosMachine) (id uint64, known bool) {
	id, err := strconv.ParseUint(machine.Status.EtcdMemberID, 16, 64)
	return id, err == nil
}

// others are the control planes beside a machine.
func others(scope kind.Scope, unit kind.Unit) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(scope.Approved), func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.Role != v1alpha1.ControlPlaneRole || m.Name == unit.Machine.Name
	})
}

// observeReset looks at what a reset needs to know where the unit is: what there is to wipe, who belongs to etcd, and who answers in
// maintenance mode.
func observeReset(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit, seen kind.Observation) view {
	own := view{}
	if unit.Status.Step == "" && seen.TalosTrouble == "" {
		var err error
		if own.Volumes, err = reader.Volumes(ctx, unit.Machine.Spec.Address); err != nil {
			own.Trouble = talos.Trouble(err)
		}
	}
	if !scope.Spec.Node.Wipes(v1alpha1.WipeSystem) {
		return own
	}
	if unit.Machine.Spec.Role == v1alpha1.ControlPlaneRole {
		own.Members, own.MembersTrouble = membersBeside(ctx, reader, scope, unit)
	}
	if wiped(unit) && seen.TalosTrouble != "" {
		own.Maintenance, _ = reader.Maintenance(ctx, unit.Machine.Spec.Address) // Nothing else answers there: that is what is waited for.
	}
	return own
}

// wiped says whether a machine may have been wiped by now.
func wiped(unit kind.Unit) bool {
	return unit.Status.Step == v1alpha1.ResettingStep || unit.Status.Step == v1alpha1.StayingOffStep
}

// membersBeside are etcd's members as the first other control plane knows them that answers.
func membersBeside(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit) (members []talos.EtcdMember, trouble string) {
	trouble = "there is none"
	for _, machine := range others(scope, unit) {
		etcd, err := reader.Etcd(ctx, machine.Spec.Address)
		if err == nil {
			return etcd.Members, ""
		}
		trouble = machine.Name + ": " + talos.Trouble(err)
	}
	return nil, trouble
}

// leaveEtcd has the member leave, unless it has done so.
func (e *Executor) leaveEtcd(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, _, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	members, trouble := membersBeside(ctx, writer, scope, unit)
	switch {
	case trouble != "":
		return fmt.Errorf("no other control plane tells who belongs to etcd: %s", trouble)
	case !isMember(unit.Machine, members):
		return nil
	}
	return reboot.Unheard(writer.LeaveEtcd(ctx, unit.Machine.Spec.Address))
}

// removeMember has another control plane remove the member.
func (e *Executor) removeMember(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	id, known := memberID(unit.Machine)
	if !known {
		return &unknownMemberError{machine: unit.Machine.Name}
	}
	err := errors.New("there is no other control plane")
	for _, machine := range others(scope, unit) {
		other := kind.Unit{Status: v1alpha1.UnitStatus{Name: machine.Name}, Machine: machine}
		var writer talos.Writer
		if writer, _, err = e.Writer(ctx, scope, other); err != nil {
			continue
		}
		return reboot.Unheard(writer.RemoveEtcdMember(ctx, machine.Spec.Address, id))
	}
	return err
}

// unknownMemberError means that nobody knows the ID of a machine's member.
type unknownMemberError struct{ machine string }

// Error says what helps.
func (e *unknownMemberError) Error() string {
	return fmt.Sprintf("the ID of the etcd member of %s is not known: remove it with talosctl etcd remove-member, and resume", e.machine)
}
