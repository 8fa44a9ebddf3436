// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

const (
	// stepRecords bounds the steps that are kept of a unit; the oldest go first.
	stepRecords = v1alpha1.MaxStepRecords

	// quietWait is how long a unit waits before status says for what: most waits are over by then, and cost no write.
	quietWait = 10 * time.Second
)

// decide is Next or Settle of an executor.
type decide func(kind.Scope, kind.Unit, kind.Observation) kind.Action

// step takes one unit of a stage as far as it goes without waiting. The unit is a copy; what becomes of it is put into status.
func (r *Reconciler) step(s *scope, stage plan.Stage, unit v1alpha1.UnitStatus, next decide) {
	declared, machine := s.steps[unit.Step], s.Machine(unit.Name)
	if lost := machine == nil && !stage.Whole; unit.Step != "" && !declared.Waits && unit.Outcome == nil {
		r.awaitCall(s, stage, unit, lost)
		return
	}
	if !stage.Whole && !r.mayStep(s, stage, unit, machine) {
		return
	}
	if !s.settling && interrupted(unit) && declared.Repeat == kind.Safe {
		r.claimAgain(s, unit, kind.Action{Step: unit.Step, PreRebootBootID: unit.PreRebootBootID})
		return
	}
	subject := kind.Unit{Status: unit, Machine: machine}
	if declared.Blind && !subject.Failed() {
		r.apply(s, stage, unit, next(s.kind, subject, kind.Observation{}))
		return
	}
	seen, _, fresh := r.look(s, subject)
	if !fresh {
		s.work(unit)
		return
	}
	r.apply(s, stage, unit, next(s.kind, subject, seen))
}

// mayStep says whether the machine of a unit is there and may be begun with. If not, it does what is left to do.
func (r *Reconciler) mayStep(s *scope, stage plan.Stage, unit v1alpha1.UnitStatus, machine *v1alpha1.TalosMachine) bool {
	switch {
	case machine == nil && stage.MayLose:
		s.lose(unit, r.Clock.Now())
	case machine == nil && s.givingUp && s.executor.Unsafe(kind.Unit{Status: unit}) == "":
		s.park(unit, r.Clock.Now())
	case machine == nil: // Its machine is not, as far as anybody knows: what is under way there may still end.
		s.failLate(unit, kind.Action{Message: fmt.Sprintf("TalosMachine %q is gone", unit.Name)}, r.Clock.Now())
	case unit.Step == "" && machine.Spec.Approval != v1alpha1.Approved:
		s.waiting = append(s.waiting, gate.Wait{Gate: v1alpha1.MachineKnownGate, Message: fmt.Sprintf("machine %s is not approved (spec.approval)", unit.Name)})
	default:
		return true
	}
	return false
}

// awaitCall goes on with a claim that has no outcome. Either its task is under way, or a process ended in the middle of the call. Nothing is
// asked of a machine that is lost.
func (r *Reconciler) awaitCall(s *scope, stage plan.Stage, unit v1alpha1.UnitStatus, lost bool) {
	key, declared := observe.Key{Object: s.key, Part: unit.Name}, s.steps[unit.Step]
	switch trouble, busy := r.tasks.busy(key); {
	case busy && (s.settling && declared.Cancel || lost && stage.MayLose):
		r.tasks.cancel(key)
	case busy:
		s.sayLongWait(&unit, trouble, r.Clock.Now())
	case declared.Repeat == kind.Safe && !lost && !(s.settling && declared.Cancel):
		s.leaveUnknown(&unit, r.Clock.Now())
		s.put(unit)
		s.claims = append(s.claims, unit.Name)
	default:
		unit.Outcome = &v1alpha1.CallOutcome{
			Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorInterrupted, Time: metav1.NewTime(r.Clock.Now()),
			Message: "the hub stopped in the middle of the call",
		}
		s.put(unit)
	}
	s.work(unit)
}

// apply carries an action out, as far as status goes.
func (r *Reconciler) apply(s *scope, stage plan.Stage, unit v1alpha1.UnitStatus, action kind.Action) {
	now := r.Clock.Now()
	switch action.Verdict {
	case kind.Wait:
		r.wait(s, unit, action, now)
	case kind.Call:
		if action.GoOn && action.Step == unit.Step {
			s.goOn(unit, now)
			return
		}
		if action.Step == unit.Step && r.tooEarly(s, unit, now) {
			return
		}
		if !r.pass(s, stage, unit, action) {
			return
		}
		if action.Step == unit.Step {
			r.claimAgain(s, unit, action)
			return
		}
		s.claim(unit, action, now)
	case kind.Done:
		if s.givingUp {
			s.park(unit, now)
			return
		}
		if early := s.after(unit, action) - now.Sub(unit.StepStartTime.Time); early > 0 {
			s.comeBack(early)
			s.work(unit)
			return
		}
		s.finish(unit, stage, action.Message, now)
	case kind.Park:
		s.park(unit, now)
	case kind.Fail:
		s.fail(unit, action, now)
	}
}

// pass asks the gates where an action would begin to take a machine away, or is about to do what cannot be taken back. However long a
// gate waits, it has no deadline.
func (r *Reconciler) pass(s *scope, stage plan.Stage, unit v1alpha1.UnitStatus, action kind.Action) bool {
	entering, declared := unit.Step == "", s.steps[action.Step]
	if !stage.Disruptive || declared.Harmless || !(entering || declared.Gated) {
		return true
	}
	view, fresh := r.view(s)
	in := gate.Input{
		Stage: stage, Entering: entering,
		Cluster: s.Cluster, Machines: s.Approved(), Machine: s.Machine(unit.Name), View: view,
		Away: s.away(stage), MaxUnavailable: s.maxUnavailable(), Overrides: s.op.Spec.Overrides, Traits: s.traits,
	}
	var wait gate.Wait
	switch {
	case !fresh:
		wait = gate.Wait{Gate: v1alpha1.StartingReason, Message: "looking at the target"}
	case view.RecordTrouble != "" && !s.traits.RecordOptional:
		wait = recordUnread(view.RecordTrouble)
	case view.RecordTrouble == "" && !r.owned(s, view.Record):
		return false
	case view.Record.OperationID == lock.OperationID(s.op) && view.Record.Sequence > s.op.Status.Sequence:
		s.loseStatus() // Somebody has put an older status back while this process looked on.
		return false
	default:
		wait = gate.Check(in)
	}
	if wait != (gate.Wait{}) {
		s.waiting = append(s.waiting, wait)
		return false
	}
	for _, bypassed := range gate.Bypassed(in) {
		s.event(v1alpha1.GateOverriddenEvent, "Run", "gate %s is overridden for machine %s: %s", bypassed.Gate, unit.Name, bypassed.Message)
	}
	s.advanceSequence(view)
	return true
}

// wait stays in a step, or goes on to one that makes no call.
func (r *Reconciler) wait(s *scope, unit v1alpha1.UnitStatus, action kind.Action, now time.Time) {
	if s.givingUp && isFailed(unit) { // For as long as it takes: what was left on the target has to go.
		s.sayLongWait(&unit, action.Message, now)
		s.work(unit)
		return
	}
	if (unit.Step == "" && action.Step == "") || action.Reason != "" {
		s.waiting = append(s.waiting, gate.Wait{Gate: cmp.Or(action.Reason, v1alpha1.StartingReason), Message: action.Message})
		return
	}
	if action.Step != "" && action.Step != unit.Step {
		enter(&unit, action.Step, now)
		s.put(unit)
	}
	r.timeout(s, unit, action.Message, now)
	s.work(unit)
}

// after is how long a unit has to have been in its step before its stage is over. Who shortens the deadline of the step shortens that.
func (s *scope) after(unit v1alpha1.UnitStatus, action kind.Action) time.Duration {
	if deadline := s.steps[unit.Step].Timeout; deadline > 0 {
		return min(action.After, deadline)
	}
	return action.After
}

// timeout fails a unit whose step has been waiting beyond its deadline, says what a long wait is for, and comes back in time.
func (r *Reconciler) timeout(s *scope, unit v1alpha1.UnitStatus, waitingFor string, now time.Time) {
	waited, deadline := now.Sub(unit.StepStartTime.Time), s.steps[unit.Step].Timeout
	if deadline > 0 && waited >= deadline {
		s.failLate(unit, kind.Action{Message: fmt.Sprintf("%s not over within %s: %s", unit.Step, deadline, waitingFor)}, now)
		return
	}
	s.comeBack(deadline - waited)
	s.sayLongWait(&unit, waitingFor, now)
}

// sayLongWait says what a unit waits for once it has waited for long, and comes back to say so.
func (s *scope) sayLongWait(unit *v1alpha1.UnitStatus, waitingFor string, now time.Time) {
	if waited := now.Sub(unit.StepStartTime.Time); waited < quietWait {
		s.comeBack(quietWait - waited)
		return
	}
	if message := shorten(waitingFor); unit.Message != message {
		unit.Message = message
		s.put(*unit)
	}
	s.comeBack(quietWait)
}

// claimAgain claims the step under way once more, after a while and within its deadline.
func (r *Reconciler) claimAgain(s *scope, unit v1alpha1.UnitStatus, action kind.Action) {
	now := r.Clock.Now()
	if r.tooEarly(s, unit, now) {
		return
	}
	began, deadline := unit.StepStartTime, s.steps[unit.Step].Timeout
	if now.Sub(unit.Outcome.Time.Time) > quietWait { // A gate, or the lock, was waited for in between: that is nobody's deadline.
		began = metav1.NewTime(now)
	}
	if now.Sub(began.Time) >= deadline && !(s.givingUp && isFailed(unit)) {
		s.failLate(unit, kind.Action{Message: fmt.Sprintf("%s not over within %s: %s", unit.Step, deadline, unit.Outcome.Message)}, now)
		return
	}
	if unit.Outcome.Class != v1alpha1.ErrorPermanent {
		s.leaveUnknown(&unit, now)
	}
	s.claim(unit, action, now)
	again := s.unit(unit.Name)
	again.StepStartTime = began
	s.put(again)
}

// tooEarly waits a while between two attempts of a call.
func (r *Reconciler) tooEarly(s *scope, unit v1alpha1.UnitStatus, now time.Time) bool {
	if unit.Outcome == nil {
		return false
	}
	early := retryMost - now.Sub(unit.Outcome.Time.Time)
	if early <= 0 {
		return false
	}
	s.comeBack(early)
	s.work(unit)
	return true
}

// leaveUnknown takes note that an attempt of the unit's step ended without anybody knowing how. What a later one answers does not tell.
func (s *scope) leaveUnknown(unit *v1alpha1.UnitStatus, now time.Time) {
	if s.steps[unit.Step].Gated && unit.UnknownSince.IsZero() {
		unit.UnknownSince = metav1.NewTime(now)
	}
}

// interrupted says whether the call of the unit's step was told to end, or kept from being made.
func interrupted(unit v1alpha1.UnitStatus) bool {
	return unit.Outcome != nil && unit.Outcome.Class == v1alpha1.ErrorInterrupted && unit.FailureTime.IsZero()
}

func (s *scope) comeBack(in time.Duration) {
	if in > 0 && (s.requeue == 0 || in < s.requeue) {
		s.requeue = in
	}
}

// claim writes down what is about to be done. The task starts when that is in status.
func (s *scope) claim(unit v1alpha1.UnitStatus, action kind.Action, now time.Time) {
	enter(&unit, action.Step, now)
	unit.PreRebootBootID = action.PreRebootBootID
	if action.Anew {
		unit.Progress = nil
	}
	unit.ConfigHash = cmp.Or(action.ConfigHash, unit.ConfigHash)
	if !action.ServiceStart.IsZero() {
		unit.ServiceStartTime = metav1.NewMicroTime(action.ServiceStart)
	}
	unit.NodeName, unit.ResolvedImage = cmp.Or(action.NodeName, unit.NodeName), cmp.Or(action.Image, unit.ResolvedImage)
	s.claims = append(s.claims, unit.Name)
	s.put(unit)
	s.work(unit)
}

// goOn claims the next call of a step whose last one has succeeded. The step stays one in its record, and says how far it has come.
func (s *scope) goOn(unit v1alpha1.UnitStatus, now time.Time) {
	unit.Message = unit.Outcome.Message
	unit.Outcome, unit.StepStartTime = nil, metav1.NewTime(now)
	s.claims = append(s.claims, unit.Name)
	s.put(unit)
	s.work(unit)
}

// enter begins a step.
func enter(unit *v1alpha1.UnitStatus, step v1alpha1.OperationStep, now time.Time) {
	leave(unit, now)
	if unit.Step != step {
		unit.UnknownSince = metav1.Time{}
	}
	unit.Step, unit.StepStartTime = step, metav1.NewTime(now)
	unit.Outcome, unit.RetryStep, unit.Message = nil, "", ""
	if step == "" {
		return // A retry of the very beginning.
	}
	unit.Steps = append(unit.Steps, v1alpha1.StepRecord{Step: step, Stage: unit.Stage, StartTime: unit.StepStartTime})
	if extra := len(unit.Steps) - stepRecords; extra > 0 {
		unit.Steps = unit.Steps[extra:]
	}
}

// leave ends the record of the step under way, if there is one.
func leave(unit *v1alpha1.UnitStatus, now time.Time) {
	if n := len(unit.Steps); n > 0 && unit.Steps[n-1].CompletionTime.IsZero() {
		unit.Steps[n-1].CompletionTime = metav1.NewTime(now)
	}
}

// finish ends a unit's stage, with what is worth knowing of it.
func (s *scope) finish(unit v1alpha1.UnitStatus, stage plan.Stage, found string, now time.Time) {
	leave(&unit, now)
	unit.CompletedStage = stage.Name
	unit.Step, unit.Outcome, unit.Message, unit.StepStartTime, unit.UnknownSince = "", nil, shorten(found), metav1.Time{}, metav1.Time{}
	if found != "" {
		s.event(v1alpha1.FoundEvent, "Run", "%s: %s", unit.Name, found)
	}
	if stage.Name == s.lastStageOf(unit.Name) {
		unit.Phase = v1alpha1.UnitCompleted
		s.event(v1alpha1.MachineCompletedEvent, "Run", "%s is done", unit.Name)
	}
	s.put(unit)
}

// park puts a unit that is at a safe point back to before its stage.
func (s *scope) park(unit v1alpha1.UnitStatus, now time.Time) {
	leave(&unit, now)
	unit.Stage, unit.Step, unit.Outcome, unit.Message, unit.StepStartTime = unit.CompletedStage, "", nil, "", metav1.Time{}
	unit.PreRebootBootID, unit.FailureTime, unit.RetryStep, unit.UnknownSince = "", metav1.Time{}, "", metav1.Time{}
	s.put(unit)
}

// lose puts a unit away whose machine somebody has declared lost: the stage goes on without it.
func (s *scope) lose(unit v1alpha1.UnitStatus, now time.Time) {
	s.park(unit, now)
	parked := s.unit(unit.Name)
	parked.Message = "its TalosMachine was deleted: the operation goes on without it"
	s.put(parked)
	s.event(v1alpha1.FoundEvent, "Run", "%s: %s", unit.Name, parked.Message)
}

// failLate fails a unit whose deadline has passed: what it waited for may still come.
func (s *scope) failLate(unit v1alpha1.UnitStatus, action kind.Action, now time.Time) {
	unit.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorTimeout, Time: metav1.NewTime(now)}
	s.fail(unit, action, now)
}

// fail pauses the operation until somebody asks for a retry.
func (s *scope) fail(unit v1alpha1.UnitStatus, action kind.Action, now time.Time) {
	if unit.Outcome == nil || unit.Outcome.Result != v1alpha1.CallFailed {
		unit.Outcome = &v1alpha1.CallOutcome{Result: v1alpha1.CallFailed, Class: v1alpha1.ErrorPermanent, Time: metav1.NewTime(now)}
	}
	leave(&unit, now) // Until somebody retries it nobody works on the step.
	words := strings.TrimPrefix(action.Message, unit.Name+": ")
	message := shorten(words)
	unit.Outcome.Message, unit.Message = message, message
	unit.FailureTime, unit.RetryStep = metav1.NewTime(now), action.RetryStep
	s.put(unit)
	if s.op.Status.FailureReason == "" {
		s.op.Status.FailureReason = shorten(fmt.Sprintf("%s: %s", s.subject(unit.Name), words))
	}
	s.event(v1alpha1.StepFailedReason, "Run", "%s: %s", s.subject(unit.Name), words)
}

// subject is a unit in words: a machine, or a stage without machines.
func (s *scope) subject(name string) string {
	if slices.ContainsFunc(s.stages, func(stage plan.Stage) bool { return stage.Whole && stage.Name == name }) {
		return "stage " + name
	}
	return "machine " + name
}

// start makes the call that a unit's claim announces.
func (r *Reconciler) start(s *scope, name string) {
	unit := kind.Unit{Status: s.unit(name), Machine: s.Machine(name)}
	scope, executor := s.kind, s.executor
	do := func(ctx context.Context) (kind.Outcome, error) {
		return executor.Do(ctx, scope, unit, unit.Status.Step)
	}
	if s.recorded(unit.Status) {
		do = r.recording(s, unit.Status, do)
	}
	r.tasks.start(observe.Key{Object: s.key, Part: name}, call{
		step:     s.steps[unit.Status.Step],
		unknown:  !unit.Status.UnknownSince.IsZero(),
		classify: classifyWith(executor),
		do:       do,
		undo: func(ctx context.Context, cause error) error {
			return executor.Undo(ctx, scope, unit, unit.Status.Step, cause)
		},
	})
}

// classifyWith says what the error of a call means, or of the record that is written before it.
func classifyWith(executor kind.Executor) func(error) v1alpha1.ErrorClass {
	return func(err error) v1alpha1.ErrorClass {
		if errors.Is(err, errOvertaken) {
			return v1alpha1.ErrorPermanent
		}
		return executor.Classify(err)
	}
}

// look returns the last observation of a unit, says whether there is one and whether it is fresh, and keeps an eye on the unit.
func (r *Reconciler) look(s *scope, unit kind.Unit) (observation kind.Observation, seen, fresh bool) {
	s.wanted[unit.Status.Name] = true
	scope, executor := s.kind, s.executor
	last, fresh := r.observer.Want(observe.Key{Object: s.key, Part: unit.Status.Name}, func(ctx context.Context) any {
		return executor.Observe(ctx, scope, unit)
	})
	observation, seen = last.(kind.Observation)
	return observation, seen, fresh
}

// wholeTarget is the key under which the Observer looks at a whole target. No machine has this name.
const wholeTarget = ""

// view returns a fresh look at the whole target, and keeps an eye on it.
func (r *Reconciler) view(s *scope) (gate.View, bool) {
	s.wanted[wholeTarget] = true
	cluster, machines := s.kind.Cluster, s.Approved()
	seen, fresh := r.observer.Want(observe.Key{Object: s.key, Part: wholeTarget}, func(ctx context.Context) any {
		return r.Viewer.View(ctx, cluster, machines)
	})
	view, _ := seen.(gate.View)
	return view, fresh
}
