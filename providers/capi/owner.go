// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LeaveToOwner has the owner of a Machine replace it, by the condition with which a health check has one remedied. Where that says so already,
// the owner is at work. Health checks write the same Machine at the same time.
func (m Machines) LeaveToOwner(ctx context.Context, machine *clusterv1.Machine, why string) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now := &clusterv1.Machine{}
		if err := m.Live.Get(ctx, client.ObjectKeyFromObject(machine), now); err != nil {
			return err
		}
		if meta.IsStatusConditionFalse(now.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition) || !now.DeletionTimestamp.IsZero() {
			return nil
		}
		left := now.DeepCopy()
		meta.SetStatusCondition(&left.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
			Message: why, ObservedGeneration: now.Generation,
		})
		return m.Client.Status().Patch(ctx, left, client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{}))
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("leaving Machine %s to its owner: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}
