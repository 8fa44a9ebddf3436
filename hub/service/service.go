// SPDX-License-Identifier: Apache-2.0

// Package service is what people do with the hub: import targets, plan and start operations, steer them.
//
// Everything is done with the client of whoever asks, so the API server's authorizer and audit decide and know.
package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	talosplan "ichor.maesh.dev/hub/controllers/operation/kind/talos/plan"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
)

// planners are the planners of the kinds that the service can start.
var planners = map[v1alpha1.OperationKind]plan.Planner{
	v1alpha1.TalosKind: talosplan.Planner{},
	v1alpha1.NodeKind:  nodeplan.Planner{},
}

// Service acts on the management API as one user.
type Service struct {
	// Client is the user's.
	Client client.WithWatch

	// Now tells the time.
	Now func() time.Time

	// Verifier looks at the targets that are imported; nil is verify.Live.
	Verifier Verifier
}

// NotFoundError means that something which the user named does not exist.
type NotFoundError struct{ What, Help string }

// Error says what does not exist, and how to find what does.
func (e *NotFoundError) Error() string { return e.What + "; " + e.Help }

// Facts reads what the management API knows of a target.
func (s *Service) Facts(ctx context.Context, key client.ObjectKey) (targets.Facts, error) {
	facts, err := targets.Load(ctx, s.Client, key)
	if err != nil {
		return targets.Facts{}, err
	}
	if facts.Cluster == nil {
		return targets.Facts{}, &NotFoundError{
			What: fmt.Sprintf("there is no cluster %q in namespace %q", key.Name, key.Namespace),
			Help: "list them with: ichor cluster list",
		}
	}
	return facts, nil
}

// Machine finds a machine by the name of its TalosMachine or of its Node. cluster limits the search and may be empty.
func (s *Service) Machine(ctx context.Context, namespace, cluster, name string) (*v1alpha1.TalosMachine, error) {
	list := &v1alpha1.TalosMachineList{}
	options := []client.ListOption{client.InNamespace(namespace)}
	if cluster != "" {
		options = append(options, client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	}
	if err := s.Client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	var found []*v1alpha1.TalosMachine
	for i := range list.Items {
		machine := &list.Items[i]
		if machine.Name == name {
			return machine, nil
		}
		if strings.EqualFold(machine.Status.NodeName, name) {
			found = append(found, machine)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, &NotFoundError{What: fmt.Sprintf("there is no machine %q", name), Help: "list them with: ichor machine list"}
	}
	var names []string
	for _, machine := range found {
		names = append(names, machine.Name)
	}
	return nil, fmt.Errorf("machine %q is one of %s: name the cluster with --cluster, or use a full name", name, strings.Join(names, ", "))
}

// SetHold makes rolling operations skip a machine, with a note for people, or takes that back.
func (s *Service) SetHold(ctx context.Context, machine *v1alpha1.TalosMachine, held bool, note string) error {
	patched := machine.DeepCopy()
	if patched.Annotations == nil {
		patched.Annotations = map[string]string{}
	}
	patched.Annotations[v1alpha1.UpgradeHoldAnnotation] = note
	if !held {
		delete(patched.Annotations, v1alpha1.UpgradeHoldAnnotation)
	}
	if err := s.Client.Patch(ctx, patched, client.MergeFrom(machine)); err != nil {
		return fmt.Errorf("changing the hold of machine %s: %w", machine.Name, err)
	}
	return nil
}

// Approve lets the hub work on a machine that was found after the initial discovery.
func (s *Service) Approve(ctx context.Context, machine *v1alpha1.TalosMachine) error {
	if machine.Spec.Approval == v1alpha1.Approved {
		return fmt.Errorf("machine %s is approved already: %w", machine.Name, ErrNothingToDo)
	}
	patched := machine.DeepCopy()
	patched.Spec.Approval = v1alpha1.Approved
	if err := s.Client.Patch(ctx, patched, client.MergeFrom(machine)); err != nil {
		return fmt.Errorf("approving machine %s: %w", machine.Name, err)
	}
	return nil
}

// Operation reads one operation.
func (s *Service) Operation(ctx context.Context, key client.ObjectKey) (*v1alpha1.TalosOperation, error) {
	op := &v1alpha1.TalosOperation{}
	err := s.Client.Get(ctx, key, op)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &NotFoundError{
			What: fmt.Sprintf("there is no operation %q in namespace %q", key.Name, key.Namespace),
			Help: "list them with: ichor operation list",
		}
	case err != nil:
		return nil, fmt.Errorf("reading operation %s: %w", key, err)
	}
	return op, nil
}

// ErrNothingToDo means that an operation is in the state that was asked for.
var ErrNothingToDo = errors.New("nothing to do")

// Pause asks an operation to stop at the next safe point.
func (s *Service) Pause(ctx context.Context, op *v1alpha1.TalosOperation) error {
	switch {
	case op.Completed():
		return fmt.Errorf("operation %s is completed: %w", op.Name, ErrNothingToDo)
	case op.Paused():
		return fmt.Errorf("operation %s is paused already: %w", op.Name, ErrNothingToDo)
	}
	return s.patch(ctx, op, func(op *v1alpha1.TalosOperation) { paused := true; op.Spec.Paused = &paused })
}

// Resume does what the state of an operation calls for: it lifts a pause, and asks to retry what failed. It says what it did.
func (s *Service) Resume(ctx context.Context, op *v1alpha1.TalosOperation) (did string, err error) {
	failed := op.Status.FailureReason != ""
	switch {
	case op.Completed():
		return "", fmt.Errorf("operation %s is completed: %w", op.Name, ErrNothingToDo)
	case op.Paused() && failed:
		did = "unpaused, and the failed step is retried"
	case op.Paused():
		did = "unpaused"
	case failed:
		did = "the failed step is retried"
	default:
		return "", fmt.Errorf("operation %s is neither paused nor failed: %w", op.Name, ErrNothingToDo)
	}
	return did, s.patch(ctx, op, func(op *v1alpha1.TalosOperation) {
		op.Spec.Paused = nil
		if failed {
			if op.Annotations == nil {
				op.Annotations = map[string]string{}
			}
			op.Annotations[v1alpha1.RetryAnnotation] = v1alpha1.RetryRequested
		}
	})
}

func (s *Service) patch(ctx context.Context, op *v1alpha1.TalosOperation, change func(*v1alpha1.TalosOperation)) error {
	patched := op.DeepCopy()
	change(patched)
	if err := s.Client.Patch(ctx, patched, client.MergeFrom(op)); err != nil {
		return fmt.Errorf("changing operation %s: %w", op.Name, err)
	}
	return nil
}

// Delete asks for the deletion of an operation. It settles first.
func (s *Service) Delete(ctx context.Context, op *v1alpha1.TalosOperation) error {
	if err := s.Client.Delete(ctx, op); err != nil {
		return fmt.Errorf("deleting operation %s: %w", op.Name, err)
	}
	return nil
}
