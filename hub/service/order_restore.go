// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// safetySnapshots and integrities are what the definition of a TalosOperation lets through.
var (
	safetySnapshots = []v1alpha1.SafetySnapshot{v1alpha1.SafetySnapshotTake, v1alpha1.SafetySnapshotNone}
	integrities     = []v1alpha1.SnapshotIntegrity{v1alpha1.IntegrityHash, v1alpha1.IntegrityRawCopy}
)

// restoreOf are the parameters of an order to put a cluster back to a snapshot.
func restoreOf(order *pb.OperationOrder, kind v1alpha1.OperationKind) (*v1alpha1.EtcdRestoreParameters, error) {
	const field = "order.parameters.etcd_restore"
	restore := order.GetParameters().GetEtcdRestore()
	safety, integrity := v1alpha1.SafetySnapshot(restore.GetSafetySnapshot()), v1alpha1.SnapshotIntegrity(restore.GetIntegrity())
	name := restore.GetSnapshotName()
	switch problems := validation.IsDNS1123Subdomain(name); {
	case kind != v1alpha1.EtcdRestoreKind && restore == nil:
		return nil, nil
	case kind != v1alpha1.EtcdRestoreKind:
		return nil, &InvalidError{Field: field, Value: name, Allowed: "goes with kind etcd-restore only"}
	case len(problems) > 0:
		return nil, &InvalidError{Field: field + ".snapshot_name", Value: name, Allowed: "the name of an EtcdSnapshot: " + strings.Join(problems, "; ")}
	case !slices.Contains(safetySnapshots, safety):
		return nil, &InvalidError{Field: field + ".safety_snapshot", Value: restore.GetSafetySnapshot(), Allowed: "one of " + commas(safetySnapshots) + ": it has to be said"}
	case integrity != "" && !slices.Contains(integrities, integrity):
		return nil, &InvalidError{Field: field + ".integrity", Value: restore.GetIntegrity(), Allowed: "one of " + commas(integrities) + ", or nothing"}
	}
	return &v1alpha1.EtcdRestoreParameters{SnapshotName: name, SafetySnapshot: safety, Integrity: integrity}, nil
}

// restoreWords are the words of the command that puts a cluster back to a snapshot. The cluster is its argument.
func restoreWords(spec v1alpha1.TalosOperationSpec) []string {
	restore := spec.EtcdRestore
	words := []string{"cluster", "restore", spec.ClusterName, "--from", restore.SnapshotName}
	if restore.SafetySnapshot == v1alpha1.SafetySnapshotTake {
		words = append(words, "--safety-snapshot")
	} else {
		words = append(words, "--no-safety-snapshot")
	}
	if restore.TakesRawCopies() {
		words = append(words, "--raw-copy")
	}
	return words
}

// describeRestore says in words what a cluster is put back to.
func describeRestore(restore *v1alpha1.EtcdRestoreParameters) string {
	what := "snapshot " + restore.SnapshotName + ", keeping nothing of what runs"
	if restore.SafetySnapshot == v1alpha1.SafetySnapshotTake {
		what = "snapshot " + restore.SnapshotName + ", after a snapshot of what runs"
	}
	if restore.TakesRawCopies() {
		what += ", without a hash if need be"
	}
	return what
}
