// SPDX-License-Identifier: Apache-2.0

package render

import (
	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

var snapshotReasons = map[v1alpha1.SnapshotReason]pb.SnapshotReason{
	v1alpha1.SnapshotManual:    pb.SnapshotReason_SNAPSHOT_REASON_MANUAL,
	v1alpha1.SnapshotScheduled: pb.SnapshotReason_SNAPSHOT_REASON_SCHEDULED,
	v1alpha1.SnapshotUpgrade:   pb.SnapshotReason_SNAPSHOT_REASON_UPGRADE,
	v1alpha1.SnapshotShutdown:  pb.SnapshotReason_SNAPSHOT_REASON_SHUTDOWN,
	v1alpha1.SnapshotRotation:  pb.SnapshotReason_SNAPSHOT_REASON_ROTATION,
	v1alpha1.SnapshotRestore:   pb.SnapshotReason_SNAPSHOT_REASON_RESTORE,
}

// Snapshot renders a snapshot.
func Snapshot(snapshot *v1alpha1.EtcdSnapshot) *pb.Snapshot {
	return &pb.Snapshot{
		Ref:            Reference(snapshot.Namespace, snapshot.Name),
		Cluster:        Reference(snapshot.Namespace, snapshot.Spec.ClusterName),
		Reason:         snapshotReasons[snapshot.Spec.Reason],
		Requester:      snapshot.Spec.Requester,
		CreateTime:     Time(snapshot.CreationTimestamp),
		ScheduledTime:  Time(snapshot.Spec.ScheduledTime),
		Conditions:     Conditions(snapshot.Status.Conditions),
		FailedAttempts: snapshot.Status.Attempts,
		Retained:       snapshot.Retained(),
		Deleting:       !snapshot.DeletionTimestamp.IsZero(),
		Contents:       snapshotContents(snapshot.Spec.Contents),
	}
}

func snapshotContents(c *v1alpha1.SnapshotContents) *pb.SnapshotContents {
	if c == nil {
		return nil
	}
	rendered := &pb.SnapshotContents{
		TakenTime: Time(c.TakenTime), BucketUrl: c.Location.BucketURL, Key: c.Location.Key,
		StoredBytes: c.Location.SizeBytes, StoredSha256: c.Location.Hash,
		SizeBytes: c.SizeBytes, Sha256: c.Hash, Revision: c.Revision, Machine: c.Machine, Members: c.Members,
		EtcdVersion: c.EtcdVersion, TalosVersion: c.TalosVersion, KubernetesVersion: c.KubernetesVersion,
		Keys: &pb.SnapshotKeys{KubernetesCa: c.Keys.KubernetesCA, ServiceAccount: c.Keys.ServiceAccount},
	}
	for _, key := range c.Keys.Encryption {
		rendered.Keys.Encryption = append(rendered.Keys.Encryption, &pb.SnapshotKeys_EncryptionKey{Provider: key.Provider, Fingerprint: key.Fingerprint})
	}
	if c.Encryption != nil {
		rendered.Recipient = c.Encryption.Recipient
	}
	return rendered
}
