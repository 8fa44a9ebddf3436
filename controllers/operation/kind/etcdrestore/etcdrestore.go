// SPDX-License-Identifier: Apache-2.0

// Package etcdrestore is the executor of kind etcd-restore: it puts a cluster back to a stored snapshot of its etcd.
//
// Everything that can be known beforehand is found out before anything is wiped. From the first wipe on, the state of the restore is on the
// hub alone: what the target itself remembers is of the time of the snapshot, once it remembers anything again.
package etcdrestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	restoreplan "ichor.maesh.dev/hub/controllers/operation/kind/etcdrestore/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Executor restores snapshots.
type Executor struct {
	restoreplan.Planner

	// Begins is how long a control plane may take from being told to begin an etcd until it does so. After that it is told once more: a
	// reboot forgets it.
	Begins time.Duration

	// Absent is how long a worker that does not answer is waited for.
	Absent time.Duration

	sequence  reboot.Sequence
	viewer    gate.Viewer
	clock     clock.WithTicker
	snapshots kind.Snapshots
	stored    kind.StoredSnapshots
}

// New returns the executor. Without snapshots and stored ones, every restore is refused.
func New(t talos.Provider, k kube.Provider, snapshots kind.Snapshots, stored kind.StoredSnapshots) *Executor {
	return &Executor{
		Planner: restoreplan.Planner{StoresSnapshots: snapshots != nil && stored != nil},
		Begins:  5 * time.Minute, Absent: 5 * time.Minute,
		sequence: reboot.New(t, k), viewer: gate.Viewer{Talos: t, Kube: k}, clock: clock.RealClock{}, snapshots: snapshots, stored: stored,
	}
}

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step {
	return []kind.Step{
		{Name: v1alpha1.CheckingStep, Repeat: kind.Safe, Cancel: true, Timeout: time.Hour},
		{Name: v1alpha1.SnapshottingStep, Repeat: kind.Safe, Cancel: true, Timeout: 30 * time.Minute},
		{Name: v1alpha1.ResettingStep, Repeat: kind.BootIDGuarded, Gated: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.PreparingStep, Waits: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.RecoveringStep, Repeat: kind.Safe, Timeout: time.Hour},
		// A second time it is answered that there is an etcd already.
		{Name: v1alpha1.BootstrappingStep, Repeat: kind.Safe, Timeout: 30 * time.Minute},
		{Name: v1alpha1.VerifyingStep, Waits: true, Timeout: 30 * time.Minute},
		{Name: v1alpha1.JoiningStep, Waits: true, Timeout: 30 * time.Minute},
		{Name: v1alpha1.RebootingStep, Repeat: kind.BootIDGuarded, Gated: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.AwaitingStep, Waits: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.RestartingStep, Repeat: kind.BootIDGuarded, Timeout: 5 * time.Minute},
		{Name: v1alpha1.CleaningStep, Repeat: kind.Safe, Records: true, Cancel: true, Timeout: 10 * time.Minute},
	}
}

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	own, _ := seen.Own.(View)
	switch unit.Status.Stage {
	case restoreplan.CheckStage:
		return checking(scope, unit, own)
	case restoreplan.SnapshotStage:
		return snapshotting(scope, unit, own)
	case restoreplan.WipeStage:
		return wiping(scope, unit, seen, own)
	case restoreplan.RecoverStage:
		return recovering(unit, seen, own)
	case restoreplan.JoinStage:
		return joining(unit, seen, own)
	case restoreplan.KubeletsStage:
		return e.restarting(unit, seen, own)
	case restoreplan.CleanStage:
		return cleaning(scope, unit, own)
	}
	return verifying(scope, unit, own)
}

// Settle implements kind.Executor. A control plane that is asked to wipe itself goes on until it waits for an etcd, and the chosen one until
// it has one; the rest can be left where it is.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch step := unit.Status.Step; {
	case step == "" || !unit.Status.FailureTime.IsZero():
		return kind.Action{Verdict: kind.Park}
	case unit.Machine == nil && unit.Status.Outcome != nil && !unit.Failed():
		return kind.Action{Verdict: kind.Done, Message: unit.Status.Outcome.Message}
	case unit.Machine == nil, step == v1alpha1.JoiningStep, step == v1alpha1.AwaitingStep:
		return kind.Action{Verdict: kind.Park}
	}
	return e.Next(scope, unit, seen)
}

// Unsafe implements kind.Executor: from the first wipe until every control plane has an etcd again.
func (e *Executor) Unsafe(unit kind.Unit) string {
	switch step := unit.Status.Step; {
	case unit.Status.Stage == restoreplan.RecoverStage:
		return "has no etcd of the snapshot yet"
	case unit.Status.Stage == restoreplan.JoinStage:
		return "has not joined etcd again yet"
	case step == v1alpha1.ResettingStep && !unit.FailedForGood():
		return "is asked to wipe its etcd and is not known to have done so"
	case step == v1alpha1.PreparingStep:
		return "is wiped and has no etcd yet"
	}
	return ""
}

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step { //nolint:exhaustive // The others make no call.
	case v1alpha1.CheckingStep:
		return e.check(ctx, scope)
	case v1alpha1.SnapshottingStep:
		return kind.Outcome{}, e.snapshots.Take(ctx, scope.Cluster, scope.Guard, kind.SnapshotName(scope))
	case v1alpha1.ResettingStep:
		return kind.Outcome{}, e.wipe(ctx, scope, unit)
	case v1alpha1.RecoveringStep:
		return e.send(ctx, scope, unit)
	case v1alpha1.BootstrappingStep:
		return e.bootstrap(ctx, scope, unit)
	case v1alpha1.RebootingStep:
		return e.sequence.Do(ctx, scope, unit, step)
	case v1alpha1.RestartingStep:
		return kind.Outcome{}, e.restartKubelet(ctx, scope, unit)
	case v1alpha1.CleaningStep:
		return e.clean(ctx, scope)
	}
	return kind.Outcome{}, fmt.Errorf("step %s makes no call", step)
}

// Undo implements kind.Executor: before the wipe nothing is left on the target, and after it there is nothing to go back to.
func (e *Executor) Undo(context.Context, kind.Scope, kind.Unit, v1alpha1.OperationStep, error) error {
	return nil
}

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	var finding *FindingError
	var early *earlyError
	var notBegun *notBegunError
	switch {
	case errors.As(err, &finding), errors.As(err, &notBegun), errors.Is(err, kind.ErrUnusable), errors.Is(err, kind.ErrNotStored):
		return v1alpha1.ErrorPermanent
	case errors.As(err, &early):
		return v1alpha1.ErrorRetryable
	}
	return reboot.Classify(err)
}

// FindingError is what a look at snapshot and cluster has found to stand in the way. Nothing was touched.
type FindingError struct{ Found string }

// Error says what was found.
func (e *FindingError) Error() string { return e.Found }

// notBegunError says that etcd was told to begin and could not.
type notBegunError struct{ found string }

// Error says what was found.
func (e *notBegunError) Error() string { return e.found }

// earlyError wraps the answer of a machine that is not as far yet as it will be.
type earlyError struct{ error }

// Unwrap returns the answer.
func (e *earlyError) Unwrap() error { return e.error }

// unlessEarly marks the error of a machine that is not ready for what it was asked for.
func unlessEarly(err error) error {
	if talos.NotReady(err) {
		return &earlyError{err}
	}
	return err
}

// serviceHelp is the command that tells why service etcd is not what it should be.
func serviceHelp(unit kind.Unit) string {
	return fmt.Sprintf("talosctl -n %s service etcd", unit.Machine.Spec.Address)
}

// deleteHelp says how an operation goes on without a machine that is lost.
func deleteHelp(unit kind.Unit) string {
	namespace := "NAMESPACE"
	if unit.Machine != nil && unit.Machine.Namespace != "" {
		namespace = unit.Machine.Namespace
	}
	return fmt.Sprintf("if it is lost, keep it off and go on without it: kubectl -n %s delete talosmachine %s", namespace, unit.Status.Name)
}
