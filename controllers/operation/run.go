// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// run works on the stage under way and goes on to the next ones as far as they are over already.
func (r *Reconciler) run(ctx context.Context, s *scope) error {
	s.op.Status.Held = slices.DeleteFunc(slices.Clone(s.plan.Held), func(name string) bool {
		return s.unit(name).Phase == v1alpha1.UnitCompleted // Held while it was in hand.
	})
	for i, stage := range s.stages {
		if slices.Contains(s.op.Status.CompletedStages, stage.Name) {
			continue
		}
		s.op.Status.Stage, s.op.Status.ComingStages = stage.Name, s.coming(i+1)
		if stop, err := r.shield(ctx, s); stop || err != nil {
			return err
		}
		r.runStage(s, stage)
		if s.op.Status.FailureReason != "" || !s.over(stage) {
			return nil
		}
		s.op.Status.CompletedStages = append(s.op.Status.CompletedStages, stage.Name)
		s.event(v1alpha1.StageCompletedEvent, "Run", "stage %s is over", stage.Name)
	}
	if err := r.completePower(ctx, s); err != nil {
		return err
	}
	s.op.Status.Stage, s.op.Status.ComingStages = "", nil
	s.op.Status.CompletionTime = metav1.NewTime(r.Clock.Now())
	s.event(v1alpha1.CompletedReason, "Run", "completed")
	return nil
}

// coming are the names of the stages from one on that are not over yet.
func (s *scope) coming(from int) []string {
	var names []string
	for _, stage := range s.stages[from:] {
		if !slices.Contains(s.op.Status.CompletedStages, stage.Name) {
			names = append(names, stage.Name)
		}
	}
	return names
}

func (r *Reconciler) runStage(s *scope, stage plan.Stage) {
	for _, unit := range s.inHand(stage) {
		r.step(s, stage, unit, s.executor.Next)
	}
	if stage.Batch.Tiered {
		r.beginTiered(s, stage)
	} else {
		r.beginParallel(s, stage)
	}
}

// beginParallel begins with as many units as may go at once, in the order of the plan. It begins with none before it has looked at all, so
// that one write claims many, and waits for a look at who answered the last time; those that do not answer are passed over.
func (r *Reconciler) beginParallel(s *scope, stage plan.Stage) {
	pending := s.pending(stage)
	if s.op.Status.FailureReason != "" || len(s.inHand(stage)) >= max(stage.Batch.Parallel, 1) {
		return
	}
	all, expected := r.lookedAt(s, stage, pending)
	if !all {
		return
	}
	for _, name := range pending {
		if expected[name] {
			return // Who comes behind it does not overtake it.
		}
		r.step(s, stage, s.candidate(name, stage), s.executor.Next)
		if len(s.inHand(stage)) >= max(stage.Batch.Parallel, 1) {
			return
		}
	}
}

// lookedAt says whether each of the machines has been looked at once, however long ago, and which of those that answered then are expected
// to answer the look that is under way. It keeps an eye on all of them.
func (r *Reconciler) lookedAt(s *scope, stage plan.Stage, names []string) (all bool, expected map[string]bool) {
	all, expected = true, map[string]bool{}
	for _, name := range names {
		if machine := s.Machine(name); machine != nil {
			last, seen, fresh := r.look(s, kind.Unit{Status: s.candidate(name, stage), Machine: machine})
			all = all && seen
			expected[name] = !fresh && last.TalosTrouble == ""
		}
	}
	return all, expected
}

// beginTiered begins with one unit after the other, as long as the order and the gates let it.
func (r *Reconciler) beginTiered(s *scope, stage plan.Stage) {
	for s.op.Status.FailureReason == "" {
		name := r.nextUnit(s, stage)
		if name == "" {
			return
		}
		before := len(s.pending(stage))
		r.step(s, stage, s.candidate(name, stage), s.executor.Next)
		if len(s.pending(stage)) == before {
			return // It waits, and so would those behind it.
		}
	}
}

// candidate is a unit at the beginning of a stage. It is not in status until something is claimed for it.
func (s *scope) candidate(name string, stage plan.Stage) v1alpha1.UnitStatus {
	unit := s.unit(name)
	unit.Stage, unit.Step, unit.Outcome, unit.RetryStep, unit.PreRebootBootID = stage.Name, "", nil, "", ""
	return unit
}

// nextUnit chooses whom a tiered stage begins with next; nothing means nobody, for now.
func (r *Reconciler) nextUnit(s *scope, stage plan.Stage) string {
	inHand := len(s.inHand(stage))
	pending := s.pendingMachines(stage)
	if controlPlanes := plan.ControlPlanes(pending); controlPlanes > 0 || s.controlPlaneInHand(stage) {
		return r.nextControlPlane(s, pending, inHand)
	}
	switch names := s.pending(stage); {
	case len(pending) == 0 && len(names) > 0:
		return names[0] // Its machine is gone, which has to be said.
	case len(pending) == 0 || inHand >= s.maxUnavailable():
		return ""
	}
	return plan.Order(pending, "")[0]
}

// nextControlPlane takes them one at a time, and whoever leads etcd by now as the last.
func (r *Reconciler) nextControlPlane(s *scope, pending []*v1alpha1.TalosMachine, inHand int) string {
	if inHand > 0 {
		return ""
	}
	view, fresh := r.view(s)
	if !fresh {
		return ""
	}
	return plan.Order(pending, cmp.Or(view.Leader(), s.Cluster.Status.EtcdLeader))[0] // Without a quorum there is none: the last one counts.
}

func (s *scope) controlPlaneInHand(stage plan.Stage) bool {
	return slices.ContainsFunc(s.inHand(stage), func(u v1alpha1.UnitStatus) bool {
		machine := s.Machine(u.Name)
		return machine != nil && machine.Spec.Role == v1alpha1.ControlPlaneRole
	})
}

// pending are the units of a stage that nobody has begun with.
func (s *scope) pending(stage plan.Stage) []string {
	return slices.DeleteFunc(unitsOf(stage), func(name string) bool {
		unit := s.unit(name)
		return unit.CompletedStage == stage.Name || unit.Stage == stage.Name || unit.Phase == v1alpha1.UnitCompleted
	})
}

func (s *scope) pendingMachines(stage plan.Stage) []*v1alpha1.TalosMachine {
	var machines []*v1alpha1.TalosMachine
	for _, name := range s.pending(stage) {
		if machine := s.Machine(name); machine != nil {
			machines = append(machines, machine)
		}
	}
	return machines
}

// unitsOf are the names of a stage's units: its machines, or the stage itself.
func unitsOf(stage plan.Stage) []string {
	if stage.Whole {
		return []string{stage.Name}
	}
	return slices.Clone(stage.Machines)
}

// inHand are the units that were begun with in a stage and have not ended it.
func (s *scope) inHand(stage plan.Stage) []v1alpha1.UnitStatus {
	return slices.DeleteFunc(s.all(), func(u v1alpha1.UnitStatus) bool { return u.Stage != stage.Name || !inHand(u) })
}

// inHand says whether a unit was begun with in its stage and has not ended that.
func inHand(unit v1alpha1.UnitStatus) bool {
	return unit.Phase != v1alpha1.UnitCompleted && unit.Stage != unit.CompletedStage
}

// away are the machines that a disruptive stage has in hand.
func (s *scope) away(stage plan.Stage) map[string]bool {
	away := map[string]bool{}
	for _, unit := range s.inHand(stage) {
		away[unit.Name] = stage.Disruptive
	}
	return away
}

// over says whether a stage is over on all its units. A machine that was begun with counts, even if the plan has dropped it since.
func (s *scope) over(stage plan.Stage) bool {
	return len(s.pending(stage)) == 0 && len(s.inHand(stage)) == 0
}

// lastStageOf is the last stage that a unit is part of. One that the plan has dropped since it was begun with is part of all.
func (s *scope) lastStageOf(name string) string {
	last, planned := "", false
	for _, stage := range s.stages {
		if listed := slices.Contains(unitsOf(stage), name); listed || !planned {
			last, planned = stage.Name, planned || listed
		}
	}
	return last
}

// settle takes every unit in hand toward its nearest safe point, and says whether all are there. Failed units stay as they are, unless
// they are given up.
func (r *Reconciler) settle(s *scope) bool {
	s.settling = true
	for _, stage := range s.stages {
		for _, unit := range s.inHand(stage) {
			if r.settles(s, unit) {
				r.step(s, stage, unit, s.executor.Settle)
			}
		}
	}
	for _, stage := range s.stages {
		if slices.ContainsFunc(s.inHand(stage), func(u v1alpha1.UnitStatus) bool { return s.givingUp || !isFailed(u) }) {
			return false
		}
	}
	s.settling = false
	return true
}

// settles says whether a unit is taken to a safe point. A failed one is only when it is given up, and then not from an unsafe step.
func (r *Reconciler) settles(s *scope, unit v1alpha1.UnitStatus) bool {
	return !isFailed(unit) || (s.givingUp && s.executor.Unsafe(kind.Unit{Status: unit, Machine: s.Machine(unit.Name)}) == "")
}

// unfinished says whether a unit is in hand, or has failed.
func (s *scope) unfinished() bool { return slices.ContainsFunc(s.all(), inHand) }

// unfinishedWork names what is in hand, for who leaves it behind.
func (s *scope) unfinishedWork() string {
	var work []string
	for _, unit := range s.all() {
		if inHand(unit) {
			work = append(work, unit.Name+": "+string(unit.Step))
		}
	}
	return strings.Join(work, ", ")
}

func isFailed(unit v1alpha1.UnitStatus) bool { return !unit.FailureTime.IsZero() }

// failed are the units that wait for a retry.
func (s *scope) failed() []v1alpha1.UnitStatus {
	return slices.DeleteFunc(s.all(), func(u v1alpha1.UnitStatus) bool { return !isFailed(u) })
}

// all are copies of all units.
func (s *scope) all() []v1alpha1.UnitStatus { return units(s.op) }

// units are the units of an operation: machines, then stages without machines.
func units(op *v1alpha1.TalosOperation) []v1alpha1.UnitStatus {
	return slices.Concat(op.Status.Machines, op.Status.Units)
}

// unit is a copy of a unit's status, or a new one.
func (s *scope) unit(name string) v1alpha1.UnitStatus {
	for _, unit := range s.all() {
		if unit.Name == name {
			return *unit.DeepCopy()
		}
	}
	return v1alpha1.UnitStatus{Name: name, Phase: v1alpha1.UnitInProgress}
}

// put writes a unit into status: over what is known of it, or among the units of its kind.
func (s *scope) put(unit v1alpha1.UnitStatus) {
	for _, list := range []*[]v1alpha1.UnitStatus{&s.op.Status.Machines, &s.op.Status.Units} {
		for i := range *list {
			if (*list)[i].Name == unit.Name {
				(*list)[i] = unit
				return
			}
		}
	}
	list := &s.op.Status.Machines
	if slices.ContainsFunc(s.stages, func(stage plan.Stage) bool { return stage.Whole && stage.Name == unit.Name }) {
		list = &s.op.Status.Units
	}
	*list = append(*list, unit)
}

// work says what goes on with a unit in hand.
func (s *scope) work(unit v1alpha1.UnitStatus) {
	if unit.Step == "" {
		return
	}
	s.working = append(s.working, fmt.Sprintf("%s: %s", unit.Name, unit.Step))
}

// maxUnavailable is how many workers may be away at once.
func (s *scope) maxUnavailable() int {
	return plan.MaxUnavailable(s.op.Spec.MaxUnavailable, s.Approved())
}

// warnings are the Events that somebody should look at.
var warnings = []string{
	v1alpha1.StepFailedReason, v1alpha1.RefusedReason, v1alpha1.StatusLostReason, v1alpha1.NoExecutorReason, v1alpha1.TargetMissingReason,
	v1alpha1.GateOverriddenEvent, v1alpha1.LockTakenOverEvent, v1alpha1.ForceDeletedEvent,
}

// event records something when status is written.
func (s *scope) event(reason, action, note string, args ...any) {
	severity := corev1.EventTypeNormal
	if slices.Contains(warnings, reason) {
		severity = corev1.EventTypeWarning
	}
	op := s.op.DeepCopy()
	s.events = append(s.events, func(recorder events.EventRecorder) {
		recorder.Eventf(op, nil, severity, reason, action, note, args...)
	})
}
