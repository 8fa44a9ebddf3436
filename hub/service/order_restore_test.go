// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// An order names the field, what it has, and what is allowed.
func TestRestoreOf(t *testing.T) {
	const field = "order.parameters.etcd_restore"
	for name, row := range map[string]struct {
		kind   v1alpha1.OperationKind
		asked  *pb.EtcdRestoreParameters
		want   *v1alpha1.EtcdRestoreParameters
		refuse string
	}{
		"all":            {"etcd-restore", &pb.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "Take", Integrity: "RawCopy"}, &v1alpha1.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "Take", Integrity: "RawCopy"}, ""},
		"what has to be": {"etcd-restore", &pb.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "None"}, &v1alpha1.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "None"}, ""},
		"another kind":   {"talos", nil, nil, ""},
		"a kind that takes none": {"talos", &pb.EtcdRestoreParameters{SnapshotName: "s1"}, nil,
			field + ` "s1": goes with kind etcd-restore only`},
		"nothing said":   {"etcd-restore", &pb.EtcdRestoreParameters{SnapshotName: "s1"}, nil, field + `.safety_snapshot is missing: one of Take, None: it has to be said`},
		"something else": {"etcd-restore", &pb.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "take"}, nil, field + `.safety_snapshot "take": one of Take, None: it has to be said`},
		"no hash":        {"etcd-restore", &pb.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "None", Integrity: "x"}, nil, field + `.integrity "x": one of Hash, RawCopy, or nothing`},
		"no name":        {"etcd-restore", &pb.EtcdRestoreParameters{SafetySnapshot: "None"}, nil, field + `.snapshot_name is missing: the name of an EtcdSnapshot: `},
		"no such name":   {"etcd-restore", &pb.EtcdRestoreParameters{SnapshotName: "S/1", SafetySnapshot: "None"}, nil, field + `.snapshot_name "S/1": the name of an EtcdSnapshot: `},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			order := &pb.OperationOrder{}
			if row.asked != nil {
				order.Parameters = &pb.OperationParameters{Parameters: &pb.OperationParameters_EtcdRestore{EtcdRestore: row.asked}}
			}
			got, err := restoreOf(order, row.kind)
			if row.refuse != "" {
				g.Expect(err).To(MatchError(HavePrefix(row.refuse)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(row.want))
		})
	}
}

func TestRestoreInWords(t *testing.T) {
	g := NewWithT(t)
	spec := v1alpha1.TalosOperationSpec{Kind: "etcd-restore", ClusterName: "c1", EtcdRestore: &v1alpha1.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "Take", Integrity: "RawCopy"}}
	g.Expect(describeOrder(spec, v1alpha1.OperationTarget{})).To(Equal(
		"kind etcd-restore on cluster c1: snapshot s1, after a snapshot of what runs, without a hash if need be"))
	spec.EtcdRestore = &v1alpha1.EtcdRestoreParameters{SnapshotName: "s1", SafetySnapshot: "None"}
	g.Expect(describeOrder(spec, v1alpha1.OperationTarget{})).To(Equal("kind etcd-restore on cluster c1: snapshot s1, keeping nothing of what runs"))
}
