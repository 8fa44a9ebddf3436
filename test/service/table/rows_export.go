// SPDX-License-Identifier: Apache-2.0

package table

import (
	"context"

	"connectrpc.com/connect"
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// exportCluster asks for the files of a cluster.
func exportCluster(ref *pb.Reference) func(context.Context, Clients) (proto.Message, error) {
	return func(ctx context.Context, c Clients) (proto.Message, error) {
		return unwrap(c.Clusters.ExportCluster(ctx, connect.NewRequest(&pb.ExportClusterRequest{Cluster: ref})))
	}
}

// exports are clusters as files for Git. What is in the files is told by their own tests.
func exports() []Row {
	paths := func(g gomega.Gomega, answer proto.Message, want ...string) {
		var got []string
		for _, file := range answer.(*pb.ExportClusterResponse).GetFiles() {
			got = append(got, file.GetPath())
		}
		g.Expect(got).To(gomega.Equal(want))
	}
	return []Row{
		{
			Name: "export/a cluster", Call: exportCluster(ref(Cluster)),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				paths(g, answer, "default/c1/taloscluster.yaml", "default/c1/machines.yaml", "default/c1/kustomization.yaml")
				g.Expect(answer.(*pb.ExportClusterResponse).GetRemarks()).To(gomega.Equal([]string{
					"there is no Cluster default/c1: only the hub's own objects are written",
				}))
			},
		},
		{
			Name: "export/a machine that waits for its approval", Call: exportCluster(ref(Cluster)),
			Given: given(machine("c1-w-1", func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending })),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(answer.(*pb.ExportClusterResponse).GetRemarks()).To(gomega.ContainElement(
					"machine c1-w-1 is left out until it is approved: ichor machine approve c1-w-1"))
			},
		},
		{
			Name: "export/nobody", Call: exportCluster(ref("c9")), Code: connect.CodeNotFound,
			Message: `there is no cluster "c9" in namespace "default"; list them with: ichor cluster list`,
		},
		invalid("export/nothing", "cluster.namespace is missing: the namespace of the object", exportCluster(nil)),
	}
}
