// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LeaveToOwner has the owner of a Machine replace it, by the condition with which a health check has one remedied. Where that says so already,
// the owner is at work.
func (m Machines) LeaveToOwner(ctx context.Context, machine *clusterv1.Machine, why string) error {
	if meta.IsStatusConditionFalse(machine.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition) || !machine.DeletionTimestamp.IsZero() {
		return nil
	}
	left := machine.DeepCopy()
	meta.SetStatusCondition(&left.Status.Conditions, metav1.Condition{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		Message: why, ObservedGeneration: machine.Generation,
	})
	patch := client.MergeFromWithOptions(machine, client.MergeFromWithOptimisticLock{})
	if err := m.Client.Status().Patch(ctx, left, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("leaving Machine %s to its owner: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}
