// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/poweroff"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
)

// shutdownSteps take the cordon off only on the way back to where it began: a machine that is off keeps it.
var shutdownSteps = slices.Concat(
	common(v1alpha1.ForfeitingStep, v1alpha1.EvacuatingStep, v1alpha1.DrainingStep), poweroff.Steps(), common(v1alpha1.UncordoningStep),
)

// shutdownWay is the way through a reboot up to where the machine goes.
func shutdownWay() reboot.Way {
	way := reboot.Way{Step: v1alpha1.ShuttingDownStep}
	way.After = func(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
		switch action := poweroff.Next(unit, seen); {
		case action.Verdict == kind.Call:
			return reboot.Ask(scope, unit, seen, way) // Drained once more, if it is not any more.
		case action.Verdict == kind.Fail && unit.FailedForGood():
			action.RetryStep = reboot.RetryStep(scope) // The cordon is off; see Undo.
			return action
		default:
			return action
		}
	}
	return way
}

func nextShutdown(_ *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	way := shutdownWay()
	if unit.Status.Step == v1alpha1.StayingOffStep {
		return way.After(scope, unit, seen)
	}
	return goThrough(scope, unit, seen, way)
}

func settleShutdown(_ *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Step == v1alpha1.StayingOffStep && unit.Status.FailureTime.IsZero() {
		return shutdownWay().After(scope, unit, seen)
	}
	return settleThrough(scope, unit, seen, shutdownWay())
}
