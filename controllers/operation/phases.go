// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
)

// advance takes the phases in order. Each of them either finds why nothing may move, or lets the next one go on.
func (r *Reconciler) advance(ctx context.Context, s *scope) (gone bool, err error) {
	r.collect(s)
	completedBefore(s.op)
	if s.op.Completed() && s.op.DeletionTimestamp.IsZero() {
		return r.completed(ctx, s)
	}
	if err := r.load(ctx, s); err != nil {
		return false, err
	}
	if err := r.bury(ctx, s); err != nil {
		return false, err
	}
	if !s.op.DeletionTimestamp.IsZero() {
		return r.deleted(ctx, s)
	}
	if done, err := r.adopt(ctx, s); done || err != nil {
		return false, err
	}
	if s.Cluster != nil {
		if err := r.anchor(ctx, s); err != nil {
			return false, err
		}
	}
	for _, phase := range []func(context.Context, *scope) (stop bool, err error){
		r.retry,   // A request to retry is taken note of before anything says that the operation has failed.
		r.halt,    // The rows of the pause table that do not need the lock.
		r.known,   // A target whose machines are not known is not planned for.
		r.judge,   // What is refused does not take the lock.
		r.steady,  // Nor does work on control planes while one is under replacement.
		r.acquire, // From here on the target is ours.
		r.began,   // A lost status must not look like a beginning.
		r.trust,   // Nor must an older one be believed.
	} {
		if stop, err := phase(ctx, s); stop || err != nil {
			return false, err
		}
	}
	return false, r.run(ctx, s)
}

// completedBefore completes an operation again whose status was lost after it had completed.
func completedBefore(op *v1alpha1.TalosOperation) {
	at, err := time.Parse(time.RFC3339, op.Annotations[v1alpha1.CompletedAtAnnotation])
	if err != nil || op.Completed() {
		return
	}
	op.Status.CompletionTime = metav1.NewTime(at)
	if began, err := time.Parse(time.RFC3339, op.Annotations[v1alpha1.StartedAtAnnotation]); err == nil && op.Status.StartTime.IsZero() {
		op.Status.StartTime = metav1.NewTime(began)
	}
}

// collect puts the results of calls that have ended into the status of their units.
func (r *Reconciler) collect(s *scope) {
	s.results = r.tasks.collected(s.key)
	for name, result := range s.results {
		unit := s.unit(name)
		if unit.Step != result.step || unit.Outcome != nil {
			r.tasks.drop(observe.Key{Object: s.key, Part: name}) // The unit has moved on: somebody else wrote status meanwhile.
			delete(s.results, name)
			continue
		}
		unit.Outcome = ptr.To(result.outcome)
		if result.unknown {
			s.leaveUnknown(&unit, r.Clock.Now())
		}
		if result.resolvedImage != "" {
			unit.ResolvedImage = result.resolvedImage
		}
		if result.progress != nil {
			unit.Progress = result.progress
		}
		s.put(unit)
	}
}

// load reads what the operation is about.
func (r *Reconciler) load(ctx context.Context, s *scope) error {
	s.executor = r.Executors[s.op.Spec.Kind]
	return r.loadFrom(ctx, s, r.Client)
}

// loadFrom reads the objects about the target, from the cache or not.
func (r *Reconciler) loadFrom(ctx context.Context, s *scope, reader client.Reader) error {
	facts, err := targets.Load(ctx, reader, s.clusterKey())
	if err != nil {
		return err
	}
	s.Facts = facts
	if s.Cluster == nil || s.executor == nil {
		return nil
	}
	if s.snapshot, err = targets.Snapshot(ctx, reader, s.op.Namespace, s.op.Spec); err != nil {
		return err
	}
	if s.hub, err = targets.Installation(ctx, reader, r.Installation, s.op.Spec); err != nil {
		return err
	}
	s.steps = map[v1alpha1.OperationStep]kind.Step{}
	for _, step := range s.executor.Steps() {
		if deadline, ok := r.Deadlines[step.Name]; ok {
			step.Timeout = deadline
		}
		s.steps[step.Name] = step
	}
	s.traits = s.executor.Traits(s.op.Spec)
	s.plan, s.refusals = plan.Judge(s.executor, s.planFacts(r.Clock.Now()))
	s.stages = s.plan.Stages
	s.kind = kind.Scope{
		Owner: s.key.String(), OperationID: lock.OperationID(s.op), StoppedBy: s.Cluster.StoppedBy(),
		Spec:           s.op.Spec,
		Target:         s.target(),
		Cluster:        s.Target(),
		Machines:       len(s.Machines),
		Approved:       s.Approved(),
		Known:          s.knownMachines(),
		Units:          s.all(),
		TurnBack:       s.plan.TurnsBack,
		Blind:          s.traits.RecordOptional && s.planFacts(r.Clock.Now()).Overridden(v1alpha1.TargetReachableGate),
		ConfirmedStage: s.op.Annotations[v1alpha1.ConfirmStageAnnotation],
		Guard:          r.Locks.Guard(s.clusterKey(), lock.Operation(s.op)),
	}
	return nil
}

// knownMachines are all machines of the target.
func (s *scope) knownMachines() []*v1alpha1.TalosMachine {
	list := make([]*v1alpha1.TalosMachine, len(s.Machines))
	for i := range s.Machines {
		list[i] = &s.Machines[i]
	}
	return list
}

func (s *scope) clusterKey() client.ObjectKey {
	return client.ObjectKey{Namespace: s.op.Namespace, Name: s.op.Spec.ClusterName}
}

// completed gives back what a finished operation still has, and deletes it when its time is over.
func (r *Reconciler) completed(ctx context.Context, s *scope) (gone bool, err error) {
	if holdsLock(s.op) {
		if err := r.release(ctx, s); err != nil {
			return false, err
		}
	}
	if s.op.Annotations[v1alpha1.CompletedAtAnnotation] == "" {
		return false, r.patchMetadata(ctx, s.op, func(op *v1alpha1.TalosOperation) {
			annotate(op, v1alpha1.CompletedAtAnnotation, op.Status.CompletionTime.UTC().Format(time.RFC3339))
		})
	}
	return r.expire(ctx, s)
}

func (r *Reconciler) expire(ctx context.Context, s *scope) (gone bool, err error) {
	if s.op.Spec.TTLSecondsAfterFinished == nil {
		return false, nil
	}
	ttl := time.Duration(*s.op.Spec.TTLSecondsAfterFinished) * time.Second
	if left := s.op.Status.CompletionTime.Add(ttl).Sub(r.Clock.Now()); left > 0 {
		s.requeue = left
		return false, nil
	}
	return true, client.IgnoreNotFound(r.Client.Delete(ctx, s.op, client.Preconditions{UID: &s.op.UID}))
}

// deleted settles an operation, gives the lock back and lets it go. Where the target is gone there is nothing left to settle.
func (r *Reconciler) deleted(ctx context.Context, s *scope) (gone bool, err error) {
	if !controllerutil.ContainsFinalizer(s.op, v1alpha1.TalosOperationFinalizer) {
		return true, nil
	}
	if err := r.APIReader.Get(ctx, s.key, &v1alpha1.TalosOperation{}); err != nil {
		return client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err) // The cache is behind: it is gone, and has nothing to take.
	}
	switch {
	case s.moves(): // It goes on elsewhere, and so does what it holds.
	case s.forced():
		s.event(v1alpha1.ForceDeletedEvent, "Delete", "deleted by force, and its machines are left as they are: %s", s.unfinishedWork())
	case s.Cluster != nil && s.executor == nil && s.unfinished():
		s.blocked = explain("this hub does not know the kind, and cannot settle it", s.wayOut("upgrade the hub"))
		return false, nil
	case s.kept():
		s.blocked = explain(
			"what it has changed on machines is not what it was", s.wayOut("let it go on, or turn it back: ichor operation turn-back "+s.op.Name))
		return false, r.goOn(ctx, s)
	case s.leavesWork():
		if settled, err := r.settleForGood(ctx, s); err != nil || !settled {
			return false, err
		}
	}
	if err := r.release(ctx, s); err != nil {
		return false, err
	}
	for _, record := range s.events {
		record(r.Recorder) // Status is not written any more.
	}
	return true, r.patchMetadata(ctx, s.op, func(op *v1alpha1.TalosOperation) {
		controllerutil.RemoveFinalizer(op, v1alpha1.TalosOperationFinalizer)
	})
}

// leavesWork says whether there is something to settle before an operation goes.
func (s *scope) leavesWork() bool {
	return s.Cluster != nil && (s.unfinished() || s.takesBack() || s.insideWindow()) && !statusLost(s.op)
}

// settleForGood takes every unit to a safe point and gives up those that have failed. One that failed inside an unsafe step is at no
// safe point, and nobody else may go on in its place: it has to be retried, or left behind on purpose.
func (r *Reconciler) settleForGood(ctx context.Context, s *scope) (settled bool, err error) {
	if stop, err := r.retry(ctx, s); stop || err != nil {
		return false, err
	}
	s.why = nil // Whatever holds a retry back, the rest settles.
	if ready, err := r.enter(ctx, s); err != nil || !ready {
		return false, err
	}
	setLock(s.op, metav1.ConditionTrue, v1alpha1.LockHeldReason) // It may have been somebody else's meanwhile.
	if stop, err := r.trust(ctx, s); stop || err != nil {
		return s.why != nil && s.why.leaves, err
	}
	if past, err := r.pastTheWindow(ctx, s); err != nil || !past {
		return false, err
	}
	s.givingUp = true
	s.reopen()
	if r.settle(s) {
		return true, nil
	}
	if unsafe := r.unsafeFailure(s.op); unsafe != "" {
		s.blocked = explain(unsafe, s.wayOut("retry it with: ichor operation resume "+s.op.Name))
	}
	return false, nil
}

// pastTheWindow takes an operation that is being deleted through the stages that nobody may leave half-way, if it has begun with them. One
// that has failed there needs a retry first.
func (r *Reconciler) pastTheWindow(ctx context.Context, s *scope) (past bool, err error) {
	if !s.insideWindow() {
		return true, nil
	}
	where := fmt.Sprintf("cluster %s is half-way through stage %s", s.op.Spec.ClusterName, s.op.Status.Stage)
	if s.op.Status.FailureReason != "" {
		s.blocked = explain(cmp.Or(r.unsafeFailure(s.op), where), s.wayOut("retry it with: ichor operation resume "+s.op.Name))
		return false, nil
	}
	s.blocked = explain(where, s.wayOut("it goes as soon as that is over"))
	return false, r.run(ctx, s)
}

// wayOut says what ends a deletion that is blocked.
func (s *scope) wayOut(first string) string {
	return fmt.Sprintf("%s; or leave it as it is with annotation %s=%s on the operation", first, v1alpha1.ForceDeleteAnnotation, v1alpha1.ForceDeleteRequested)
}

// retry clears a failure once somebody asked for it: first in status, then the request goes, then steps are taken.
func (r *Reconciler) retry(ctx context.Context, s *scope) (stop bool, err error) {
	if s.op.Annotations[v1alpha1.RetryAnnotation] != v1alpha1.RetryRequested || s.Cluster == nil || s.executor == nil {
		return false, nil // A hub that cannot go on does not take note, either.
	}
	lost := statusLost(s.op) && s.op.Status.FailureReason != ""
	if s.op.Status.FailureReason == "" || (lost && !s.traits.Repeatable) {
		return true, r.patchMetadata(ctx, s.op, func(op *v1alpha1.TalosOperation) {
			delete(op.Annotations, v1alpha1.RetryAnnotation)
		})
	}
	if s.why = r.heldBack(s); s.why != nil {
		return false, nil // The request waits as well, and halt settles what is in hand.
	}
	if lost {
		return true, r.beginAnew(ctx, s)
	}
	now := metav1.NewTime(r.Clock.Now())
	if s.op.Status.StartTime.IsZero() {
		s.op.Status = v1alpha1.TalosOperationStatus{Conditions: s.op.Status.Conditions, FailureReason: s.op.Status.FailureReason}
	}
	for _, unit := range s.failed() {
		unit.FailureTime = metav1.Time{}
		if unit.RetryStep != "" {
			unit.PreRebootBootID = "" // Going back makes the reboot that was asked for history.
		}
		enter(&unit, r.retryAt(s, unit), now.Time)
		s.put(unit)
	}
	s.event(v1alpha1.RetryingEvent, "Retry", "retrying after: %s", s.op.Status.FailureReason)
	s.op.Status.FailureReason, s.op.Status.LastRetry = "", now
	return true, nil
}

// beginAnew makes an operation whose status was lost another one of the same name. Status is cleared next, as that of one that was
// refused before it began.
func (r *Reconciler) beginAnew(ctx context.Context, s *scope) error {
	return r.patchMetadata(ctx, s.op, func(op *v1alpha1.TalosOperation) {
		delete(op.Annotations, v1alpha1.StartedAtAnnotation)
		annotate(op, v1alpha1.OperationIDAnnotation, uuid.NewString())
	})
}

// retryAt is the step at which a retry begins. One that gates guard begins at the very beginning, unless nobody knows how far it came: then
// the machine is half-way, and repeating the step is the way on.
func (r *Reconciler) retryAt(s *scope, unit v1alpha1.UnitStatus) v1alpha1.OperationStep {
	step := cmp.Or(unit.RetryStep, unit.Step)
	unsafe := s.executor.Unsafe(kind.Unit{Status: unit, Machine: s.Machine(unit.Name)})
	if declared := s.steps[step]; declared.Gated && declared.Repeat == kind.Safe && unsafe == "" {
		return ""
	}
	return step
}

// halt finds the rows of the pause table that hold whoever has the lock, and settles what is in hand.
func (r *Reconciler) halt(ctx context.Context, s *scope) (stop bool, err error) {
	if s.why == nil { // Otherwise a retry is held back, and by what is the better answer.
		s.why = r.halted(s)
	}
	if s.why == nil {
		return false, nil
	}
	return true, r.stand(ctx, s)
}

// stand settles what is in hand and, where that is right, gives the lock back.
func (r *Reconciler) stand(ctx context.Context, s *scope) error {
	why := s.why
	switch {
	case why.reason == v1alpha1.StatusLostReason && s.op.Status.FailureReason == "":
		s.op.Status.FailureReason = lostReason
		return r.release(ctx, s) // Whether it holds the lock was lost as well.
	case s.Cluster == nil:
		return nil
	case !holdsLock(s.op):
		return r.releaseUnknown(ctx, s)
	case why.leaves:
		return r.release(ctx, s)
	case s.executor == nil && s.unfinished():
		return nil // A hub that knows the kind settles, and gives the lock back.
	case s.executor == nil:
		return r.release(ctx, s)
	}
	return r.settleFor(ctx, s, why)
}

// settleFor settles what is in hand for the sake of a pause. Whoever has the lock, and whatever the target says, why comes first.
func (r *Reconciler) settleFor(ctx context.Context, s *scope, why *pause) error {
	ready, err := r.enter(ctx, s)
	s.why = why // Whoever has the lock, this comes first.
	if err != nil || !ready {
		return err
	}
	switch stop, err := r.trust(ctx, s); {
	case err != nil:
		return err
	case s.why.leaves:
		return r.release(ctx, s)
	case stop:
		return nil
	}
	switch settled := r.settle(s) && r.unsafeFailure(s.op) == ""; { // A machine that failed half-way is nobody else's.
	case settled && why.releases:
		return r.release(ctx, s)
	case settled:
		_, err := r.giveWay(ctx, s)
		s.why = why
		return err
	}
	return nil
}

// known waits until initial discovery is over. No machine at all would look like no work at all.
func (r *Reconciler) known(_ context.Context, s *scope) (stop bool, err error) {
	if s.op.Status.Target != nil || s.Cluster.Annotations[v1alpha1.MembersApprovedAtAnnotation] != "" {
		return false, nil
	}
	s.waiting = append(s.waiting, gate.Wait{
		Gate: v1alpha1.MachinesDiscoveredGate, Message: "initial discovery has not matched every etcd member and every Node to a machine yet",
	})
	return true, nil
}

// judge asks the planner before the lock is taken for the first time. What the cache says is enough to go on, and not to refuse: the
// spec may have been written right before the operation.
func (r *Reconciler) judge(ctx context.Context, s *scope) (stop bool, err error) {
	if s.op.Status.Target != nil || len(s.objections()) == 0 {
		return false, nil
	}
	if err := r.loadFrom(ctx, s, r.APIReader); err != nil || s.Cluster == nil {
		return true, err
	}
	refusals := s.objections()
	if len(refusals) == 0 {
		return false, nil
	}
	for _, refusal := range refusals {
		if !refusal.Passing {
			r.refuse(s, refusal)
			return true, nil
		}
	}
	s.waiting = append(s.waiting, gate.Wait{Gate: refusals[0].Gate, Message: refusals[0].Message})
	return true, nil
}

// objections is what speaks against starting.
func (s *scope) objections() []plan.Refusal {
	if mismatch := unexpected(s); mismatch != nil {
		return append([]plan.Refusal{*mismatch}, s.refusals...)
	}
	return s.refusals
}

func (r *Reconciler) refuse(s *scope, first plan.Refusal) {
	s.op.Status.FailureReason = shorten(fmt.Sprintf("%s: %s", first.Gate, first.Message))
	s.why = refused(s)
	s.event(v1alpha1.RefusedReason, "Judge", "%s (%s)", s.op.Status.FailureReason, first.Help)
}

// unexpected refuses a target that differs from what the creator of the operation saw.
func unexpected(s *scope) *plan.Refusal {
	expected := s.op.Spec.ExpectedTarget
	if expected == nil || s.executor.Narrow(*expected) == s.target() {
		return nil
	}
	return &plan.Refusal{
		Gate:    v1alpha1.TargetExpectedGate,
		Message: fmt.Sprintf("%s asks for %s, and the operation expects %s", s.declares(), describe(s.target()), describe(*expected)),
	}
}

func (s *scope) planFacts(now time.Time) plan.Facts {
	return plan.Facts{
		Spec: s.op.Spec, Cluster: s.Cluster, Machines: s.Machines, Target: s.target(), Observed: now, Units: s.op.Status.Machines, CAPICluster: s.CAPICluster,
		Whole: s.op.Status.Units, CompletedStages: s.op.Status.CompletedStages, TurnBack: s.asksBack(),
		Snapshot: s.snapshot, Installation: s.hub,
	}
}

// adopt makes the operation belong to its Cluster, so that it is found, moved and collected with it.
func (r *Reconciler) adopt(ctx context.Context, s *scope) (done bool, err error) {
	if s.Cluster == nil {
		return false, nil
	}
	owner := s.Owner()
	labelled := s.op.Labels[clusterv1.ClusterNameLabel] == s.op.Spec.ClusterName
	if labelled && slices.Contains(s.op.OwnerReferences, owner) {
		return false, nil
	}
	return true, r.patchMetadata(ctx, s.op, func(op *v1alpha1.TalosOperation) {
		if op.Labels == nil {
			op.Labels = map[string]string{}
		}
		op.Labels[clusterv1.ClusterNameLabel] = op.Spec.ClusterName
		op.OwnerReferences = append(slices.DeleteFunc(op.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.APIVersion == owner.APIVersion && o.Kind == owner.Kind && o.Name == owner.Name // Of a Cluster that was made anew.
		}), owner)
	})
}

// began writes down, outside of status, that the operation has begun: a status may be lost, in a move or a restore.
func (r *Reconciler) began(ctx context.Context, s *scope) (stop bool, err error) {
	if s.op.Annotations[v1alpha1.StartedAtAnnotation] != "" {
		return false, nil
	}
	return true, r.patchMetadata(ctx, s.op, func(op *v1alpha1.TalosOperation) {
		annotate(op, v1alpha1.StartedAtAnnotation, r.Clock.Now().UTC().Format(time.RFC3339))
	})
}

// clusterPaused says whether the Cluster is paused in the sense of Cluster API.
func clusterPaused(cluster *clusterv1.Cluster) bool {
	if cluster == nil {
		return false
	}
	_, annotated := cluster.Annotations[clusterv1.PausedAnnotation]
	return annotated || ptr.Deref(cluster.Spec.Paused, false)
}
