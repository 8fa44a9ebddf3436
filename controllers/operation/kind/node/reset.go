// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/poweroff"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
)

// resetSteps: the gates are asked once more before the member leaves etcd, which is the point of no return. Afterwards they could not open
// any more: etcd has one member less than the cluster has control planes.
var resetSteps = slices.Concat(
	common(v1alpha1.ForfeitingStep, v1alpha1.EvacuatingStep, v1alpha1.DrainingStep),
	[]kind.Step{
		{Name: v1alpha1.LeavingStep, Repeat: kind.Safe, Gated: true, Timeout: 10 * time.Minute},
		{Name: v1alpha1.RemovingMemberStep, Repeat: kind.Safe, Gated: true, Timeout: 10 * time.Minute},
		{Name: v1alpha1.ResettingStep, Repeat: kind.BootIDGuarded, Timeout: 15 * time.Minute},
	},
	common(v1alpha1.VerifyingStep, v1alpha1.UncordoningStep),
	poweroff.Steps()[1:],
)

// What it means that a machine which should be wiped, or off, has booted and answers with the credentials of the cluster.
const (
	notWiped = "it has booted and answers as a machine of its cluster: it was not wiped, or its platform gave it its machine config once more"
	notOff   = "it was asked to power off after its reset and has booted again"
)

// resetWay is the way through a reboot up to the reset. One that wipes user volumes alone ends as a reboot does: the machine comes back.
func (e *Executor) resetWay(scope kind.Scope) reboot.Way {
	way := reboot.Way{Step: v1alpha1.ResettingStep, Proof: back}
	node := scope.Spec.Node
	switch {
	case node.Wipes(v1alpha1.WipeSystem):
		way.Ask = func(unit kind.Unit, seen kind.Observation, ask kind.Action) kind.Action {
			return e.outOfEtcd(scope, unit, seen, ask)
		}
		way.After = func(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
			return e.wiping(scope, unit, seen, way)
		}
	case node.PowersOff():
		way.After = func(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
			return e.goneWay(scope, unit, seen, way).next(scope, unit, seen)
		}
	}
	return way
}

// goneWay is the way to being off, or gone.
func (e *Executor) goneWay(scope kind.Scope, unit kind.Unit, seen kind.Observation, way reboot.Way) goneWay {
	gone := goneWay{
		lasting: poweroff.Stays, cameBack: notOff, retryAt: reboot.RetryStep(scope),
		ask: func() kind.Action { return reboot.Ask(scope, unit, seen, way) },
	}
	if !scope.Spec.Node.Wipes(v1alpha1.WipeSystem) {
		return gone
	}
	gone.wiped, gone.cameBack = true, notWiped
	if !scope.Spec.Node.PowersOff() {
		gone.lasting = e.GoneFor
	}
	if hasLeftEtcd(unit) {
		gone.retryAt = "" // It cannot be put back.
	}
	return gone
}

// wiping waits until the machine is in maintenance mode, or gone: nothing else tells that it is wiped.
func (e *Executor) wiping(scope kind.Scope, unit kind.Unit, seen kind.Observation, way reboot.Way) kind.Action {
	switch inMaintenance := viewOf(seen).Maintenance == unit.Machine.Spec.UUID; {
	case inMaintenance && scope.Spec.Node.PowersOff():
		return kind.Action{Verdict: kind.Fail, Message: "it is wiped, and in maintenance mode where it should power off"}
	case inMaintenance:
		return kind.Action{Verdict: kind.Done}
	}
	return e.goneWay(scope, unit, seen, way).next(scope, unit, seen)
}

func nextReset(e *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	way, step := e.resetWay(scope), unit.Status.Step
	switch step { //nolint:exhaustive // The others are on the way through a reboot.
	case "":
		return beginReset(scope, unit, seen, way)
	case v1alpha1.StayingOffStep:
		return way.After(scope, unit, seen)
	case v1alpha1.LeavingStep, v1alpha1.RemovingMemberStep:
		if unit.Failed() {
			return kind.FailStep(unit, "")
		}
		return reboot.Ask(scope, unit, seen, way)
	}
	return reboot.Next(scope, unit, seen, way)
}

// beginReset looks at what there is to wipe before anything is touched.
func beginReset(scope kind.Scope, unit kind.Unit, seen kind.Observation, way reboot.Way) kind.Action {
	own := viewOf(seen)
	if own.Trouble != "" {
		return kind.Unreachable(unit, own.Trouble)
	}
	if _, err := wipeList(scope.Spec.Node, own.Volumes); err != nil {
		return kind.Action{Verdict: kind.Fail, Message: err.Error()}
	}
	if scope.Spec.Node.Forced() {
		return reboot.Ask(scope, unit, seen, way)
	}
	return reboot.Begin(scope, unit, seen, way)
}

// settleReset goes on from where the member is asked to leave etcd, or the machine to wipe itself, and back before that.
func settleReset(e *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	failed := !unit.Status.FailureTime.IsZero()
	switch unit.Status.Step { //nolint:exhaustive // The others can be taken back.
	case v1alpha1.LeavingStep, v1alpha1.RemovingMemberStep, v1alpha1.StayingOffStep:
		if !failed {
			return nextReset(e, scope, unit, seen)
		}
	}
	return settleThrough(scope, unit, seen, e.resetWay(scope))
}

// unsafeReset says why nobody else may disturb the cluster while a machine is where it is on its way to being wiped.
func unsafeReset(unit kind.Unit) string {
	switch step := unit.Status.Step; { //nolint:exhaustive // See Unsafe of package reboot.
	case step == v1alpha1.LeavingStep && !unit.FailedForGood():
		return "is asked to leave etcd and is not wiped yet"
	case step == v1alpha1.RemovingMemberStep && !unit.FailedForGood():
		return "is being removed from etcd and is not wiped yet"
	case step == v1alpha1.ResettingStep && (!unit.FailedForGood() || hasLeftEtcd(unit)):
		return "is asked to wipe itself and is not known to have done so"
	}
	return ""
}

// hasLeftEtcd says whether the etcd member of a machine has left, or was removed, in this operation.
func hasLeftEtcd(unit kind.Unit) bool {
	return slices.ContainsFunc(unit.Status.Steps, func(record v1alpha1.StepRecord) bool {
		return record.Step == v1alpha1.LeavingStep || record.Step == v1alpha1.RemovingMemberStep
	})
}
