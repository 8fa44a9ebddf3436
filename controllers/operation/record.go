// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/target"
)

// trust compares the operation with the record on the target, once for every process that takes it over: the target must be this hub's,
// and status must not be older than what was begun there. A status that a backup brought back would have the hub do things twice.
func (r *Reconciler) trust(ctx context.Context, s *scope) (stop bool, err error) {
	memory := r.remember(s.key)
	if memory.trusted {
		return false, nil
	}
	view, fresh := r.view(s)
	switch {
	case s.ownerID() == "":
		s.waiting = append(s.waiting, gate.Wait{Gate: v1alpha1.TargetOwnedGate, Message: fmt.Sprintf(
			"TalosCluster %s has no annotation %s yet", s.Cluster.Name, v1alpha1.OwnerIDAnnotation)})
		return true, nil
	case !fresh:
		s.waiting = append(s.waiting, gate.Wait{Gate: v1alpha1.StartingReason, Message: "looking at the target"})
		return true, nil
	case view.RecordTrouble != "" && !s.traits.RecordOptional:
		s.waiting = append(s.waiting, recordUnread(view.RecordTrouble))
		return true, nil
	case view.RecordTrouble != "":
		return false, nil // It is compared as soon as it can be read.
	case s.stage(s.op.Status.Stage).Rewound:
		return false, nil // It is of an earlier time, and compared once it was written anew.
	case !r.owned(s, view.Record):
		return true, nil
	}
	older, err := r.older(ctx, s, view.Record)
	if err != nil {
		return true, err
	}
	if older {
		s.loseStatus()
		return true, nil
	}
	s.op.Status.Sequence = max(s.op.Status.Sequence, view.Record.Sequence) // A backup of now is told from one of before by this.
	memory.trusted = true
	return false, nil
}

func recordUnread(trouble string) gate.Wait {
	return gate.Wait{Gate: v1alpha1.TargetReachableGate, Message: "the hub's record on the cluster cannot be read: " + trouble}
}

// ownerID is the identity under which this hub manages the target.
func (s *scope) ownerID() string { return s.Cluster.Annotations[v1alpha1.OwnerIDAnnotation] }

// owned refuses a target that another hub manages.
func (r *Reconciler) owned(s *scope, record kube.Record) bool {
	if record.OwnerID == "" || record.OwnerID == s.ownerID() {
		return true
	}
	r.refuse(s, plan.Refusal{
		Gate:    v1alpha1.TargetOwnedGate,
		Message: fmt.Sprintf("another hub manages cluster %s, under owner ID %s", s.Cluster.Name, record.OwnerID),
		Help:    "see condition Owned of the TalosCluster",
	})
	return false
}

// older says whether the target knows more of what was begun than status does. An operation that waited while another one had the lock
// is behind as well; it is told apart by that other one, which knows that it has run, or by what that one left on the lock.
func (r *Reconciler) older(ctx context.Context, s *scope, record kube.Record) (bool, error) {
	switch {
	case record.Sequence <= s.op.Status.Sequence:
		return false, nil
	case record.OperationID == lock.OperationID(s.op):
		return true, nil
	case s.op.Status.Sequence == 0:
		return false, nil // It has not been compared before, and others have begun things.
	}
	others, err := r.ofCluster(ctx, s.clusterKey())
	for i := range others {
		if lock.OperationID(&others[i]) == record.OperationID && others[i].Status.Sequence >= record.Sequence {
			return false, err
		}
	}
	if err != nil {
		return true, err
	}
	ran, err := r.Locks.GaveBackLast(ctx, s.clusterKey(), record.OperationID, record.Sequence)
	return !ran, err
}

// loseStatus makes a status that is older than the truth one that is lost: nothing in it says that the operation has begun, and its
// identity is in its annotations alone.
func (s *scope) loseStatus() {
	s.op.Status.StartTime, s.op.Status.OperationID = metav1.Time{}, ""
	s.op.Status.FailureReason = lostReason
	s.why = lostStatus(s)
}

// advanceSequence counts one more thing that cannot be taken back. It is written down here first, and then on the target.
func (s *scope) advanceSequence(view gate.View) {
	s.op.Status.Sequence = max(s.op.Status.Sequence, view.Record.Sequence) + 1
}

// recorded says whether the step of a unit is one that the target must know of: the first of a disruptive stage, and whatever gates are
// asked about once more.
func (s *scope) recorded(unit v1alpha1.UnitStatus) bool {
	if s.steps[unit.Step].Records {
		return true
	}
	if !s.disruptive(unit.Stage) {
		return false
	}
	steps := 0
	for _, record := range unit.Steps {
		if record.Stage == unit.Stage {
			steps++
		}
	}
	return s.steps[unit.Step].Gated || steps <= 1
}

func (s *scope) disruptive(name string) bool { return s.stage(name).Disruptive }

// recording writes the record before it makes a call.
func (r *Reconciler) recording(s *scope, unit v1alpha1.UnitStatus, do func(context.Context) (kind.Outcome, error)) func(context.Context) (kind.Outcome, error) {
	stage := unit.Stage
	want := kube.Record{OwnerID: s.ownerID(), OperationID: lock.OperationID(s.op), Stage: stage, Sequence: s.op.Status.Sequence}
	cluster, g, optional := s.kind.Cluster, s.kind.Guard, s.traits.RecordOptional && !s.steps[unit.Step].Records
	write := writeOver
	if s.stage(stage).Rewound {
		write = writeAnew
	}
	return func(ctx context.Context) (kind.Outcome, error) {
		err := r.writeRecord(ctx, cluster, g, want, write)
		if err != nil && !(optional && unanswered(err)) {
			return kind.Outcome{}, err
		}
		outcome, doErr := do(ctx)
		if err != nil {
			outcome.Message = cmp.Or(outcome.Message, "begun without the record on the cluster: "+kube.Trouble(err))
		}
		return outcome, doErr
	}
}

// unanswered says whether the API server did not answer, which is what may be done without. Whatever it answered counts, but that it
// cannot answer: without a quorum of etcd it says no more.
func unanswered(err error) bool {
	var answer apierrors.APIStatus
	answered := errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError
	return !errors.Is(err, errOvertaken) && !answered && !errors.Is(err, guard.ErrNotAllowed) && !errors.Is(err, guard.ErrUndecided)
}

// errOvertaken means that the record is not the one that this operation may write over.
var errOvertaken = errors.New("the record on the cluster is not this operation's to write")

// writeRecord makes the record on the target say what is about to begin. It never goes back: of two steps that begin together, the
// earlier may arrive later.
func (r *Reconciler) writeRecord(
	ctx context.Context, t target.Target, g guard.Func, want kube.Record, write func(context.Context, kube.Writer, kube.Record) error,
) error {
	writer, err := r.Kube.Writer(ctx, t, g)
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return write(ctx, writer, want) })
}

// writeAnew writes the record over one of an earlier time, whoever's that was: the target was this hub's when it was put back.
func writeAnew(ctx context.Context, writer kube.Writer, want kube.Record) error {
	found, err := writer.Record(ctx)
	if err != nil || found.Same(want) {
		return err
	}
	want.Version = found.Version
	return writer.WriteRecord(ctx, want)
}

func writeOver(ctx context.Context, writer kube.Writer, want kube.Record) error {
	found, err := writer.Record(ctx)
	switch {
	case err != nil:
		return err
	case found.OwnerID != "" && found.OwnerID != want.OwnerID:
		return fmt.Errorf("%w: the owner is %s", errOvertaken, found.OwnerID)
	case found.OperationID == want.OperationID && found.Sequence >= want.Sequence:
		return nil
	case found.Sequence >= want.Sequence:
		return fmt.Errorf("%w: operation %s was begun later", errOvertaken, found.OperationID)
	}
	want.Version = found.Version
	return writer.WriteRecord(ctx, want)
}
