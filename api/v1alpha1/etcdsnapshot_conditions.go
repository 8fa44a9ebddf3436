// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// EtcdSnapshot's Ready condition and corresponding reasons.
const (
	// SnapshotReadyCondition is True when the snapshot is stored and was read back as it was taken. It is Unknown until the first attempt is
	// over, and False while attempts fail; the hub goes on trying.
	SnapshotReadyCondition = "Ready"

	// SnapshotReadyReason surfaces when the snapshot is stored and was read back.
	SnapshotReadyReason = "Ready"

	// SnapshotTakingReason surfaces, with status Unknown, while the first attempt is under way.
	SnapshotTakingReason = "Taking"

	// SnapshotWaitingReason surfaces, with status Unknown, while other snapshots are taken and this one waits for its turn.
	SnapshotWaitingReason = "Waiting"

	// SnapshotNotConfiguredReason surfaces when the TalosCluster is missing, or says nothing of where snapshots are stored.
	SnapshotNotConfiguredReason = "NotConfigured"

	// SnapshotEtcdReason surfaces when no etcd member could send a snapshot.
	SnapshotEtcdReason = "EtcdNotAvailable"

	// SnapshotDamagedReason surfaces when what arrived, or what was read back, is not the snapshot that etcd made.
	SnapshotDamagedReason = "Damaged"

	// SnapshotStorageReason surfaces when the storage could not be opened, written to or read.
	SnapshotStorageReason = "StorageNotAvailable"

	// SnapshotDeletingReason surfaces when the object is being deleted and the stored snapshot could not be.
	SnapshotDeletingReason = "Deleting"
)

// TalosCluster's EtcdBackedUp condition and corresponding reasons.
const (
	// EtcdBackedUpCondition is True when the last good snapshot of etcd is as young as spec.etcdBackup.schedule asks for.
	EtcdBackedUpCondition = "EtcdBackedUp"

	// EtcdBackedUpReason surfaces when the last good snapshot is young enough.
	EtcdBackedUpReason = "BackedUp"

	// EtcdBackupNotConfiguredReason surfaces, with status Unknown, when spec.etcdBackup is unset: the hub knows of no snapshots.
	EtcdBackupNotConfiguredReason = "NotConfigured"

	// EtcdBackupInvalidReason surfaces when schedule or timeZone of spec.etcdBackup cannot be read.
	EtcdBackupInvalidReason = "Invalid"

	// EtcdBackupPendingReason surfaces, with status Unknown, until the first snapshot has been taken.
	EtcdBackupPendingReason = "NotYetTaken"

	// EtcdBackupFailingReason surfaces when there is no good snapshot, and taking one fails.
	EtcdBackupFailingReason = "Failing"

	// EtcdBackupTooOldReason surfaces when two runs of the schedule have passed since the last good snapshot.
	EtcdBackupTooOldReason = "TooOld"
)
