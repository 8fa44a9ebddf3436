// SPDX-License-Identifier: Apache-2.0

// Package kind is the seam between the engine and what an operation does: one kind is one Executor.
//
// The engine owns the lock, the order, batches, gates, claims, pauses, retries and events, and never asks which kind it runs. An
// executor keeps no state: it turns a unit's status and a look at the machine into the next action, and carries actions out.
package kind

import (
	"context"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/storage"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// Executor is the code of one kind.
type Executor interface {
	plan.Planner

	// Steps declares every step that Next can name. The tests that kill the hub are generated from it.
	Steps() []Step

	// Observe looks at a unit. It reads only, within the deadline of ctx; what it cannot see is part of the observation.
	Observe(ctx context.Context, scope Scope, unit Unit) Observation

	// Next decides what comes next for a unit. It is pure.
	Next(scope Scope, unit Unit, seen Observation) Action

	// Settle decides the way of a unit to its nearest safe point. It is pure, and returns Park when the unit is there. A unit that has
	// failed is given up: what the operation left on the target goes, and nothing else is done.
	Settle(scope Scope, unit Unit, seen Observation) Action

	// Unsafe says why nobody may take the lock from the operation as long as the unit is where its status says, in words that follow
	// the name of the unit; nothing means that somebody may. It is pure.
	Unsafe(unit Unit) string

	// Do makes the one call that a step names. The status of the unit holds the claim.
	Do(ctx context.Context, scope Scope, unit Unit, step v1alpha1.OperationStep) (Outcome, error)

	// Undo takes back what a step whose call has failed for good left on the target, where that is before the point of no return.
	// cause is what the call failed of.
	Undo(ctx context.Context, scope Scope, unit Unit, step v1alpha1.OperationStep, cause error) error

	// Classify says what an error of Do means.
	Classify(err error) v1alpha1.ErrorClass
}

// Scope is what an executor knows of the operation.
type Scope struct {
	// Owner is the operation, as namespace/name; it marks what the operation puts on the target.
	Owner string

	// Spec and Target are the order, and what it brings the cluster to.
	Spec   v1alpha1.TalosOperationSpec
	Target v1alpha1.OperationTarget

	// Cluster names the target for the adapters.
	Cluster target.Target

	// OperationID is the operation's identity; names are used again.
	OperationID string

	// StoppedBy is the operation, as namespace/name, that has stopped the cluster on purpose; empty if none has.
	StoppedBy string

	// Machines counts the machines of the target.
	Machines int

	// Known are all machines of the target, and Approved those that the hub may touch, for stages that are about all of them.
	Known, Approved []*v1alpha1.TalosMachine

	// Units are the units of the operation, as its status has them.
	Units []v1alpha1.UnitStatus

	// TurnBack says that somebody has asked to turn the operation back, and that its plan does so.
	TurnBack bool

	// ConfirmedStage is the stage that somebody has confirmed: what it waits for of people is done. Empty if there is none.
	ConfirmedStage string

	// Blind lets machines go although the Kubernetes API does not tell of them: somebody has overridden gate TargetReachable.
	Blind bool

	// Guard is asked before every call that changes the target.
	Guard guard.Func
}

// Unit is one machine in a stage, or a stage without machines.
type Unit struct {
	Status v1alpha1.UnitStatus

	// Machine is nil for a stage without machines.
	Machine *v1alpha1.TalosMachine
}

// Observation is one look at a unit. Two observations of the same state are equal.
type Observation struct {
	// Talos is what the Talos API tells; TalosTrouble says why it tells nothing. TalosSilent is set where nobody answered at all, as of a
	// machine that is off.
	Talos        talos.Machine
	TalosTrouble string
	TalosSilent  bool

	// Etcd is what the etcd member tells; nil for a worker. EtcdTrouble says why it tells nothing.
	Etcd        *talos.Etcd
	EtcdTrouble string

	// Node is the machine's Node, nil if there is none. NodeTrouble says why that is not known.
	Node        *kube.Node
	NodeTrouble string

	// Storage is what storage has on the Node. StorageTrouble says why that is not known.
	Storage        storage.State
	StorageTrouble string

	// Own is what the kind itself looks at beyond that. Two looks at the same state are deeply equal.
	Own any
}

// Repeat says what to do about a claim without outcome: the hub stopped in the middle of the call.
type Repeat string

const (
	// Safe calls are made again.
	Safe Repeat = "Safe"

	// BootIDGuarded calls are made again only if a look, at the boot ID or what else was claimed, shows that they did not arrive.
	BootIDGuarded Repeat = "BootIDGuarded"

	// Never repeated calls fail their step.
	Never Repeat = "Never"
)

// Step declares a step of an executor.
type Step struct {
	Name v1alpha1.OperationStep

	// Waits steps make no call: they are over when an observation says so.
	Waits bool

	// Repeat says what to do about a claim without outcome.
	Repeat Repeat

	// Gated steps are claimed only after the gates of disruptive stages have passed once more. The first step of a unit in such
	// a stage is gated in any case.
	Gated bool

	// Harmless steps take nothing away: no gate is asked, wherever they stand.
	Harmless bool

	// Records steps write the record on the target before their call, in stages that are not disruptive as well. They do not go on
	// without it.
	Records bool

	// Blind says that what follows the success of the call needs no look: Next and Settle get an empty observation.
	Blind bool

	// Cancel says that settling ends the call rather than waiting for it.
	Cancel bool

	// Timeout is the step's deadline, counted from its claim.
	Timeout time.Duration
}

// Verdict is the kind of an Action.
type Verdict string

const (
	// Call claims a step and makes its call.
	Call Verdict = "Call"

	// Wait stays in a step, or goes to one that makes no call, until another observation.
	Wait Verdict = "Wait"

	// Done ends the unit's stage.
	Done Verdict = "Done"

	// Fail pauses the operation.
	Fail Verdict = "Fail"

	// Park puts a unit that is at a safe point back to the beginning of its stage.
	Park Verdict = "Park"
)

// Action is what comes next for a unit.
type Action struct {
	Verdict Verdict

	// Step is the step to claim, or to wait in. Empty stays in the present one.
	Step v1alpha1.OperationStep

	// PreRebootBootID is persisted with the claim of a step that reboots, and kept by what follows the reboot. Any other claim clears it.
	PreRebootBootID string

	// NodeName is persisted with the claim of a step that reboots: the machine has to come back as the same Node.
	NodeName string

	// Image is persisted with the claim of a step that installs without having pulled: nothing tells afterwards which image it was.
	Image string

	// ConfigHash is persisted with the claim of a step that brings another machine config: what it shall be, whatever is declared since.
	ConfigHash string

	// ServiceStart is persisted with the claim of a step that restarts a service: when it had started before. A later start is another one.
	ServiceStart time.Time

	// GoOn says that a step which has succeeded goes on with its next call: at once, and with its deadline anew.
	GoOn bool

	// Anew says that a step which is claimed begins from the beginning, however far it has come before.
	Anew bool

	// After holds back the end of a unit's stage until the unit has been in its step for so long, without a break.
	After time.Duration

	// RetryStep is where a retry begins after a failure, if not at the failed step.
	RetryStep v1alpha1.OperationStep

	// Reason names a gate, for a wait that is one.
	Reason string

	// Message says what is waited for, what failed, or what a stage that is done has found. It is the same for the same state.
	Message string
}

// Outcome is what a call tells beyond its success.
type Outcome struct {
	// ResolvedImage is the image as the machine resolved it.
	ResolvedImage string

	// ExitCode is the installer's exit code.
	ExitCode *int32

	// Progress is how far a step has come that makes many calls, for good: it is kept in status before the next call. nil leaves what is
	// there.
	Progress *v1alpha1.UnitProgress

	// Message is worth keeping, in success or failure.
	Message string
}
