// SPDX-License-Identifier: Apache-2.0

// Package keyrotation is the executor of kind key-rotation: it replaces the key that signs the tokens of service accounts, and the key by
// which API servers encrypt what they write to etcd.
//
// It goes through the control planes in passes. After each of them every API server takes what any other one has made, so it may stop
// between any two calls, for as long as it likes. What a pass asks of a machine config is computed from the config that the machine has, so a
// pass that is gone through twice changes nothing the second time.
package keyrotation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	keyplan "ichor.maesh.dev/hub/controllers/operation/kind/keyrotation/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// Bundles brings the bundles of secrets of clusters up to date. A cluster that has none is none of its business.
type Bundles func(ctx context.Context, t target.Target, change func(*secrets.Bundle) error) error

// Options are what an Executor works with.
type Options struct {
	Talos talos.Provider
	Kube  kube.Provider

	// Client keeps keys in Secrets of the management cluster, and Live reads them, uncached.
	Client client.Client
	Live   client.Reader

	// Snapshots stores snapshots of etcd; nil stores none.
	Snapshots kind.Snapshots

	// Bundles brings the bundle of secrets up to date; nil leaves it as it is.
	Bundles Bundles

	Clock clock.PassiveClock

	// RestartAfter is how long an API server that Talos has to restart may take before it is made to; zero takes a minute.
	RestartAfter time.Duration

	// Refresh is how long tokens may be in use before whoever uses them has a new one; zero takes a day and ten minutes: a kubelet renews
	// those of pods after a day at the latest, and looks once a minute.
	Refresh time.Duration

	// Chunk is how many objects are written between two writes of status; zero takes 500.
	Chunk int
}

// Executor rotates keys.
type Executor struct {
	keyplan.Planner

	sequence reboot.Sequence
	keeper   keeper
	options  Options
}

// New returns the executor.
func New(o Options) *Executor {
	for _, option := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&o.RestartAfter, time.Minute}, {&o.Refresh, 24*time.Hour + 10*time.Minute}} {
		if *option.value == 0 {
			*option.value = option.standard
		}
	}
	if o.Chunk == 0 {
		o.Chunk = 500
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Executor{
		Planner:  keyplan.Planner{StoresSnapshots: o.Snapshots != nil},
		sequence: reboot.New(o.Talos, o.Kube), keeper: keeper{client: o.Client, live: o.Live}, options: o,
	}
}

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step {
	return []kind.Step{
		{Name: v1alpha1.CheckingStep, Repeat: kind.Safe, Blind: true, Cancel: true, Timeout: 2 * time.Minute},
		{Name: v1alpha1.GeneratingStep, Repeat: kind.Safe, Blind: true, Cancel: true, Timeout: 5 * time.Minute},
		{Name: v1alpha1.ApplyingStep, Repeat: kind.Safe, Gated: true, Timeout: 2 * time.Minute},
		{Name: v1alpha1.RestartingStep, Repeat: kind.Safe, Timeout: 2 * time.Minute},
		{Name: v1alpha1.VerifyingStep, Waits: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.ProvingStep, Repeat: kind.Safe, Blind: true, Timeout: 5 * time.Minute},
		{Name: v1alpha1.AwaitingCredentialsStep, Waits: true}, // People have the time that they need.
		// It has no deadline of its own: Secrets that people have to renew take as long as they take.
		{Name: v1alpha1.RefreshingStep, Waits: true},
		{Name: v1alpha1.SnapshottingStep, Repeat: kind.Safe, Blind: true, Cancel: true, Timeout: 30 * time.Minute},
		{Name: v1alpha1.RewritingStep, Repeat: kind.Safe, Cancel: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.RenewingStep, Repeat: kind.Safe, Blind: true, Timeout: 5 * time.Minute},
	}
}

// Observe implements kind.Executor.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	if unit.Machine == nil {
		return kind.Observation{Own: e.lookAtCluster(ctx, scope, unit)}
	}
	seen := e.sequence.Observe(ctx, scope, unit)
	if seen.TalosTrouble == "" {
		seen.Own = e.lookAtMachine(ctx, scope, unit)
	}
	return seen
}

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if scope.TurnBack && keyplan.TakenBack(unit.Status.Stage) {
		return kind.Action{Verdict: kind.Done} // What was begun here is taken back by a stage of its own, whatever config it finds.
	}
	switch unit.Status.Stage {
	case keyplan.CheckStage:
		return checking(unit, seen)
	case keyplan.KeysStage:
		return once(unit, v1alpha1.GeneratingStep)
	case keyplan.PublishKeysStage:
		return publishing(scope, unit, clusterLookOf(seen))
	case keyplan.RefreshTokensStage, keyplan.BackRefreshTokensStage:
		return refreshing(scope, unit, clusterLookOf(seen))
	case keyplan.SnapshotStage:
		return once(unit, v1alpha1.SnapshottingStep)
	case keyplan.RewriteStage, keyplan.BackRewriteStage:
		return rewriting(unit, clusterLookOf(seen))
	case keyplan.BundleStage:
		return once(unit, v1alpha1.RenewingStep)
	}
	return pass(scope, unit, seen)
}

// once makes one call, and that is all.
func once(unit kind.Unit, step v1alpha1.OperationStep) kind.Action {
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Done, Message: unit.Status.Outcome.Message}
	}
	return kind.Action{Verdict: kind.Call, Step: step}
}

// Settle implements kind.Executor: a config that was applied is seen through, since its API server restarts. Everything else may stop where it
// is, and goes on from there.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if !unit.Status.FailureTime.IsZero() || unit.Failed() {
		return kind.Action{Verdict: kind.Park}
	}
	switch unit.Status.Step { //nolint:exhaustive // The others have changed nothing on a machine.
	case v1alpha1.ApplyingStep, v1alpha1.RestartingStep, v1alpha1.VerifyingStep, v1alpha1.ProvingStep:
		return e.Next(scope, unit, seen)
	}
	return kind.Action{Verdict: kind.Park}
}

// Unsafe implements kind.Executor: from the first API server that uses a new key to the last one that has the old key, whoever makes or
// restores a control plane has to know of both.
func (e *Executor) Unsafe(unit kind.Unit) string {
	if !keyplan.Unsafe(unit.Status.Stage) || unit.Status.Step == "" || unit.FailedForGood() {
		return ""
	}
	return "is between two keys: some API servers use the new one, and some have the old one"
}

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step { //nolint:exhaustive // The others are not declared.
	case v1alpha1.CheckingStep:
		return kind.Outcome{}, e.check(ctx, scope, unit)
	case v1alpha1.GeneratingStep:
		return e.generate(ctx, scope)
	case v1alpha1.ApplyingStep:
		return kind.Outcome{}, e.apply(ctx, scope, unit, "")
	case v1alpha1.RestartingStep:
		return kind.Outcome{}, e.apply(ctx, scope, unit, markOf(scope, unit))
	case v1alpha1.ProvingStep:
		if losesKey(unit.Status.Stage) {
			return e.proveReading(ctx, scope, unit)
		}
		return e.prove(ctx, scope, unit)
	case v1alpha1.SnapshottingStep:
		return kind.Outcome{}, e.options.Snapshots.Take(ctx, scope.Cluster, scope.Guard, kind.SnapshotName(scope))
	case v1alpha1.RewritingStep:
		return e.rewrite(ctx, scope, unit)
	case v1alpha1.RenewingStep:
		return e.renew(ctx, scope)
	}
	return kind.Outcome{}, fmt.Errorf("step %s makes no call", step)
}

// Undo implements kind.Executor: no call leaves anything behind but what it was to bring about.
func (e *Executor) Undo(context.Context, kind.Scope, kind.Unit, v1alpha1.OperationStep, error) error {
	return nil
}

// findingError is what keeps a rotation from going on until somebody has seen to it.
type findingError struct{ found string }

// Error says what was found.
func (e *findingError) Error() string { return e.found }

func finding(format string, args ...any) error { return &findingError{fmt.Sprintf(format, args...)} }

// laterError is what goes away by itself.
type laterError struct{ what string }

// Error says what is waited for.
func (e *laterError) Error() string { return e.what }

func later(format string, args ...any) error { return &laterError{fmt.Sprintf(format, args...)} }

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	var found *findingError
	var wait *laterError
	switch {
	case errors.As(err, &found), errors.Is(err, kind.ErrNotStored):
		return v1alpha1.ErrorPermanent
	case errors.As(err, &wait):
		return v1alpha1.ErrorRetryable
	}
	return reboot.Classify(err)
}
