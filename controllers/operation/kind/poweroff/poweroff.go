// SPDX-License-Identifier: Apache-2.0

// Package poweroff is the one way of a machine from the request to power off until it has proved that it is off. Nothing acknowledges that:
// a machine is off when nobody answers there any more, its Node is not Ready as far as the Kubernetes API tells, and that stays so.
//
// Whoever wants the machine drained does that before.
package poweroff

import (
	"context"
	"fmt"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/talos"
)

// Stays is how long a machine has to be silent before it counts as off: a network that comes and goes is silent for less.
const Stays = 10 * time.Second

// KeepOff is what helps with a machine that powers itself on.
const KeepOff = "keep it from that (its BMC, wake-on-LAN, a watchdog)"

// Steps declares the steps of the way.
func Steps() []kind.Step {
	return []kind.Step{
		{Name: v1alpha1.ShuttingDownStep, Repeat: kind.BootIDGuarded, Gated: true, Timeout: 10 * time.Minute},
		{Name: v1alpha1.StayingOffStep, Waits: true, Timeout: 15 * time.Minute},
	}
}

// Begin asks a machine that answers to power off. One that is off already has to stay so.
func Begin(unit kind.Unit, seen kind.Observation) kind.Action {
	switch there := signOfLife(seen); {
	case seen.TalosTrouble == "":
		if bad := reboot.CheckIdentity(unit, seen); bad != nil {
			return *bad
		}
		return ask(seen)
	case there != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: fmt.Sprintf("machine %s does not answer, and is not off: %s", unit.Status.Name, there)}
	}
	return staysOff()
}

func ask(seen kind.Observation) kind.Action {
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.ShuttingDownStep, PreRebootBootID: seen.Talos.BootID}
}

func staysOff() kind.Action {
	return kind.Action{Verdict: kind.Wait, Step: v1alpha1.StayingOffStep, Message: "nobody answers: waiting whether it stays so"}
}

// signOfLife is what shows that a machine is not off, or cannot be known to be; nothing means that nothing does.
func signOfLife(seen kind.Observation) string {
	switch {
	case seen.TalosTrouble == "":
		return fmt.Sprintf("it answers, in stage %q", seen.Talos.Stage)
	case !seen.TalosSilent:
		return "the Talos API: " + seen.TalosTrouble
	case seen.NodeTrouble == "" && seen.Node != nil && seen.Node.Ready:
		return fmt.Sprintf("Node %s is Ready", seen.Node.Name)
	}
	return ""
}

// Next decides what comes after a step of the way.
func Next(unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Step == v1alpha1.StayingOffStep {
		return stayingOff(unit, seen)
	}
	return shuttingDown(unit, seen)
}

// shuttingDown goes by what is there, and not by how the call ended: a machine may well go away over its answer. Asking a machine again that
// is up since before is harmless.
func shuttingDown(unit kind.Unit, seen kind.Observation) kind.Action {
	visible, before := seen.TalosTrouble == "", unit.Status.PreRebootBootID
	switch there := signOfLife(seen); {
	case visible && before == "": // A retry: the boot that was asked is history.
		return ask(seen)
	case visible && seen.Talos.BootID != before:
		return cameBack()
	case unit.FailedForGood():
		return kind.FailStep(unit, "")
	case unit.Failed() && visible && seen.Talos.Stage != talos.StageShuttingDown:
		return ask(seen)
	case there != "":
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("not off yet: %s; if it hangs, cut its power", there)}
	}
	return staysOff()
}

// stayingOff is over when nothing but silence has come for a while.
func stayingOff(unit kind.Unit, seen kind.Observation) kind.Action {
	visible, before := seen.TalosTrouble == "", unit.Status.PreRebootBootID
	switch {
	case visible && (before == "" || seen.Talos.BootID == before): // It had been off before it was asked, or was never off.
		return ask(seen)
	case visible:
		return cameBack()
	case signOfLife(seen) != "":
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.ShuttingDownStep, Message: "not off yet: " + signOfLife(seen)}
	}
	return kind.Action{Verdict: kind.Done, After: Stays}
}

// cameBack fails a machine that powered itself on: to ask it again and again would help nobody.
func cameBack() kind.Action {
	return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ShuttingDownStep, Message: "it is back by itself, with another boot ID; " + KeepOff}
}

// Settle decides the way to the nearest safe point: a machine that was told goes off, one that was not stays.
func Settle(unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Step == "" || !unit.Status.FailureTime.IsZero() {
		return kind.Action{Verdict: kind.Park}
	}
	return Next(unit, seen)
}

// Unsafe says why nobody else may disturb the cluster while a machine is where it is: it may go off at any moment.
func Unsafe(unit kind.Unit) string {
	if unit.Status.Step == v1alpha1.ShuttingDownStep && !unit.FailedForGood() {
		return "is asked to power off and is not known to be off"
	}
	return ""
}

// Do asks the machine to power off, unless it has booted since the claim, or is on its way.
func Do(ctx context.Context, s reboot.Sequence, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	writer, facts, err := s.Writer(ctx, scope, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	if facts.BootID != unit.Status.PreRebootBootID || facts.Stage == talos.StageShuttingDown {
		return kind.Outcome{}, nil
	}
	return kind.Outcome{}, reboot.Unheard(writer.Shutdown(ctx, unit.Machine.Spec.Address))
}
