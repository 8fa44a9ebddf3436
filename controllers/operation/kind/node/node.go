// SPDX-License-Identifier: Apache-2.0

// Package node is the executor of kind node: one action on one machine.
package node

import (
	"context"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Executor reboots one machine.
type Executor struct {
	nodeplan.Planner
	reboot.Sequence
}

// New returns the executor.
func New(t talos.Provider, k kube.Provider) *Executor {
	return &Executor{Sequence: reboot.New(t, k)}
}

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step { return reboot.Steps() }

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Step != "" {
		return reboot.Next(scope, unit, seen, way)
	}
	if seen.TalosTrouble != "" {
		return kind.Unreachable(unit, seen.TalosTrouble)
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	return reboot.Begin(scope, unit, seen, way)
}

// Settle implements kind.Executor.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if !unit.Status.FailureTime.IsZero() {
		return reboot.GiveUp(scope, unit, seen)
	}
	return reboot.Settle(scope, unit, seen, way)
}

// Unsafe implements kind.Executor.
func (e *Executor) Unsafe(unit kind.Unit) string { return reboot.Unsafe(unit) }

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	return e.Sequence.Do(ctx, scope, unit, step)
}

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass { return reboot.Classify(err) }

// way asks nothing but that the machine which came back is the one that went away.
var way = reboot.Way{Proof: func(kind.Unit, kind.Observation) *kind.Action { return nil }}
