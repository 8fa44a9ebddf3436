// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Health says whether the etcd of a cluster is backed up, as its condition EtcdBackedUp, and when that may change by itself; zero if it does
// not.
func Health(cluster *v1alpha1.TalosCluster, snapshots []v1alpha1.EtcdSnapshot, now time.Time) (metav1.Condition, time.Time) {
	backup := cluster.Spec.EtcdBackup
	if backup == nil {
		return condition(metav1.ConditionUnknown, v1alpha1.EtcdBackupNotConfiguredReason, "spec.etcdBackup is not set"), time.Time{}
	}
	s, err := Of(client.ObjectKeyFromObject(cluster), backup)
	if err != nil {
		return condition(metav1.ConditionFalse, v1alpha1.EtcdBackupInvalidReason, err.Error()), time.Time{}
	}
	last := Last(snapshots)
	switch {
	case last == nil:
		return none(snapshots), time.Time{}
	case s == nil:
		return condition(metav1.ConditionTrue, v1alpha1.EtcdBackedUpReason, ""), time.Time{}
	}
	taken := last.Spec.Contents.TakenTime.Time
	end := s.TooOldAfter(taken)
	if now.Before(end) {
		return condition(metav1.ConditionTrue, v1alpha1.EtcdBackedUpReason, ""), end
	}
	message := fmt.Sprintf("the last good snapshot is %s, from %s", last.Name, taken.UTC().Format(time.RFC3339))
	if trouble := failing(snapshots); trouble != "" {
		message += "; " + trouble
	}
	return condition(metav1.ConditionFalse, v1alpha1.EtcdBackupTooOldReason, message), time.Time{}
}

// Deadline says when the last good snapshot of a cluster becomes too old; zero where there is none. Without a schedule there is no such time.
func Deadline(cluster *v1alpha1.TalosCluster, snapshots []v1alpha1.EtcdSnapshot) (end time.Time, scheduled bool) {
	s, err := Of(client.ObjectKeyFromObject(cluster), cluster.Spec.EtcdBackup)
	if s == nil && err == nil {
		return time.Time{}, false
	}
	last := Last(snapshots)
	switch {
	case last == nil:
		return time.Time{}, true
	case err != nil:
		return last.Spec.Contents.TakenTime.Time, true // Nothing comes after it.
	}
	return s.TooOldAfter(last.Spec.Contents.TakenTime.Time), true
}

func condition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.EtcdBackedUpCondition, Status: status, Reason: reason, Message: message}
}

// none is the condition of a cluster without any good snapshot.
func none(snapshots []v1alpha1.EtcdSnapshot) metav1.Condition {
	if trouble := failing(snapshots); trouble != "" {
		return condition(metav1.ConditionFalse, v1alpha1.EtcdBackupFailingReason, trouble)
	}
	return condition(metav1.ConditionUnknown, v1alpha1.EtcdBackupPendingReason, "no snapshot has been taken yet")
}

// failing says why snapshots are not taken, by the first of them that tells.
func failing(snapshots []v1alpha1.EtcdSnapshot) string {
	var first *v1alpha1.EtcdSnapshot
	for i := range snapshots {
		snapshot := &snapshots[i]
		fails := meta.IsStatusConditionFalse(snapshot.Status.Conditions, v1alpha1.SnapshotReadyCondition) && snapshot.DeletionTimestamp.IsZero()
		if fails && (first == nil || snapshot.Name < first.Name) {
			first = snapshot
		}
	}
	if first == nil {
		return ""
	}
	return first.Name + ": " + meta.FindStatusCondition(first.Status.Conditions, v1alpha1.SnapshotReadyCondition).Message
}
