// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SkippedFor is for whom MachineHealthChecks leave a Machine alone: the value of the annotation that says so. Cluster API asks only
// whether the annotation is there, so its value is free to say whose it is. Others leave it empty, or write what they like.
func SkippedFor(machine *clusterv1.Machine) (owner string, skipped bool) {
	owner, skipped = machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	return owner, skipped
}

// SkipRemediation makes MachineHealthChecks leave a Machine alone, in the name of owner. A Machine that they leave alone already stays
// as it is, unless mayReplace says otherwise of whoever asked for that: it is not the hub's to take back.
func (m Machines) SkipRemediation(ctx context.Context, machine *clusterv1.Machine, owner string, mayReplace func(other string) bool) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if other, skipped := SkippedFor(machine); skipped && (other == owner || !mayReplace(other)) {
			return nil
		}
		err := m.annotate(ctx, machine, func(annotated *clusterv1.Machine) {
			metav1.SetMetaDataAnnotation(&annotated.ObjectMeta, clusterv1.MachineSkipRemediationAnnotation, owner)
		})
		if !apierrors.IsConflict(err) {
			return err
		}
		newer := &clusterv1.Machine{} // The cache is behind, and nothing wakes who waits for it.
		if err := m.Live.Get(ctx, client.ObjectKeyFromObject(machine), newer); err != nil {
			return err
		}
		machine = newer
		return err
	})
	return client.IgnoreNotFound(err) // One that is gone cannot be remedied.
}

// AllowRemediation takes back what SkipRemediation did, if the Machine is still as it was read.
func (m Machines) AllowRemediation(ctx context.Context, machine *clusterv1.Machine) error {
	err := m.annotate(ctx, machine, func(annotated *clusterv1.Machine) {
		delete(annotated.Annotations, clusterv1.MachineSkipRemediationAnnotation)
	})
	return client.IgnoreNotFound(err)
}

// annotate changes a Machine if it is still as it was read: an annotation that somebody writes in between is theirs.
func (m Machines) annotate(ctx context.Context, machine *clusterv1.Machine, change func(*clusterv1.Machine)) error {
	annotated := machine.DeepCopy()
	change(annotated)
	patch := client.MergeFromWithOptions(machine, client.MergeFromWithOptimisticLock{})
	if err := m.Client.Patch(ctx, annotated, patch); err != nil {
		return fmt.Errorf("annotating Machine %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}

// NodeReady says whether Cluster API has seen the Node of a Machine Ready, and since when the Node is. MachineHealthChecks judge by the
// same cache.
func NodeReady(machine *clusterv1.Machine) (since time.Time, ready bool) {
	condition := meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineNodeReadyCondition)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	return condition.LastTransitionTime.Time, true
}
