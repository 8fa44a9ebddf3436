// SPDX-License-Identifier: Apache-2.0

// Package shutdown is the executor of kind shutdown: it stops a whole cluster, and takes it back into service once people have powered its
// machines on.
package shutdown

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/poweroff"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	shutdownplan "ichor.maesh.dev/hub/controllers/operation/kind/shutdown/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Executor stops and starts clusters.
type Executor struct {
	shutdownplan.Planner

	sequence  reboot.Sequence
	viewer    gate.Viewer
	snapshots kind.Snapshots
}

// New returns the executor. Without snapshots, a stop that takes one is refused.
func New(t talos.Provider, k kube.Provider, snapshots kind.Snapshots) *Executor {
	return &Executor{
		Planner:  shutdownplan.Planner{StoresSnapshots: snapshots != nil},
		sequence: reboot.New(t, k), viewer: gate.Viewer{Talos: t, Kube: k}, snapshots: snapshots,
	}
}

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step {
	return append(poweroff.Steps(),
		kind.Step{Name: v1alpha1.SnapshottingStep, Repeat: kind.Safe, Cancel: true, Timeout: 30 * time.Minute},
		kind.Step{Name: v1alpha1.CordoningStep, Repeat: kind.Safe, Timeout: 5 * time.Minute},
		kind.Step{Name: v1alpha1.VerifyingStep, Waits: true, Timeout: 15 * time.Minute},
		kind.Step{Name: v1alpha1.UncordoningStep, Repeat: kind.Safe, Blind: true, Harmless: true, Timeout: 5 * time.Minute},
	)
}

// Observe implements kind.Executor.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	if unit.Machine != nil {
		return e.sequence.Observe(ctx, scope, unit)
	}
	return kind.Observation{Own: e.look(ctx, scope, unit.Status.Stage)}
}

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case unit.Machine != nil && unit.Status.Step == "":
		return poweroff.Begin(unit, seen)
	case unit.Machine != nil:
		return poweroff.Next(unit, seen)
	}
	all, _ := seen.Own.(View) // None after a step that needs no look.
	switch unit.Status.Stage {
	case shutdownplan.SnapshotStage:
		return snapshot(scope, unit, all)
	case shutdownplan.CordonStage:
		return cordon(scope, unit, all)
	case shutdownplan.PowerOnStage:
		return powerOn(scope, all)
	case shutdownplan.VerifyStage:
		return verify(scope, unit, all)
	case shutdownplan.UncordonStage:
		return uncordon(scope, unit, all)
	}
	return stayOff(unit, all)
}

// Settle implements kind.Executor. A machine that was told goes off, and the others stay on. Once all Nodes are cordoned they stay so over a
// pause; an operation that is given up takes its cordons off.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Machine != nil {
		return poweroff.Settle(unit, seen)
	}
	all, _ := seen.Own.(View)
	switch {
	case unit.Status.Stage == shutdownplan.CordonStage:
		return takeBack(scope, unit, all)
	case unit.Status.Step == v1alpha1.ShuttingDownStep && !unit.Failed():
		return stayOff(unit, all)
	}
	return kind.Action{Verdict: kind.Park}
}

// Unsafe implements kind.Executor.
func (e *Executor) Unsafe(unit kind.Unit) string { return poweroff.Unsafe(unit) }

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step {
	case v1alpha1.SnapshottingStep:
		return kind.Outcome{}, e.snapshots.Take(ctx, scope.Cluster, scope.Guard, kind.SnapshotName(scope))
	case v1alpha1.CordoningStep:
		return e.cordonAll(ctx, scope)
	case v1alpha1.UncordoningStep:
		return kind.Outcome{}, e.giveBack(ctx, scope, ownerOf(scope, unit))
	case v1alpha1.ShuttingDownStep:
		if unit.Machine != nil {
			return poweroff.Do(ctx, e.sequence, scope, unit)
		}
		return kind.Outcome{}, e.shutDownAgain(ctx, scope, unit.Status.Stage)
	}
	return kind.Outcome{}, fmt.Errorf("step %s makes no call", step)
}

// Undo implements kind.Executor.
func (e *Executor) Undo(ctx context.Context, scope kind.Scope, _ kind.Unit, step v1alpha1.OperationStep, _ error) error {
	if step == v1alpha1.CordoningStep {
		return e.giveBack(ctx, scope, scope.Owner)
	}
	return nil
}

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	if errors.Is(err, kind.ErrNotStored) {
		return v1alpha1.ErrorPermanent
	}
	return reboot.Classify(err)
}
