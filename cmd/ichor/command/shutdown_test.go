// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

func stopPlan() *pb.Plan {
	return &pb.Plan{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_SHUTDOWN, Effect: pb.Effect_EFFECT_STOP,
		Confirmation: pb.Confirmation_CONFIRMATION_NAME,
		Stages:       []*pb.PlanStage{{Name: "Cordon"}, {Name: "ControlPlanes", Disruptive: true}},
	}
}

// Nobody stops a cluster without a word about the snapshot, nor without the name of the cluster.
func TestClusterShutdown(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, stopPlan())
	for _, args := range [][]string{nil, {"--snapshot", "--no-snapshot"}} {
		r := u.ichor(with([]string{"cluster", "shutdown", "prod-1"}, args...)...)
		g.Expect(r.Code).To(Equal(2))
		g.Expect(r.Err).To(ContainSubstring("either --snapshot or --no-snapshot"))
	}
	g.Expect(of[*pb.PlanOperationRequest](h)).To(BeEmpty(), "nothing is asked before the command line is right")
	r := u.ichor("cluster", "shutdown", "prod-1", "--no-snapshot", "--yes")
	g.Expect(r.Code).To(Equal(2))
	g.Expect(r.Err).To(And(ContainSubstring("stop the whole cluster; machines stop"), ContainSubstring("add --confirm prod-1")))
	g.Expect(u.ichor("cluster", "shutdown", "prod-1", "--no-snapshot", "--confirm", "prod-2").Code).To(Equal(2))
	g.Expect(of[*pb.CreateOperationRequest](h)).To(BeEmpty())

	r = u.ichor("cluster", "shutdown", "prod-1", "--no-snapshot", "--max-unavailable", "50%", "--confirm", "prod-1")
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(of[*pb.CreateOperationRequest](h)[0].GetOrder()).To(BeComparableTo(&pb.OperationOrder{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_SHUTDOWN, MaxUnavailable: "50%",
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Shutdown{Shutdown: &pb.ShutdownParameters{Action: "Stop", Snapshot: "None"}}},
	}, protoEqual))
	u.ichor("cluster", "shutdown", "prod-1", "--snapshot", "--confirm", "prod-1")
	g.Expect(of[*pb.CreateOperationRequest](h)[1].GetOrder().GetParameters().GetShutdown().GetSnapshot()).To(Equal("Take"))
}

func TestClusterStart(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, &pb.Plan{
		Cluster: ref("default", "prod-1"), Kind: pb.OperationKind_OPERATION_KIND_SHUTDOWN, Effect: pb.Effect_EFFECT_NONE, Confirmation: pb.Confirmation_CONFIRMATION_YES,
	})
	r := u.ichor("cluster", "start", "prod-1", "--yes")
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Err).To(ContainSubstring("start the whole cluster"))
	g.Expect(of[*pb.CreateOperationRequest](h)[0].GetOrder().GetParameters().GetShutdown()).To(BeComparableTo(&pb.ShutdownParameters{Action: "Start"}, protoEqual))
	r = u.ichor("operation", "plan", "start", "prod-1")
	g.Expect(r.Code).To(BeZero(), r.Err)
}
