// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"context"
	"errors"
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Do makes the call of a step of the sequence.
func (s Sequence) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step {
	case v1alpha1.ForfeitingStep:
		writer, _, err := s.Writer(ctx, scope, unit)
		if err != nil {
			return kind.Outcome{}, err
		}
		return kind.Outcome{}, writer.ForfeitLeadership(ctx, unit.Machine.Spec.Address)
	case v1alpha1.EvacuatingStep:
		return kind.Outcome{}, s.Storage.Evacuate(ctx, scope.Cluster, scope.Guard, unit.Machine.Status.NodeName, scope.Owner)
	case v1alpha1.DrainingStep:
		return kind.Outcome{}, s.drain(ctx, scope, unit)
	case v1alpha1.RebootingStep:
		return kind.Outcome{}, s.reboot(ctx, scope, unit)
	case v1alpha1.UncordoningStep:
		return kind.Outcome{}, s.giveBack(ctx, scope, unit)
	}
	return kind.Outcome{}, fmt.Errorf("step %s makes no call", step)
}

// Writer returns a client that may change the machine, after the machine behind its address has proved to be the recorded one.
func (s Sequence) Writer(ctx context.Context, scope kind.Scope, unit kind.Unit) (talos.Writer, talos.Machine, error) {
	writer, err := s.Talos.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return nil, talos.Machine{}, err
	}
	facts, err := writer.Machine(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return nil, talos.Machine{}, err
	}
	switch want := unit.Machine.Spec.UUID; {
	case facts.UUID == "":
		return nil, talos.Machine{}, &unheardError{fmt.Errorf("the machine at %s does not tell its UUID yet", unit.Machine.Spec.Address)}
	case facts.UUID != want:
		return nil, talos.Machine{}, &IdentityError{Machine: unit.Status.Name, Address: unit.Machine.Spec.Address, Want: want, Got: facts.UUID}
	}
	return writer, facts, nil
}

// unheardError wraps an error after which nobody knows whether the request was heard, or that may go away by itself.
type unheardError struct{ error }

// Unwrap returns the error.
func (e *unheardError) Unwrap() error { return e.error }

// Unheard says of an error of a request that cannot be taken back whether it may have been heard: unless the machine certainly refused it.
func Unheard(err error) error {
	if err == nil || talos.Refused(err) || !talos.IsStatus(err) {
		return err
	}
	return &unheardError{err}
}

func (s Sequence) drain(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, err := s.Kube.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return err
	}
	if err := writer.Cordon(ctx, unit.Machine.Status.NodeName, scope.Owner); err != nil {
		return err
	}
	return writer.Drain(ctx, unit.Machine.Status.NodeName)
}

func (s Sequence) reboot(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, facts, err := s.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	if facts.BootID != unit.Status.PreRebootBootID || GoingDown(facts.Stage) {
		return nil // It has rebooted since the claim, or is about to: an earlier request arrived.
	}
	mode := v1alpha1.RebootModeDefault
	if scope.Spec.Node != nil && scope.Spec.Node.RebootMode != "" {
		mode = scope.Spec.Node.RebootMode
	}
	return Unheard(writer.Reboot(ctx, unit.Machine.Spec.Address, mode))
}

// giveBack takes the operation's marks off the Node: pods and replicas may come again.
func (s Sequence) giveBack(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, err := s.Kube.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return err
	}
	if err := writer.Uncordon(ctx, nodeName(unit), scope.Owner); err != nil {
		return err
	}
	return s.Storage.Restore(ctx, scope.Cluster, scope.Guard, nodeName(unit), scope.Owner)
}

// Undo takes the marks off after a step before the reboot has failed: the machine stays, and so may its pods and replicas. After a request
// for a reboot of which nobody knows whether it was heard, they stay.
func (s Sequence) Undo(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep, cause error) error {
	var identity *IdentityError
	switch {
	case step == v1alpha1.EvacuatingStep, step == v1alpha1.DrainingStep, goes(step) && (talos.Refused(cause) || errors.As(cause, &identity)):
		return s.giveBack(ctx, scope, unit)
	}
	return nil
}

// goes says whether the call of a step is the one that takes a machine away.
func goes(step v1alpha1.OperationStep) bool {
	return step == v1alpha1.RebootingStep || step == v1alpha1.ShuttingDownStep
}

// Classify says what an error of Do means.
func Classify(err error) v1alpha1.ErrorClass {
	var identity *IdentityError
	var unheard *unheardError
	switch {
	case errors.As(err, &identity):
		return v1alpha1.ErrorPermanent
	case errors.As(err, &unheard):
		return v1alpha1.ErrorRetryable
	}
	if talos.IsStatus(err) {
		return talos.Classify(err)
	}
	return kube.Classify(err)
}
