// SPDX-License-Identifier: Apache-2.0

// Package carotation is the executor of kind ca-rotation: it replaces the certificate authorities of a cluster, machine by machine, so that no
// machine and no client that keeps up is locked out at any moment.
//
// How far a machine is, its config tells; whether it is there, the machine has to prove itself, to a client that connects to its own address
// and trusts nothing but what the pass has made true. What no machine tells, the authorities and client certificates, is in a Secret from
// before the first pass until the operation is over.
package carotation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;update;delete

// Prover asks servers for proofs, directly.
type Prover interface {
	// Talos reads the facts of the machine at an address.
	Talos(ctx context.Context, t target.Target, address string, as credentials.Direct) (talos.Machine, error)

	// Kubernetes asks the API server at HOST:PORT for its version.
	Kubernetes(ctx context.Context, t target.Target, address string, as credentials.Direct) (string, error)
}

// Credentials are those that a cluster has.
type Credentials interface {
	Kubeconfig(ctx context.Context, t target.Target) (*credentials.Kubeconfig, error)
	Talosconfig(ctx context.Context, t target.Target) (*credentials.Talosconfig, error)
}

// Executor rotates certificate authorities.
type Executor struct {
	rotationplan.Planner

	sequence    reboot.Sequence
	prover      Prover
	vault       Vault
	credentials Credentials
	operations  client.Reader
	clock       clock.PassiveClock
}

// Options are what an Executor needs.
type Options struct {
	Talos       talos.Provider
	Kube        kube.Provider
	Prover      Prover
	Vault       Vault
	Credentials Credentials

	// Operations reads TalosOperations.
	Operations client.Reader

	Clock clock.PassiveClock
}

// New returns the executor.
func New(o Options) *Executor {
	return &Executor{
		sequence: reboot.New(o.Talos, o.Kube), prover: o.Prover, vault: o.Vault, credentials: o.Credentials, operations: o.Operations, clock: o.Clock,
	}
}

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step {
	const call, proof = 2 * time.Minute, 15 * time.Minute
	return []kind.Step{
		{Name: v1alpha1.GeneratingStep, Repeat: kind.Safe, Blind: true, Timeout: call},
		{Name: v1alpha1.ApplyingStep, Repeat: kind.Safe, Gated: true, Timeout: call},
		{Name: v1alpha1.VerifyingStep, Waits: true, Timeout: proof},
		{Name: v1alpha1.TrustingStep, Repeat: kind.Safe, Blind: true, Timeout: call},
		{Name: v1alpha1.HandingOverStep, Repeat: kind.Safe, Timeout: call},
		{Name: v1alpha1.CatchingUpStep, Repeat: kind.Safe, Timeout: call},
		{Name: v1alpha1.AwaitingCredentialsStep, Waits: true}, // People have the time that they need.
		{Name: v1alpha1.FinishingStep, Repeat: kind.Safe, Blind: true, Timeout: call},
	}
}

// Settle implements kind.Executor: what a machine was given is seen through, and nobody else is begun with.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	applied := unit.Machine != nil && unit.Status.FailureTime.IsZero() &&
		(unit.Status.Step == v1alpha1.VerifyingStep || unit.Status.Step == v1alpha1.ApplyingStep && !unit.Failed())
	if !applied {
		return kind.Action{Verdict: kind.Park}
	}
	action := e.Next(scope, unit, seen)
	if action.Verdict == kind.Call { // A late machine is half-way to where all are: it goes on after the pause.
		return kind.Action{Verdict: kind.Park}
	}
	return action
}

// Unsafe implements kind.Executor: between two authorities nobody else may work on the cluster.
func (e *Executor) Unsafe(unit kind.Unit) string {
	of, pass := rotationplan.Parse(unit.Status.Stage)
	if of == "" || !rotationplan.Between(pass) {
		return ""
	}
	return fmt.Sprintf("is between two %s authorities", of)
}

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	of, pass := rotationplan.Parse(unit.Status.Stage)
	guarded := guard.With(ctx, scope.Guard)
	switch step { //nolint:exhaustive // The rest makes no call.
	case v1alpha1.GeneratingStep:
		return kind.Outcome{}, e.generate(guarded, scope)
	case v1alpha1.ApplyingStep:
		return e.apply(ctx, scope, unit, of, pass)
	case v1alpha1.TrustingStep:
		return kind.Outcome{}, e.trust(guarded, scope, of, pass)
	case v1alpha1.HandingOverStep:
		return kind.Outcome{}, e.handOver(guarded, scope, of)
	case v1alpha1.CatchingUpStep:
		return kind.Outcome{}, e.catchUp(ctx, scope, of, pass)
	case v1alpha1.FinishingStep:
		return kind.Outcome{}, e.vault.Delete(guarded, secretKey(scope))
	}
	return kind.Outcome{}, fmt.Errorf("step %s makes no call", step)
}

// Undo implements kind.Executor: a pass leaves nothing that is not seen through.
func (e *Executor) Undo(context.Context, kind.Scope, kind.Unit, v1alpha1.OperationStep, error) error {
	return nil
}

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	var rendering *renderError
	switch {
	case errors.Is(err, guard.ErrNotAllowed):
		return v1alpha1.ErrorInterrupted
	case errors.Is(err, errPending):
		return v1alpha1.ErrorInProgress
	case errors.Is(err, errLost), errors.As(err, &rendering), errors.Is(err, credentials.ErrMissing), errors.Is(err, credentials.ErrInvalid):
		return v1alpha1.ErrorPermanent
	}
	return reboot.Classify(err)
}
