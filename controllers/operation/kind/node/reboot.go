// SPDX-License-Identifier: Apache-2.0

package node

import (
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
)

// back asks nothing but that the machine which came back is the one that went away.
func back(kind.Unit, kind.Observation) *kind.Action { return nil }

var rebootWay = reboot.Way{Proof: back}

func nextReboot(_ *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	return goThrough(scope, unit, seen, rebootWay)
}

func settleReboot(_ *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	return settleThrough(scope, unit, seen, rebootWay)
}

// goThrough takes a machine along a way.
func goThrough(scope kind.Scope, unit kind.Unit, seen kind.Observation, way reboot.Way) kind.Action {
	if unit.Status.Step == "" {
		return reboot.Begin(scope, unit, seen, way)
	}
	return reboot.Next(scope, unit, seen, way)
}

// settleThrough takes a machine that is on a way to its nearest safe point.
func settleThrough(scope kind.Scope, unit kind.Unit, seen kind.Observation, way reboot.Way) kind.Action {
	if !unit.Status.FailureTime.IsZero() {
		return reboot.GiveUp(scope, unit, seen)
	}
	return reboot.Settle(scope, unit, seen, way)
}
