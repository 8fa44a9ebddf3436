// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/hub/fleet/render"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// SetOperationPaused implements the OperationService.
func (s *Server) SetOperationPaused(
	ctx context.Context, request *connect.Request[pb.SetOperationPausedRequest],
) (*connect.Response[pb.SetOperationPausedResponse], error) {
	service, op, err := s.operation(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	changed, err := service.SetPaused(ctx, op, request.Msg.GetPaused())
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.SetOperationPausedResponse{Operation: render.Operation(op), Changed: changed}), nil
}

// RetryOperation implements the OperationService.
func (s *Server) RetryOperation(ctx context.Context, request *connect.Request[pb.RetryOperationRequest]) (*connect.Response[pb.RetryOperationResponse], error) {
	service, op, err := s.operation(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	changed, err := service.Retry(ctx, op)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.RetryOperationResponse{Operation: render.Operation(op), Changed: changed}), nil
}

// ConfirmOperation implements the OperationService.
func (s *Server) ConfirmOperation(
	ctx context.Context, request *connect.Request[pb.ConfirmOperationRequest],
) (*connect.Response[pb.ConfirmOperationResponse], error) {
	service, op, err := s.operation(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	changed, err := service.Confirm(ctx, op, request.Msg.GetStage())
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.ConfirmOperationResponse{Operation: render.Operation(op), Changed: changed}), nil
}

// TurnBackOperation implements the OperationService.
func (s *Server) TurnBackOperation(ctx context.Context, request *connect.Request[pb.TurnBackOperationRequest]) (*connect.Response[pb.TurnBackOperationResponse], error) {
	service, op, err := s.operation(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	changed, err := service.TurnBack(ctx, op)
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.TurnBackOperationResponse{Operation: render.Operation(op), Changed: changed}), nil
}

// DeleteOperation implements the OperationService.
func (s *Server) DeleteOperation(ctx context.Context, request *connect.Request[pb.DeleteOperationRequest]) (*connect.Response[pb.DeleteOperationResponse], error) {
	service, op, err := s.operation(ctx, request.Msg.GetRef())
	if err != nil {
		return nil, problem(err)
	}
	gone, err := service.Delete(ctx, op, request.Msg.GetForce(), request.Msg.GetReason())
	if err != nil {
		return nil, problem(err)
	}
	return connect.NewResponse(&pb.DeleteOperationResponse{Gone: gone}), nil
}

// operation begins a call about one operation.
func (s *Server) operation(ctx context.Context, ref *pb.Reference) (*Service, *v1alpha1.TalosOperation, error) {
	key, err := s.key("ref", ref)
	if err != nil {
		return nil, nil, err
	}
	service, err := s.writer(ctx)
	if err != nil {
		return nil, nil, err
	}
	op, err := service.Operation(ctx, key)
	return service, op, err
}

// SetPaused asks an operation to stop at the next safe point, or to go on. It says whether that is new.
func (s *Service) SetPaused(ctx context.Context, op *v1alpha1.TalosOperation, paused bool) (changed bool, err error) {
	if err := s.maySteer(ctx, op, !paused); err != nil {
		return false, err
	}
	switch {
	case op.Completed():
		return false, ended("pause", op)
	case op.Paused() == paused:
		return false, nil
	}
	return true, s.change(ctx, op, func(op *v1alpha1.TalosOperation) {
		op.Spec.Paused = nil
		if paused {
			op.Spec.Paused = ptr.To(true)
		}
	})
}

// Retry asks to run what failed again. It says whether anything had failed that nobody had asked to retry.
func (s *Service) Retry(ctx context.Context, op *v1alpha1.TalosOperation) (changed bool, err error) {
	planner, known := planners[op.Spec.Kind]
	if !known {
		return false, &StateError{What: fmt.Sprintf("this hub does not know kind %s of operation %s", op.Spec.Kind, op.Name), Help: "upgrade the hub"}
	}
	if err := s.maySteer(ctx, op, true); err != nil {
		return false, err
	}
	paused := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.PausedCondition)
	lost := paused != nil && paused.Status == metav1.ConditionTrue && paused.Reason == v1alpha1.StatusLostReason
	switch {
	case op.Completed():
		return false, ended("retry", op)
	case op.Status.FailureReason == "" || op.Annotations[v1alpha1.RetryAnnotation] == v1alpha1.RetryRequested:
		return false, nil
	case lost && !planner.Traits(op.Spec).Repeatable:
		return false, &StateError{
			What: fmt.Sprintf("operation %s has lost its status, and kind %s cannot be repeated without it", op.Name, op.Spec.Kind),
			Help: "look at the machines, delete it with: ichor operation delete " + op.Name + ", and start another one",
		}
	}
	return true, s.change(ctx, op, func(op *v1alpha1.TalosOperation) {
		metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.RetryAnnotation, v1alpha1.RetryRequested)
	})
}

// Confirm says that what the stage under way waits for of people is done. It says whether that is new.
func (s *Service) Confirm(ctx context.Context, op *v1alpha1.TalosOperation, stage string) (changed bool, err error) {
	planner, known := planners[op.Spec.Kind]
	if !known {
		return false, &StateError{What: fmt.Sprintf("this hub does not know kind %s of operation %s", op.Spec.Kind, op.Name), Help: "upgrade the hub"}
	}
	if err := s.maySteer(ctx, op, true); err != nil {
		return false, err
	}
	confirmable := planner.Traits(op.Spec).Confirmable
	switch {
	case op.Completed():
		return false, ended("confirm", op)
	case !slices.Contains(confirmable, stage):
		return false, &InvalidError{Field: "stage", Value: stage, Allowed: confirmableWords(op, confirmable)}
	case op.Status.Stage != stage:
		return false, &StateError{
			What: fmt.Sprintf("operation %s is in stage %q and not in %s", op.Name, op.Status.Stage, stage), Help: "see: ichor operation get " + op.Name,
		}
	case op.Annotations[v1alpha1.ConfirmStageAnnotation] == stage:
		return false, nil
	}
	return true, s.change(ctx, op, func(op *v1alpha1.TalosOperation) {
		metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.ConfirmStageAnnotation, stage)
	})
}

// confirmableWords say which stages of an operation wait for people.
func confirmableWords(op *v1alpha1.TalosOperation, stages []string) string {
	if len(stages) == 0 {
		return fmt.Sprintf("kind %s waits for nobody's word", op.Spec.Kind)
	}
	return "of kind " + string(op.Spec.Kind) + ", " + commas(stages)
}

// TurnBack asks to make what an operation has changed what it was. It says whether nobody had asked for that. An operation that has failed goes
// on, backwards.
func (s *Service) TurnBack(ctx context.Context, op *v1alpha1.TalosOperation) (changed bool, err error) {
	planner, ok := planners[op.Spec.Kind].(plan.TurnsBack)
	if !ok {
		return false, &StateError{
			What: fmt.Sprintf("operation %s is of kind %s, which nobody can turn back", op.Name, op.Spec.Kind), Help: "pause it with: ichor operation pause " + op.Name,
		}
	}
	if err := s.maySteer(ctx, op, true); err != nil {
		return false, err
	}
	switch why := planner.NoWayBack(op); {
	case op.Completed():
		return false, ended("turn back", op)
	case why != "":
		return false, &StateError{What: fmt.Sprintf("operation %s cannot be turned back: %s", op.Name, why), Help: "see how far it is: ichor operation get " + op.Name}
	case op.Annotations[v1alpha1.TurnBackAnnotation] == v1alpha1.TurnBackRequested && op.Status.FailureReason == "":
		return false, nil
	}
	return true, s.change(ctx, op, func(op *v1alpha1.TalosOperation) {
		metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.TurnBackAnnotation, v1alpha1.TurnBackRequested)
		if op.Status.FailureReason != "" {
			metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.RetryAnnotation, v1alpha1.RetryRequested)
		}
	})
}

// maySteer asks whether the user may change an operation, and make its machines go on. Who could not start it makes nothing of it go on.
func (s *Service) maySteer(ctx context.Context, op *v1alpha1.TalosOperation, goesOn bool) error {
	if err := s.mayWrite(ctx, "patch", operationsResource, op); err != nil || !goesOn {
		return err
	}
	return s.mayStart(ctx, op.Namespace, op.Spec, false)
}

// Delete asks for the deletion of an operation, which settles first. By force it goes at once, and leaves its machines as they are.
func (s *Service) Delete(ctx context.Context, op *v1alpha1.TalosOperation, force bool, reason string) (gone bool, err error) {
	if err := s.mayWrite(ctx, "delete", operationsResource, op); err != nil {
		return false, err
	}
	if err := s.mayStart(ctx, op.Namespace, op.Spec, false); err != nil {
		return false, err
	}
	if force {
		if err := s.force(ctx, op, reason); err != nil {
			return false, err
		}
	}
	if err := s.remove(ctx, op); err != nil {
		return false, fmt.Errorf("deleting operation %s: %w", op.Name, err)
	}
	err = s.Client.Get(ctx, client.ObjectKeyFromObject(op), &v1alpha1.TalosOperation{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("operation %s is deleted; whether it is gone could not be read: %w", op.Name, err)
	}
	return apierrors.IsNotFound(err), nil
}

// force writes down that, and why, an operation may go wherever its machines are.
func (s *Service) force(ctx context.Context, op *v1alpha1.TalosOperation, reason string) error {
	if strings.TrimSpace(reason) == "" || len(reason) > mostReason {
		return &InvalidError{Field: "reason", Value: reason, Allowed: fmt.Sprintf("force needs one, of 1 to %d bytes", mostReason)}
	}
	if err := s.may(ctx, op.Namespace, overrideVerb, ""); err != nil {
		return err
	}
	return s.change(ctx, op, func(op *v1alpha1.TalosOperation) {
		metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.ForceDeleteAnnotation, v1alpha1.ForceDeleteRequested)
		metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.ForceDeleteReasonAnnotation, reason)
	})
}

// ended refuses to steer what has ended.
func ended(do string, op *v1alpha1.TalosOperation) error {
	return &StateError{What: fmt.Sprintf("there is nothing to %s: operation %s is completed", do, op.Name), Help: "list others with: ichor operation list"}
}

// change patches an operation, of which only what changes is written.
func (s *Service) change(ctx context.Context, op *v1alpha1.TalosOperation, change func(*v1alpha1.TalosOperation)) error {
	before := op.DeepCopy()
	change(op)
	if err := s.Client.Patch(ctx, op, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing operation %s: %w", op.Name, err)
	}
	return nil
}
