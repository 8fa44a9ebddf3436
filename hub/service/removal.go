// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
)

// asking is facts in which the machine that an order removes asks for that, as it will once the order is started, and the machine as it is now.
// There is no such machine where it asks already, or where the order says no reason.
func asking(order Order, facts targets.Facts) (targets.Facts, *v1alpha1.TalosMachine) {
	node := order.Spec.Node
	if node == nil || node.Action != v1alpha1.RemoveAction || node.Remove == nil || node.Remove.Reason == "" {
		return facts, nil
	}
	machine := facts.Machine(node.Machine)
	if machine == nil || machine.Spec.Removal != nil {
		return facts, nil
	}
	now := machine.DeepCopy()
	facts.Machines = slices.Clone(facts.Machines)
	facts.Machine(node.Machine).Spec.Removal = &v1alpha1.RemovalSpec{Reason: node.Remove.Reason}
	return facts, now
}

// request writes down on the TalosMachine that it is to be removed, where that is not written yet. It says whether it did.
func (s *Service) request(ctx context.Context, start *Start, dry bool) (asked bool, err error) {
	if start.unasked == nil {
		return false, nil
	}
	machine := start.unasked.DeepCopy()
	machine.Spec.Removal = &v1alpha1.RemovalSpec{Reason: start.Spec.Node.Remove.Reason}
	var options []client.PatchOption
	if dry {
		options = append(options, client.DryRunAll)
	}
	if err := s.Client.Patch(ctx, machine, client.MergeFrom(start.unasked), options...); err != nil {
		return false, fmt.Errorf("asking for the removal of TalosMachine %s, nothing was started: %w", machine.Name, err)
	}
	return true, nil
}

// mayRequest asks whether the user may write what the start writes on a TalosMachine.
func (s *Service) mayRequest(ctx context.Context, start *Start) error {
	if start.unasked == nil {
		return nil
	}
	return s.mayWrite(ctx, "patch", machinesResource, start.unasked)
}
