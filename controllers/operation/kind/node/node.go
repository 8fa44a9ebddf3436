// SPDX-License-Identifier: Apache-2.0

// Package node is the executor of kind node: one action on one machine, or on the members of etcd.
package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/poweroff"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Executor acts on machines.
type Executor struct {
	nodeplan.Planner
	reboot.Sequence

	// GoneFor is how long a machine has to be silent that should have come back in maintenance mode: it may have done so where nobody can see it.
	GoneFor time.Duration

	// Configs make the machine configs of machines that join.
	Configs Configs

	// DeadFor is how long a machine has to be silent that somebody has declared dead: one that reboots is silent as well.
	DeadFor time.Duration

	// Records deletes the TalosMachines of machines that were removed.
	Records Records
}

// New returns the executor.
func New(t talos.Provider, k kube.Provider) *Executor {
	return &Executor{Sequence: reboot.New(t, k), GoneFor: 5 * time.Minute, DeadFor: time.Minute}
}

// action is the code of one action. One without settle has nothing to take back, and is over soon.
type action struct {
	steps        []kind.Step
	next, settle func(*Executor, kind.Scope, kind.Unit, kind.Observation) kind.Action
}

// actions are the actions by their names. What a planner refuses is not begun.
var actions = map[v1alpha1.NodeAction]action{
	v1alpha1.RebootAction:                {steps: reboot.Steps(), next: nextReboot, settle: settleReboot},
	v1alpha1.ShutdownAction:              {steps: shutdownSteps, next: nextShutdown, settle: settleShutdown},
	v1alpha1.RestartServiceAction:        {steps: restartSteps, next: nextRestart},
	v1alpha1.EtcdDefragAction:            {steps: defragSteps, next: nextDefrag},
	v1alpha1.EtcdForfeitLeadershipAction: {steps: forfeitSteps, next: nextForfeit},
	v1alpha1.ResetAction:                 {steps: resetSteps, next: nextReset, settle: settleReset},
	v1alpha1.JoinAction:                  {steps: joinSteps, next: nextJoin, settle: settleJoin},
	v1alpha1.RemoveAction:                {steps: removeSteps, next: nextRemove, settle: settleRemove},
}

// StepsOf declares the steps of one action.
func StepsOf(name v1alpha1.NodeAction) []kind.Step { return actions[name].steps }

// Steps implements kind.Executor: a step means the same in every action that takes it.
func (e *Executor) Steps() []kind.Step {
	steps := reboot.Steps()
	for _, name := range nodeplan.Actions {
		for _, step := range StepsOf(name) {
			if !slices.ContainsFunc(steps, func(other kind.Step) bool { return other.Name == step.Name }) {
				steps = append(steps, step)
			}
		}
	}
	return steps
}

// common are the steps of the way through a reboot that other actions take as well.
func common(names ...v1alpha1.OperationStep) []kind.Step {
	return slices.DeleteFunc(reboot.Steps(), func(step kind.Step) bool { return !slices.Contains(names, step.Name) })
}

// Next implements kind.Executor. Nothing begins with a machine that does not answer, or is another one.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Step == "" && asksFirst(scope, unit) {
		if seen.TalosTrouble != "" {
			return unreachable(scope, unit, seen.TalosTrouble)
		}
		if bad := reboot.CheckIdentity(unit, seen); bad != nil {
			return *bad
		}
	}
	return actions[scope.Spec.Node.Action].next(e, scope, unit, seen)
}

// asksFirst says whether a unit is a machine that has to answer before it is begun with.
func asksFirst(scope kind.Scope, unit kind.Unit) bool {
	return scope.Spec.Node.Action != v1alpha1.JoinAction && !scope.Spec.Node.Dead() && unit.Machine != nil
}

// Settle implements kind.Executor.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	act := actions[scope.Spec.Node.Action]
	switch {
	case act.settle != nil:
		return act.settle(e, scope, unit, seen)
	case unit.Status.Step == "" || !unit.Status.FailureTime.IsZero():
		return kind.Action{Verdict: kind.Park}
	}
	return act.next(e, scope, unit, seen)
}

// Unsafe implements kind.Executor. Each step is unsafe in one way only.
func (e *Executor) Unsafe(unit kind.Unit) string {
	switch unit.Status.Stage {
	case nodeplan.JoinStage:
		return "" // Nobody else depends on a worker that has not joined.
	case nodeplan.JoinControlPlaneStage:
		return unsafeJoin(unit)
	case nodeplan.RemoveStage:
		if unit.Status.Step == v1alpha1.RemovingMemberStep {
			return unsafeRemove(unit)
		}
	}
	for _, why := range []func(kind.Unit) string{reboot.Unsafe, poweroff.Unsafe, unsafeReset} {
		if words := why(unit); words != "" {
			return words
		}
	}
	return ""
}

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step { //nolint:exhaustive // The rest is on the way through a reboot.
	case v1alpha1.ShuttingDownStep:
		return poweroff.Do(ctx, e.Sequence, scope, unit)
	case v1alpha1.RestartingStep:
		return kind.Outcome{}, e.restart(ctx, scope, unit)
	case v1alpha1.DefragmentingStep:
		return e.defragment(ctx, scope, unit)
	case v1alpha1.DisarmingStep:
		return kind.Outcome{}, e.disarm(ctx, scope, unit)
	case v1alpha1.LeavingStep:
		return kind.Outcome{}, e.leaveEtcd(ctx, scope, unit)
	case v1alpha1.RemovingMemberStep:
		return kind.Outcome{}, e.removeMember(ctx, scope, unit)
	case v1alpha1.ResettingStep:
		return e.reset(ctx, scope, unit)
	case v1alpha1.ProvisioningStep:
		return e.provision(ctx, scope, unit)
	case v1alpha1.DeletingNodeStep:
		return e.deleteNode(ctx, scope, unit)
	case v1alpha1.ForgettingStep:
		return kind.Outcome{}, e.forget(ctx, scope)
	}
	return e.Sequence.Do(ctx, scope, unit, step)
}

// Undo implements kind.Executor. A machine that was refused its reset keeps its pods, unless its etcd member has gone before.
func (e *Executor) Undo(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep, cause error) error {
	if step == v1alpha1.ResettingStep && !hasLeftEtcd(unit) {
		step = v1alpha1.RebootingStep
	}
	return e.Sequence.Undo(ctx, scope, unit, step, cause)
}

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	var other *talos.FingerprintError
	var unfit *unfitError
	if errors.As(err, &other) || errors.As(err, &unfit) {
		return v1alpha1.ErrorPermanent
	}
	if errors.Is(err, errSilent) {
		return v1alpha1.ErrorRetryable
	}
	return reboot.Classify(err)
}

// view is what actions look at beyond what every kind does.
type view struct {
	// Services and Volumes are those of the machine; Trouble says why they are not known.
	Services []talos.Service
	Volumes  []talos.Volume
	Trouble  string

	// Members are etcd's as another control plane knows them; MembersTrouble says why they are not known.
	Members        []talos.EtcdMember
	MembersTrouble string

	// Maintenance is the UUID of the machine that answers at the address in maintenance mode.
	Maintenance string
}

// viewOf is what was looked at beyond what every kind does.
func viewOf(seen kind.Observation) view {
	own, _ := seen.Own.(view)
	return own
}

// Observe implements kind.Executor.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	if scope.Spec.Node.Action == v1alpha1.JoinAction {
		return e.observeJoin(ctx, scope, unit)
	}
	if unit.Machine == nil {
		return kind.Observation{} // What is left to do is about what is recorded.
	}
	seen := e.Sequence.Observe(ctx, scope, unit)
	reader, err := e.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return seen // It says so already.
	}
	switch node := scope.Spec.Node; node.Action { //nolint:exhaustive // The others need nothing else.
	case v1alpha1.RestartServiceAction:
		seen.Own = observeServices(ctx, reader, unit, seen)
	case v1alpha1.ResetAction:
		seen.Own = observeReset(ctx, reader, scope, unit, seen)
	case v1alpha1.RemoveAction:
		seen.Own = observeRemove(ctx, reader, scope, unit, seen)
	}
	return seen
}
