// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
)

// messageLimit bounds every message in status.
const messageLimit = 256

// shorten cuts a message to what status holds.
func shorten(message string) string { return cut(message, messageLimit) }

// cut takes out of the middle of a message what is beyond so many bytes, between characters. What an error is about stands at its
// beginning and what caused it at its end; between them are names that may be long.
func cut(message string, limit int) string {
	if len(message) <= limit {
		return message
	}
	head, tail := limit/3, len(message)-(limit-limit/3-len("…"))
	for !utf8.RuneStart(message[head]) {
		head--
	}
	for tail < len(message) && !utf8.RuneStart(message[tail]) {
		tail++
	}
	return message[:head] + "…" + message[tail:]
}

// explain says why, and what helps. Where status has no room for both, it is the first that is cut: a command must be whole.
func explain(why, help string) string {
	return cut(why, messageLimit-len("; ")-len(help)) + "; " + help
}

// tell records an Event for a change of why nothing moves. What failed or was refused has told so already.
func (s *scope) tell(before *v1alpha1.TalosOperation) {
	was, is := reasonToStand(before), reasonToStand(s.op)
	switch {
	case was.Reason == is.Reason, is.Reason == v1alpha1.StepFailedReason, is.Reason == v1alpha1.RefusedReason, s.op.Completed():
	case is.Reason == "":
		s.event(v1alpha1.ResumedEvent, "Run", "goes on: %s is over", was.Reason)
	default:
		s.event(is.Reason, "Run", "%s", is.Message)
	}
}

// reasonToStand is what condition Paused says, or else the gate that condition Progressing names; empty while anything moves.
func reasonToStand(op *v1alpha1.TalosOperation) metav1.Condition {
	if paused := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition); paused != nil && paused.Status == metav1.ConditionTrue {
		return *paused
	}
	progressing := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ProgressingCondition)
	if progressing == nil || progressing.Status != metav1.ConditionFalse || progressing.Reason == v1alpha1.NotStartedReason {
		return metav1.Condition{}
	}
	return *progressing
}

// summarize derives phase and conditions from what the reconcile found. Nothing reads them back to decide, but for the lock.
func summarize(s *scope) {
	s.op.Status.ObservedGeneration = s.op.Generation
	setPhase(s)
	setTurningBack(s)
	setSucceeded(s.op)
	setProgressing(s)
	setPaused(s)
	setTargetSuperseded(s)
	if meta.FindStatusCondition(s.op.Status.Conditions, v1alpha1.LockHeldCondition) == nil {
		setLock(s.op, metav1.ConditionFalse, v1alpha1.LockNotHeldReason)
	}
}

func set(op *v1alpha1.TalosOperation, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&op.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: shorten(message), ObservedGeneration: op.Generation,
	})
}

func setLock(op *v1alpha1.TalosOperation, status metav1.ConditionStatus, reason string) {
	set(op, v1alpha1.LockHeldCondition, status, reason, "")
}

func holdsLock(op *v1alpha1.TalosOperation) bool {
	return meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.LockHeldCondition)
}

// failing says why an operation that failed in this very reconcile does not move; later reconciles find it in the pause table.
func (s *scope) failing() *pause {
	switch {
	case s.why != nil || s.op.Status.FailureReason == "":
		return s.why
	case statusLost(s.op):
		return lostStatus(s) // Nothing has failed: a request to retry it was turned down.
	default:
		return stepFailed(s)
	}
}

func setPhase(s *scope) {
	switch {
	case s.op.Completed():
		s.op.Status.Phase = v1alpha1.OperationCompleted
	case s.failing() != nil:
		s.op.Status.Phase = v1alpha1.OperationPaused
	case holdsLock(s.op):
		s.op.Status.Phase = v1alpha1.OperationInProgress
	default:
		s.op.Status.Phase = v1alpha1.OperationPending
	}
}

func setSucceeded(op *v1alpha1.TalosOperation) {
	switch {
	case op.Completed() && turnedBack(op):
		set(op, v1alpha1.SucceededCondition, metav1.ConditionFalse, v1alpha1.TurnedBackReason, "turned back on request: the cluster is what it was before")
	case op.Completed() && len(op.Status.Held) > 0:
		set(op, v1alpha1.SucceededCondition, metav1.ConditionTrue, v1alpha1.CompletedWithHeldMachinesReason, "held: "+strings.Join(op.Status.Held, ", "))
	case op.Completed():
		set(op, v1alpha1.SucceededCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "")
	case op.Status.FailureReason != "":
		set(op, v1alpha1.SucceededCondition, metav1.ConditionFalse, v1alpha1.FailedReason, op.Status.FailureReason)
	default:
		set(op, v1alpha1.SucceededCondition, metav1.ConditionUnknown, v1alpha1.NotCompletedReason, "")
	}
}

func setProgressing(s *scope) {
	status, message := metav1.ConditionFalse, ""
	var reason string
	switch {
	case s.op.Completed():
		reason = v1alpha1.CompletedReason
	case s.blocked != "":
		reason, message = v1alpha1.DeletionBlockedReason, s.blocked
	case s.settling:
		status, reason, message = metav1.ConditionTrue, v1alpha1.SettlingReason, "taking the machines in hand to a safe point: "+s.settlingOn()
	case s.failing() != nil:
		reason = v1alpha1.NotProgressingReason
	case len(s.working) > 0:
		status, reason, message = metav1.ConditionTrue, v1alpha1.ProgressingReason, s.workingOn()
	case s.gateWait() != nil:
		reason, message = s.gateWait().Gate, s.gateWait().Message
	case !holdsLock(s.op):
		reason = v1alpha1.NotStartedReason
	default:
		s.keepProgressing()
		return
	}
	set(s.op, v1alpha1.ProgressingCondition, status, reason, message)
}

// keepProgressing leaves the condition as it is while the target is looked at: a look is not worth a write.
func (s *scope) keepProgressing() {
	current := meta.FindStatusCondition(s.op.Status.Conditions, v1alpha1.ProgressingCondition)
	if current == nil || current.Reason == v1alpha1.NotStartedReason || current.Reason == v1alpha1.NotProgressingReason {
		set(s.op, v1alpha1.ProgressingCondition, metav1.ConditionTrue, v1alpha1.StartingReason, "looking at the target")
	}
}

// settlingOn says what goes on while the operation settles, and what that waits for.
func (s *scope) settlingOn() string {
	doing, wait := s.workingOn(), s.gateWait()
	if wait == nil {
		return doing
	}
	return strings.TrimPrefix(doing+", ", ", ") + "waiting at gate " + wait.Gate + ": " + wait.Message
}

// gateWait is the first gate that a unit waits at; nil while units only wait to be looked at.
func (s *scope) gateWait() *gate.Wait {
	for i := range s.waiting {
		if s.waiting[i].Gate != v1alpha1.StartingReason {
			return &s.waiting[i]
		}
	}
	return nil
}

func (s *scope) workingOn() string {
	working := slices.Clone(s.working)
	slices.Sort(working)
	return strings.Join(slices.Compact(working), ", ")
}

func setPaused(s *scope) {
	if why := s.failing(); why != nil && !s.op.Completed() {
		set(s.op, v1alpha1.PausedCondition, metav1.ConditionTrue, why.reason, why.message)
		return
	}
	set(s.op, v1alpha1.PausedCondition, metav1.ConditionFalse, v1alpha1.NotPausedReason, "")
}

func setTargetSuperseded(s *scope) {
	switch {
	case s.Cluster == nil && meta.FindStatusCondition(s.op.Status.Conditions, v1alpha1.TargetSupersededCondition) != nil:
	case s.Cluster == nil || s.op.Status.Target == nil:
		set(s.op, v1alpha1.TargetSupersededCondition, metav1.ConditionUnknown, v1alpha1.NotYetObservedReason, "")
	case s.executor != nil && *s.op.Status.Target != s.declared() && !s.op.Completed():
		set(s.op, v1alpha1.TargetSupersededCondition, metav1.ConditionTrue, v1alpha1.TargetSupersededReason, fmt.Sprintf(
			"%s asks for %s by now", s.declares(), describe(s.declared())))
	default:
		set(s.op, v1alpha1.TargetSupersededCondition, metav1.ConditionFalse, v1alpha1.TargetCurrentReason, "")
	}
}
