// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LeaveToOwner has the owner of a Machine replace it, by the condition with which a health check has one remedied: in both of its forms, since
// owners that were built for v1beta1 of Cluster API look at the deprecated one. Where they say so already, the owner is at work. Health checks
// write the same Machine at the same time.
func (m Machines) LeaveToOwner(ctx context.Context, machine *clusterv1.Machine, why string) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now := &clusterv1.Machine{}
		if err := m.Live.Get(ctx, client.ObjectKeyFromObject(machine), now); err != nil {
			return err
		}
		left := now.DeepCopy()
		if !meta.IsStatusConditionFalse(now.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition) {
			meta.SetStatusCondition(&left.Status.Conditions, metav1.Condition{
				Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
				Message: why, ObservedGeneration: now.Generation,
			})
		}
		leaveDeprecated(left, why)
		if !now.DeletionTimestamp.IsZero() || apiequality.Semantic.DeepEqual(now.Status, left.Status) {
			return nil
		}
		return m.Client.Status().Patch(ctx, left, client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{}))
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("leaving Machine %s to its owner: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}

// leaveDeprecated says so in the form of v1beta1.
func leaveDeprecated(machine *clusterv1.Machine, why string) {
	if machine.Status.Deprecated == nil {
		machine.Status.Deprecated = &clusterv1.MachineDeprecatedStatus{}
	}
	if machine.Status.Deprecated.V1Beta1 == nil {
		machine.Status.Deprecated.V1Beta1 = &clusterv1.MachineV1Beta1DeprecatedStatus{}
	}
	status := machine.Status.Deprecated.V1Beta1
	is := func(c clusterv1.Condition) bool { return c.Type == clusterv1.MachineOwnerRemediatedV1Beta1Condition }
	if at := slices.IndexFunc(status.Conditions, is); at >= 0 && status.Conditions[at].Status == corev1.ConditionFalse {
		return
	}
	status.Conditions = append(slices.DeleteFunc(status.Conditions, is), clusterv1.Condition{
		Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse, Severity: clusterv1.ConditionSeverityWarning,
		Reason: clusterv1.WaitingForRemediationV1Beta1Reason, Message: why, LastTransitionTime: metav1.Now().Rfc3339Copy(),
	})
}
