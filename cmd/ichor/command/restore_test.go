// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Nobody puts a cluster back without a word about the safety snapshot, nor without the name of the cluster.
func TestClusterRestore(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, &pb.Plan{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_ETCD_RESTORE, Effect: pb.Effect_EFFECT_RESTORE,
		Confirmation: pb.Confirmation_CONFIRMATION_NAME, Losses: []string{"whatever was written since"},
		Stages: []*pb.PlanStage{{Name: "Check"}, {Name: "Wipe", Disruptive: true}},
	})
	for _, row := range []struct {
		args []string
		says string
	}{
		{[]string{"--safety-snapshot"}, "--from SNAPSHOT"},
		{[]string{"--from", "s1"}, "either --safety-snapshot or --no-safety-snapshot"},
		{[]string{"--from", "s1", "--safety-snapshot", "--no-safety-snapshot"}, "either --safety-snapshot or --no-safety-snapshot"},
	} {
		r := u.ichor(with([]string{"cluster", "restore", "prod-1"}, row.args...)...)
		g.Expect(r.Code).To(Equal(2))
		g.Expect(r.Err).To(ContainSubstring(row.says))
	}
	g.Expect(of[*pb.PlanOperationRequest](h)).To(BeEmpty(), "nothing is asked before the command line is right")
	r := u.ichor("cluster", "restore", "prod-1", "--from", "s1", "--safety-snapshot", "--yes")
	g.Expect(r.Code).To(Equal(2))
	g.Expect(r.Err).To(And(
		ContainSubstring("put the whole cluster back to snapshot s1; etcd goes back to a snapshot"), ContainSubstring("whatever was written since"),
		ContainSubstring("add --confirm prod-1")))
	g.Expect(u.ichor("cluster", "restore", "prod-1", "--from", "s1", "--safety-snapshot", "--confirm", "prod-2").Code).To(Equal(2))
	g.Expect(of[*pb.CreateOperationRequest](h)).To(BeEmpty())

	r = u.ichor("cluster", "restore", "prod-1", "--from", "s1", "--no-safety-snapshot", "--raw-copy", "--confirm", "prod-1")
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(of[*pb.CreateOperationRequest](h)[0].GetOrder()).To(BeComparableTo(&pb.OperationOrder{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_ETCD_RESTORE,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_EtcdRestore{EtcdRestore: &pb.EtcdRestoreParameters{
			SnapshotName: "s1", SafetySnapshot: "None", Integrity: "RawCopy",
		}}},
	}, protoEqual))
	r = u.ichor("operation", "plan", "restore", "prod-1", "--from", "s1", "--safety-snapshot")
	g.Expect(r.Code).To(BeZero(), r.Err)
}
