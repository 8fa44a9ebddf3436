// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
)

// Settle decides the way to the nearest safe point: back before the reboot was asked for, on after it.
func Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation, way Way) kind.Action {
	switch unit.Status.Step {
	case v1alpha1.RebootingStep, v1alpha1.VerifyingStep, v1alpha1.UncordoningStep, way.step():
		return Next(scope, unit, seen, way)
	}
	return GiveUp(scope, unit, seen)
}

// TakeBack takes the operation's own marks off a machine that needs nothing more: an attempt that failed may have left them.
func TakeBack(scope kind.Scope, seen kind.Observation) kind.Action {
	if marked(scope, seen) {
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.UncordoningStep}
	}
	return kind.Action{Verdict: kind.Done}
}

// GiveUp takes the operation's own marks off the Node, if they are on and can be taken off.
func GiveUp(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case unit.Status.Step == v1alpha1.UncordoningStep && !unit.Failed():
		return kind.Action{Verdict: kind.Park}
	case seen.NodeTrouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Kubernetes API, to take the cordon off: " + seen.NodeTrouble}
	case seen.StorageTrouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the storage, to give the Node back to it: " + seen.StorageTrouble}
	case marked(scope, seen):
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.UncordoningStep}
	}
	return kind.Action{Verdict: kind.Park}
}

// Unsafe says why nobody else may disturb the cluster while a machine is where it is in the sequence: from the request for the reboot
// until the machine is back, or has proved that it is not what it should be. Until then its etcd member may be missing or a learner.
func Unsafe(unit kind.Unit) string {
	if unit.FailedForGood() {
		return ""
	}
	switch unit.Status.Step { //nolint:exhaustive // What precedes the reboot can be taken back, and what follows it is over.
	case v1alpha1.RebootingStep:
		return "is asked to reboot and has not done so yet"
	case v1alpha1.VerifyingStep:
		return "has rebooted and is not known to be back"
	}
	return ""
}
