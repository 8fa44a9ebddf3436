// SPDX-License-Identifier: Apache-2.0

package table

import (
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// shutdown stops or starts the cluster.
func shutdown(action, snapshot string) *pb.OperationOrder {
	return &pb.OperationOrder{
		Cluster: ref(Cluster), Kind: pb.OperationKind_OPERATION_KIND_SHUTDOWN,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_Shutdown{Shutdown: &pb.ShutdownParameters{Action: action, Snapshot: snapshot}}},
	}
}

// stopped is a cluster that was stopped on purpose.
func stopped() *v1alpha1.TalosCluster {
	return cluster(func(c *v1alpha1.TalosCluster) {
		c.Annotations = map[string]string{
			v1alpha1.PowerAnnotation: "Stopped", v1alpha1.StoppedByAnnotation: "default/c1-shutdown-x", v1alpha1.StoppedAtAnnotation: "2026-01-02T03:04:05Z",
		}
		c.Status.Conditions = []metav1.Condition{{Type: "Available", Status: "False", Reason: "Stopped", LastTransitionTime: metav1.NewTime(now)}}
	})
}

// powerPlans are plans of stops and starts, and what becomes of others on a cluster that was stopped.
func powerPlans() []Row {
	return []Row{
		{
			Name: "plan/a stop", Call: plan(shutdown("Stop", "None")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_STOP))
				g.Expect(p.GetConfirmation()).To(gomega.Equal(pb.Confirmation_CONFIRMATION_NAME))
				g.Expect(groupsOf(p.GetStages()[1])).To(gomega.Equal("c1-w-1 c1-w-2"))
				g.Expect(groupsOf(p.GetStages()[3])).To(gomega.Equal("c1-cp-2 | c1-cp-3 | c1-cp-1"))
				g.Expect(p.GetStages()[3].GetGroups()[0].GetMachines()[0].GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_STOP))
				g.Expect(warningsOf(p)).To(gomega.Equal([]string{"Outage", "NoSnapshot"}))
				g.Expect(p.GetLiveGates()).NotTo(gomega.ContainElements("ControlPlaneTransitioning", "WorkersAvailable"))
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor cluster shutdown c1 --no-snapshot --namespace default"))
			},
		},
		{
			Name: "plan/a stop with a snapshot that nobody stores", Call: plan(shutdown("Stop", "Take")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()[0].GetGate()).To(gomega.Equal("SnapshotStorage"))
				g.Expect(planOf(answer).GetRefusals()[0].GetHelp()).To(gomega.ContainSubstring("--no-snapshot"))
				g.Expect(planOf(answer).GetCommand()).To(gomega.Equal("ichor cluster shutdown c1 --snapshot --namespace default"))
			},
		},
		{
			Name: "plan/a start", Given: given(stopped()), Call: plan(shutdown("Start", "")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetWarnings()).To(gomega.BeEmpty())
				g.Expect(p.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_NONE))
				g.Expect(p.GetConfirmation()).To(gomega.Equal(pb.Confirmation_CONFIRMATION_YES))
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor cluster start c1 --namespace default"))
			},
		},
		{
			Name: "plan/a start of what runs", Call: plan(shutdown("Start", "")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()[0].GetGate()).To(gomega.Equal("ClusterStopped"))
			},
		},
		{
			Name: "plan/an upgrade of what was stopped", Given: given(stopped()), Call: plan(upgrade()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				refusal := planOf(answer).GetRefusals()[0]
				g.Expect(refusal.GetGate()).To(gomega.Equal("ClusterRunning"))
				g.Expect(refusal.GetMessage()).To(gomega.Equal(`cluster c1 was stopped on purpose by TalosOperation "default/c1-shutdown-x" at 2026-01-02T03:04:05Z`))
				g.Expect(refusal.GetHelp()).To(gomega.Equal("power its machines on, then: ichor cluster start c1"))
			},
		},
	}
}
