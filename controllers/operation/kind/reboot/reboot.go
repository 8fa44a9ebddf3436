// SPDX-License-Identifier: Apache-2.0

// Package reboot is the one way of a machine through a reboot: etcd's leadership moves away, the Node is drained, the machine
// reboots, proves that it is back, and is uncordoned. Every kind that reboots machines goes through here.
package reboot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// Sequence takes machines through a reboot.
type Sequence struct {
	Talos talos.Provider
	Kube  kube.Provider
}

// Steps declares the steps of the sequence.
func Steps() []kind.Step {
	return []kind.Step{
		{Name: v1alpha1.ForfeitingStep, Repeat: kind.Safe, Timeout: 2 * time.Minute},
		{Name: v1alpha1.DrainingStep, Repeat: kind.Safe, Cancel: true, Timeout: 10 * time.Minute},
		{Name: v1alpha1.RebootingStep, Repeat: kind.BootIDGuarded, Gated: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.VerifyingStep, Waits: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.UncordoningStep, Repeat: kind.Safe, Blind: true, Timeout: 2 * time.Minute},
	}
}

// Begin is the first action of the sequence for a machine that answers.
func Begin(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if leads(seen) {
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.ForfeitingStep}
	}
	return drainOrReboot(scope, unit, seen)
}

// leads says whether the machine's etcd member leads others.
func leads(seen kind.Observation) bool {
	return seen.Etcd != nil && len(seen.Etcd.Members) > 1 && seen.Etcd.Leader == seen.Etcd.MemberID
}

// drainOrReboot skips the drain of a cluster of one machine: its pods have nowhere to go.
func drainOrReboot(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if scope.Machines == 1 {
		return askForReboot(scope, unit, seen)
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.DrainingStep}
}

// askForReboot asks only for a machine that is cordoned, whoever took the cordon off meanwhile.
func askForReboot(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case seen.TalosTrouble != "":
		return kind.Unreachable(unit, seen.TalosTrouble)
	case scope.Machines > 1 && seen.NodeTrouble != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: "the Kubernetes API of the cluster cannot be read: " + seen.NodeTrouble}
	case scope.Machines > 1 && seen.Node != nil && !seen.Node.Unschedulable:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.DrainingStep}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.RebootingStep, PreRebootBootID: seen.Talos.BootID}
}

// Proof says what a machine that is back must show beyond being well: nil if it does, else what to do.
type Proof func(kind.Unit, kind.Observation) *kind.Action

// Next decides what comes after a step of the sequence.
func Next(scope kind.Scope, unit kind.Unit, seen kind.Observation, proof Proof) kind.Action {
	switch step := unit.Status.Step; {
	case step == v1alpha1.RebootingStep:
		return rebooting(scope, unit, seen)
	case step == v1alpha1.VerifyingStep:
		return verifying(scope, unit, seen, proof)
	case unit.Failed():
		return kind.FailStep(unit, "")
	case step == v1alpha1.ForfeitingStep:
		return drainOrReboot(scope, unit, seen)
	case step == v1alpha1.DrainingStep:
		return askForReboot(scope, unit, seen)
	}
	return uncordoned(unit)
}

// uncordoned ends the sequence, unless settling took the cordon off before the reboot: then the machine is where it began.
func uncordoned(unit kind.Unit) kind.Action {
	if unit.Status.PreRebootBootID == "" {
		return kind.Action{Verdict: kind.Park}
	}
	return kind.Action{Verdict: kind.Done}
}

// rebooting goes by the boot ID alone. A request that was refused, or whose fate is not known, is told apart by looking.
func rebooting(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	visible := seen.TalosTrouble == ""
	switch {
	case visible && seen.Talos.BootID != unit.Status.PreRebootBootID:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until the machine is ready"}
	case unit.FailedForGood():
		return kind.FailStep(unit, retryOfReboot(scope)) // The cordon is off; see Undo.
	case unit.Failed() && visible && seen.Talos.Stage != talos.StageRebooting:
		return askForReboot(scope, unit, seen)
	}
	return kind.Action{Verdict: kind.Wait, Message: "waiting for another boot ID"}
}

// retryOfReboot is where a retry begins after a reboot was refused: drained once more, where machines are drained.
func retryOfReboot(scope kind.Scope) v1alpha1.OperationStep {
	if scope.Machines == 1 {
		return ""
	}
	return v1alpha1.DrainingStep
}

// CheckIdentity fails a machine that came back as another one. One that is not far enough to know who it is has time.
func CheckIdentity(unit kind.Unit, seen kind.Observation) *kind.Action {
	switch seen.Talos.UUID {
	case unit.Machine.Spec.UUID:
		return nil
	case "":
		return &kind.Action{Verdict: kind.Wait, Message: "waiting until the machine tells its UUID"}
	}
	return &kind.Action{Verdict: kind.Fail, Message: (&IdentityError{
		Machine: unit.Status.Name, Address: unit.Machine.Spec.Address, Want: unit.Machine.Spec.UUID, Got: seen.Talos.UUID,
	}).Error()}
}

func verifying(scope kind.Scope, unit kind.Unit, seen kind.Observation, proof Proof) kind.Action {
	if seen.TalosTrouble == "" {
		if bad := proof(unit, seen); bad != nil {
			return *bad
		}
	}
	if missing := NotBack(seen); missing != "" {
		return kind.Action{Verdict: kind.Wait, Message: missing}
	}
	if seen.Node.CordonedBy == scope.Owner {
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.UncordoningStep, PreRebootBootID: unit.Status.PreRebootBootID}
	}
	return kind.Action{Verdict: kind.Done}
}

// NotBack says what a machine lacks to be back in its cluster; nothing means that it is back.
func NotBack(seen kind.Observation) string {
	switch {
	case seen.TalosTrouble != "":
		return "waiting for the Talos API: " + seen.TalosTrouble
	case seen.Talos.Stage != talos.StageRunning:
		return fmt.Sprintf("waiting for stage running, the machine is in stage %q", seen.Talos.Stage)
	case !seen.Talos.Ready:
		return fmt.Sprintf("waiting until the machine is ready: %v", seen.Talos.Unmet)
	case seen.NodeTrouble != "":
		return "waiting for the Kubernetes API: " + seen.NodeTrouble
	case seen.Node == nil:
		return "waiting for the Node to register"
	case !seen.Node.Ready || seen.Node.BootID != seen.Talos.BootID:
		return "waiting until the Node is Ready"
	case seen.EtcdTrouble != "":
		return "waiting for etcd: " + seen.EtcdTrouble
	case seen.Etcd != nil:
		return notBackInEtcd(*seen.Etcd)
	}
	return ""
}

func notBackInEtcd(etcd talos.Etcd) string {
	switch {
	case etcd.Leader == 0:
		return "waiting until etcd has a leader"
	case etcd.Learner:
		return "waiting until the etcd member is a voter"
	case len(etcd.Errors) > 0:
		return fmt.Sprintf("waiting until the etcd member is healthy: %v", etcd.Errors)
	}
	for _, member := range etcd.Members {
		if member.ID == etcd.MemberID && member.Started {
			return ""
		}
	}
	return "waiting until the etcd member is back among the members"
}

// Settle decides the way to the nearest safe point: back before the reboot was asked for, on after it.
func Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation, proof Proof) kind.Action {
	switch unit.Status.Step {
	case v1alpha1.RebootingStep, v1alpha1.VerifyingStep, v1alpha1.UncordoningStep:
		return Next(scope, unit, seen, proof)
	}
	return GiveUp(scope, unit, seen)
}

// GiveUp takes the operation's own cordon off, if it is on and can be taken off.
func GiveUp(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case unit.Status.Step == v1alpha1.UncordoningStep && !unit.Failed():
		return kind.Action{Verdict: kind.Park}
	case seen.NodeTrouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Kubernetes API, to take the cordon off: " + seen.NodeTrouble}
	case seen.Node != nil && seen.Node.CordonedBy == scope.Owner:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.UncordoningStep}
	}
	return kind.Action{Verdict: kind.Park}
}

// Unsafe says why nobody else may disturb the cluster while a machine is where it is in the sequence: from the request for the reboot
// until the machine is back, or has proved that it is not what it should be. Until then its etcd member may be missing or a learner.
func Unsafe(unit kind.Unit) string {
	if unit.FailedForGood() {
		return ""
	}
	switch unit.Status.Step { //nolint:exhaustive // What precedes the reboot can be taken back, and what follows it is over.
	case v1alpha1.RebootingStep:
		return "is asked to reboot and has not done so yet"
	case v1alpha1.VerifyingStep:
		return "has rebooted and is not known to be back"
	}
	return ""
}

// Do makes the call of a step of the sequence.
func (s Sequence) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step {
	case v1alpha1.ForfeitingStep:
		writer, _, err := s.Writer(ctx, scope, unit)
		if err != nil {
			return kind.Outcome{}, err
		}
		return kind.Outcome{}, writer.ForfeitLeadership(ctx, unit.Machine.Spec.Address)
	case v1alpha1.DrainingStep:
		return kind.Outcome{}, s.drain(ctx, scope, unit)
	case v1alpha1.RebootingStep:
		return kind.Outcome{}, s.reboot(ctx, scope, unit)
	case v1alpha1.UncordoningStep:
		return kind.Outcome{}, s.uncordon(ctx, scope, unit)
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
	if want := unit.Machine.Spec.UUID; facts.UUID != want {
		return nil, talos.Machine{}, &IdentityError{Machine: unit.Status.Name, Address: unit.Machine.Spec.Address, Want: want, Got: facts.UUID}
	}
	return writer, facts, nil
}

// IdentityError means that another machine answers at a recorded address. Nothing is done to it.
type IdentityError struct{ Machine, Address, Want, Got string }

// Error says which machine was expected, and which answered.
func (e *IdentityError) Error() string {
	return fmt.Sprintf("the machine at %s has UUID %q, but %s has UUID %q", e.Address, e.Got, e.Machine, e.Want)
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
	if facts.BootID != unit.Status.PreRebootBootID || facts.Stage == talos.StageRebooting {
		return nil // It has rebooted since the claim, or is about to: an earlier request arrived.
	}
	mode := v1alpha1.RebootModeDefault
	if scope.Spec.Node != nil && scope.Spec.Node.RebootMode != "" {
		mode = scope.Spec.Node.RebootMode
	}
	return writer.Reboot(ctx, unit.Machine.Spec.Address, mode)
}

func (s Sequence) uncordon(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, err := s.Kube.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return err
	}
	return writer.Uncordon(ctx, unit.Machine.Status.NodeName, scope.Owner)
}

// Undo takes the cordon off after a step before the reboot has failed: the machine stays, and so may its pods. After a request for a
// reboot of which nobody knows whether it was heard, the cordon stays.
func (s Sequence) Undo(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep, cause error) error {
	var identity *IdentityError
	switch {
	case step == v1alpha1.DrainingStep, step == v1alpha1.RebootingStep && (talos.Refused(cause) || errors.As(cause, &identity)):
		return s.uncordon(ctx, scope, unit)
	}
	return nil
}

// Classify says what an error of Do means.
func Classify(err error) v1alpha1.ErrorClass {
	var identity *IdentityError
	if errors.As(err, &identity) {
		return v1alpha1.ErrorPermanent
	}
	if talos.IsStatus(err) {
		return talos.Classify(err)
	}
	return kube.Classify(err)
}
