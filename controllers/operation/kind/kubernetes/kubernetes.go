// SPDX-License-Identifier: Apache-2.0

// Package kubernetes is the executor of kind kubernetes: it brings a cluster to another version of Kubernetes, component by component.
//
// What is done is told by content alone: what Talos was told to run, what runs there, and what the API server knows of it. So a cluster that is
// half-way, by whoever's hand, is gone on with.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	kubernetesplan "ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Executor upgrades Kubernetes.
type Executor struct {
	kubernetesplan.Planner
	reboot.Sequence

	snapshots kind.Snapshots
}

// New returns the executor. snapshots stores what is taken of etcd before the first change; nil stores nothing.
func New(t talos.Provider, k kube.Provider, snapshots kind.Snapshots) *Executor {
	return &Executor{Planner: kubernetesplan.Planner{StoresSnapshots: snapshots != nil}, Sequence: reboot.New(t, k), snapshots: snapshots}
}

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step {
	own := []kind.Step{
		{Name: v1alpha1.CheckingStep, Repeat: kind.Safe, Cancel: true, Timeout: 5 * time.Minute},
		{Name: v1alpha1.PullingStep, Repeat: kind.Safe, Blind: true, Cancel: true, Timeout: 10 * time.Minute},
		{Name: v1alpha1.SnapshottingStep, Repeat: kind.Safe, Blind: true, Cancel: true, Timeout: 30 * time.Minute},
		{Name: v1alpha1.ApplyingStep, Repeat: kind.Safe, Gated: true, Timeout: 2 * time.Minute},
		{Name: v1alpha1.VerifyingStep, Waits: true, Timeout: 5 * time.Minute},
		// Whether it ends the stage or takes it back is told by a look.
		{Name: v1alpha1.UncordoningStep, Repeat: kind.Safe, Harmless: true, Timeout: 2 * time.Minute},
		{Name: v1alpha1.SyncingStep, Repeat: kind.Safe, Timeout: 5 * time.Minute},
		{Name: v1alpha1.RollingOutStep, Waits: true, Timeout: 30 * time.Minute},
	}
	for _, step := range reboot.Steps() {
		if step.Name == v1alpha1.EvacuatingStep || step.Name == v1alpha1.DrainingStep {
			own = append(own, step)
		}
	}
	return own
}

// components are what the stages that change control planes are about.
var components = map[string]machineimage.Component{
	kubernetesplan.APIServerStage:         machineimage.APIServer,
	kubernetesplan.ControllerManagerStage: machineimage.ControllerManager,
	kubernetesplan.SchedulerStage:         machineimage.Scheduler,
	kubernetesplan.ProxyConfigStage:       machineimage.Proxy,
	kubernetesplan.KubeletsStage:          machineimage.Kubelet,
}

// Observe implements kind.Executor.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	switch {
	case unit.Status.Stage == kubernetesplan.SnapshotStage:
		return kind.Observation{} // Whether it is stored is what its call answers.
	case unit.Machine == nil:
		return e.observeCluster(ctx, scope, unit)
	}
	seen := e.Sequence.Observe(ctx, scope, unit)
	e.observeMachine(ctx, scope, unit, &seen)
	return seen
}

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch unit.Status.Stage {
	case kubernetesplan.CheckStage:
		return checking(scope, unit, seen)
	case kubernetesplan.ManifestsStage:
		return syncing(scope, unit, seen)
	case kubernetesplan.PullStage:
		return pulling(scope, unit, seen)
	case kubernetesplan.SnapshotStage:
		return kind.NextSnapshot(unit)
	case kubernetesplan.ProxyConfigStage:
		return proxy(scope, unit, seen)
	case kubernetesplan.KubeletsStage:
		return kubelet(scope, unit, seen)
	}
	return staticPod(scope, unit, seen)
}

// Settle implements kind.Executor: what was applied is seen through, and anything before that is taken back.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Stage == kubernetesplan.SnapshotStage {
		return kind.SettleSnapshot(unit)
	}
	drained := unit.Status.Stage == kubernetesplan.KubeletsStage
	applied := unit.Status.Step == v1alpha1.ApplyingStep && !unit.Failed()
	switch step := unit.Status.Step; {
	case drained && (!unit.Status.FailureTime.IsZero() || step == ""):
		return reboot.GiveUp(scope, unit, seen)
	case !unit.Status.FailureTime.IsZero(), step == "":
		return kind.Action{Verdict: kind.Park}
	case applied, unit.Machine != nil && step == v1alpha1.VerifyingStep:
		return e.Next(scope, unit, seen)
	case drained:
		return reboot.GiveUp(scope, unit, seen)
	}
	return kind.Action{Verdict: kind.Park}
}

// Unsafe implements kind.Executor: every mixture of versions that a stage can leave behind is one that Kubernetes supports.
func (e *Executor) Unsafe(kind.Unit) string { return "" }

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step { //nolint:exhaustive // The rest is how a Node is emptied.
	case v1alpha1.CheckingStep:
		return e.check(ctx, scope)
	case v1alpha1.PullingStep:
		return kind.Outcome{}, e.pull(ctx, scope, unit)
	case v1alpha1.SnapshottingStep:
		return kind.Outcome{}, e.snapshots.Take(ctx, scope.Cluster, scope.Guard, kind.SnapshotName(scope))
	case v1alpha1.ApplyingStep:
		return e.apply(ctx, scope, unit)
	case v1alpha1.SyncingStep:
		return e.sync(ctx, scope)
	}
	return e.Sequence.Do(ctx, scope, unit, step)
}

// Undo implements kind.Executor. A kubelet whose config was refused is what it was.
func (e *Executor) Undo(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep, cause error) error {
	if step == v1alpha1.ApplyingStep && unit.Status.Stage == kubernetesplan.KubeletsStage {
		step = v1alpha1.DrainingStep // What is left is what the drain left.
	}
	return e.Sequence.Undo(ctx, scope, unit, step, cause)
}

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	var finding *FindingError
	var late *laterError
	switch {
	case errors.As(err, &finding), errors.Is(err, kind.ErrNotStored):
		return v1alpha1.ErrorPermanent
	case errors.As(err, &late):
		return v1alpha1.ErrorRetryable
	}
	return reboot.Classify(err)
}

// FindingError is what a look at the target has found to stand in the way. Nothing was changed for it.
type FindingError struct{ Found string }

// Error says what was found.
func (e *FindingError) Error() string { return e.Found }

// finding returns a FindingError.
func finding(format string, args ...any) error {
	return &FindingError{Found: fmt.Sprintf(format, args...)}
}

// laterError is what goes away by itself.
type laterError struct{ what string }

// Error says what is waited for.
func (e *laterError) Error() string { return e.what }

func overridden(scope kind.Scope, gate string) bool {
	return slices.ContainsFunc(scope.Spec.Overrides, func(o v1alpha1.GateOverride) bool { return o.Gate == gate })
}
