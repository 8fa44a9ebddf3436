// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/providers/talos"
)

// removeSteps are those of a reset, and then what stands for the machine goes. A machine that is dead is asked for nothing: it goes from waiting
// whether it stays silent to the removal of its member.
var removeSteps = slices.Concat(resetSteps, []kind.Step{
	{Name: v1alpha1.DeletingNodeStep, Repeat: kind.Safe, Timeout: 10 * time.Minute},
	{Name: v1alpha1.ForgettingStep, Repeat: kind.Safe, Timeout: 2 * time.Minute},
})

// nextRemove takes a machine out of its cluster: as a reset does or, where it is dead, without asking it. What stands for it goes last.
func nextRemove(e *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case unit.Status.Stage == nodeplan.ForgetStage:
		return nextForget(scope, unit)
	case !scope.Spec.Node.Dead():
		return nextReset(e, scope, unit, seen)
	case unit.Status.Stage == nodeplan.ConfirmDeadStage:
		return e.confirmDead(unit, seen)
	}
	return removeDead(scope, unit, seen)
}

// settleRemove goes on where a member was asked to leave, or a machine is gone, and back before that.
func settleRemove(e *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Stage != nodeplan.ForgetStage && !scope.Spec.Node.Dead() {
		return settleReset(e, scope, unit, seen)
	}
	if unit.Status.Step == "" || unit.Status.Step == v1alpha1.StayingOffStep || !unit.Status.FailureTime.IsZero() {
		return kind.Action{Verdict: kind.Park}
	}
	return nextRemove(e, scope, unit, seen)
}

// dead says whether nothing shows that a machine is alive. sign is what shows that it is, unknown why nobody can tell.
func dead(unit kind.Unit, seen kind.Observation) (sign, unknown string) {
	own := viewOf(seen)
	switch {
	case seen.NodeTrouble == "" && seen.Node != nil && seen.Node.Ready && isNodeOf(seen, unit):
		return fmt.Sprintf("Node %s is Ready", seen.Node.Name), ""
	case seen.TalosTrouble == "" && seen.Talos.UUID == "":
		return "", "the machine that answers does not tell its UUID yet"
	case seen.TalosTrouble == "" && seen.Talos.UUID == unit.Machine.Spec.UUID:
		return fmt.Sprintf("it answers at %s, in stage %q", unit.Machine.Spec.Address, seen.Talos.Stage), ""
	case seen.NodeTrouble != "":
		return "", "the Kubernetes API of the cluster cannot be read: " + seen.NodeTrouble
	case seen.TalosTrouble != "" && !seen.TalosSilent && own.Maintenance == "":
		return "", "something answers there that is no machine of the cluster: " + seen.TalosTrouble
	}
	return "", "" // Silent, wiped, or another machine has its address by now.
}

// isNodeOf says whether the Node that was looked at is that of the machine: names are used again.
func isNodeOf(seen kind.Observation, unit kind.Unit) bool {
	return seen.Node.UUID == "" || strings.EqualFold(seen.Node.UUID, unit.Machine.Spec.UUID)
}

// confirmDead waits whether a machine that somebody has declared dead stays silent: one that reboots is silent as well.
func (e *Executor) confirmDead(unit kind.Unit, seen kind.Observation) kind.Action {
	sign, unknown := dead(unit, seen)
	switch begun := unit.Status.Step != ""; {
	case sign != "":
		return alive(sign)
	case unknown != "" && begun:
		return kind.Action{Verdict: kind.Wait, Message: unknown}
	case unknown != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: unknown}
	case begun:
		return kind.Action{Verdict: kind.Done, After: e.DeadFor}
	}
	return kind.Action{Verdict: kind.Wait, Step: v1alpha1.StayingOffStep, Message: "nobody answers: waiting whether it stays so"}
}

// alive fails a removal of a machine that was declared dead and is not.
func alive(sign string) kind.Action {
	return kind.Action{Verdict: kind.Fail, Message: "it is not dead: " + sign + "; delete this operation, and remove the machine without --dead"}
}

// removeDead has another control plane remove the member of a machine that is dead, and asks the others whether it is gone.
func removeDead(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Step == "" {
		switch sign, unknown := dead(unit, seen); {
		case sign != "":
			return alive(sign)
		case unknown != "":
			return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: unknown}
		}
	}
	own := viewOf(seen)
	switch {
	case unit.Machine.Spec.Role != v1alpha1.ControlPlaneRole:
		return kind.Action{Verdict: kind.Done}
	case unit.Failed():
		return kind.FailStep(unit, "")
	case own.MembersTrouble != "":
		return waitForMembers(unit, "no other control plane tells who belongs to etcd: "+own.MembersTrouble)
	case len(own.Members) == 0: // An etcd without members answers nobody: this look asked for none.
		return waitForMembers(unit, "who belongs to etcd has not been asked yet")
	}
	switch member, doubt := deadMember(scope, unit, seen, own.Members); {
	case doubt != "":
		return kind.Action{Verdict: kind.Fail, Message: doubt}
	case !member:
		return kind.Action{Verdict: kind.Done}
	case unit.Status.Step == v1alpha1.RemovingMemberStep:
		return kind.Action{Verdict: kind.Wait, Message: "waiting until the other etcd members do not know it any more"}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.RemovingMemberStep, NodeName: unit.Machine.Status.NodeName}
}

// deadMember says whether the member of a machine that is dead is among the members. It goes by the ID alone: a name may be somebody else's by
// now. A member of that name that belongs to no other machine may be one that the hub has never seen, and is for a person to judge.
func deadMember(scope kind.Scope, unit kind.Unit, seen kind.Observation, members []talos.EtcdMember) (member bool, doubt string) {
	id, known := memberID(unit.Machine)
	for _, m := range members {
		switch {
		case known && m.ID == id:
			return true, ""
		case m.Hostname == "" || !strings.EqualFold(m.Hostname, unit.Machine.Status.NodeName) || isOthers(scope, unit, seen, m.ID):
		default:
			doubt = fmt.Sprintf("etcd member %016x has the name of %s, and the hub does not know whose it is: if it is that of the machine that is dead, talosctl etcd remove-member %016x, then resume",
				m.ID, unit.Status.Name, m.ID)
		}
	}
	return false, doubt
}

// isOthers says whether an etcd member is that of another machine: one that is recorded, or the one that has the address by now.
func isOthers(scope kind.Scope, unit kind.Unit, seen kind.Observation, id uint64) bool {
	if seen.Etcd != nil && seen.Etcd.MemberID == id {
		return true // The machine that is dead does not answer.
	}
	return slices.ContainsFunc(scope.Known, func(m *v1alpha1.TalosMachine) bool {
		other, known := memberID(m)
		return m.Name != unit.Machine.Name && known && other == id
	})
}

// removed is the TalosMachine of the machine that is removed; nil once it is gone. One that does not ask to be removed is another one: of a machine
// that was found since.
func removed(scope kind.Scope) *v1alpha1.TalosMachine {
	for _, machine := range scope.Known {
		if machine.Name == scope.Spec.Node.Machine && machine.Spec.Removal != nil {
			return machine
		}
	}
	return nil
}

// nextForget deletes what stands for a machine that has left: the Node first, since its name is in the TalosMachine.
func nextForget(scope kind.Scope, unit kind.Unit) kind.Action {
	machine := removed(scope)
	switch {
	case machine == nil && scope.Spec.Node.Dead():
		return kind.Action{Verdict: kind.Done, Message: scope.Spec.Node.Machine + " is removed, and not wiped; if it comes back it waits for an approval: wipe it with talosctl reset, and do not approve it"}
	case machine == nil:
		return kind.Action{Verdict: kind.Done, Message: scope.Spec.Node.Machine + " is removed"}
	case unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step == "" && machine.Status.NodeName != "":
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.DeletingNodeStep, NodeName: machine.Status.NodeName}
	case unit.Status.Step == v1alpha1.ForgettingStep:
		return kind.Action{Verdict: kind.Wait, Message: waitsForFinalizers(machine)}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.ForgettingStep}
}

func waitsForFinalizers(machine *v1alpha1.TalosMachine) string {
	if len(machine.Finalizers) == 0 {
		return fmt.Sprintf("waiting until TalosMachine %s is gone", machine.Name)
	}
	return fmt.Sprintf("waiting until TalosMachine %s is gone, which has finalizers of others: %s", machine.Name, strings.Join(machine.Finalizers, ", "))
}

// observeRemove looks at what a removal needs to know where the unit is.
func observeRemove(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit, seen kind.Observation) view {
	if !scope.Spec.Node.Dead() {
		return observeReset(ctx, reader, scope, unit, seen)
	}
	own := view{}
	if seen.TalosTrouble != "" && !seen.TalosSilent {
		if uuid, err := reader.Maintenance(ctx, unit.Machine.Spec.Address); err == nil {
			own.Maintenance = uuid // It was wiped before, or another one waits there.
		}
	}
	if unit.Machine.Spec.Role == v1alpha1.ControlPlaneRole { // In every stage: the last look of one may be the first of the next.
		own.Members, own.MembersTrouble = membersBeside(ctx, reader, scope, unit)
	}
	return own
}

// deleteNode deletes the Node of the machine that has left.
func (e *Executor) deleteNode(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	machine := removed(scope)
	if machine == nil {
		return kind.Outcome{}, nil
	}
	writer, err := e.Kube.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return kind.Outcome{}, err
	}
	deleted, err := writer.DeleteNode(ctx, unit.Status.NodeName, machine.Spec.UUID)
	if err != nil || deleted {
		return kind.Outcome{}, err
	}
	return kind.Outcome{Message: fmt.Sprintf("there is no Node %s of its, or it is another machine's by now", unit.Status.NodeName)}, nil
}

// forget deletes the TalosMachine of the machine that has left.
func (e *Executor) forget(ctx context.Context, scope kind.Scope) error {
	machine := removed(scope)
	if machine == nil {
		return nil
	}
	return e.Records.Forget(ctx, scope.Guard, machine)
}

// unreachable is what a removal waits for where the machine does not answer.
func unreachable(scope kind.Scope, unit kind.Unit, trouble string) kind.Action {
	wait := kind.Unreachable(unit, trouble)
	if scope.Spec.Node.Action == v1alpha1.RemoveAction {
		wait.Message += "; if it is dead, delete this operation, and: ichor machine remove " + unit.Status.Name + " --dead"
	}
	return wait
}

// unsafeRemove says why nobody else may disturb the cluster while the member of a machine that is dead is removed.
func unsafeRemove(unit kind.Unit) string {
	if unit.Status.Step == v1alpha1.RemovingMemberStep && !unit.FailedForGood() {
		return "is being removed from etcd, and the others may know it still"
	}
	return ""
}
