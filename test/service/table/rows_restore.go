// SPDX-License-Identifier: Apache-2.0

package table

import (
	"strings"

	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// restores puts the cluster back to snapshot s1.
func restores(safety, integrity string) *pb.OperationOrder {
	return &pb.OperationOrder{
		Cluster: ref(Cluster), Kind: pb.OperationKind_OPERATION_KIND_ETCD_RESTORE,
		Parameters: &pb.OperationParameters{Parameters: &pb.OperationParameters_EtcdRestore{EtcdRestore: &pb.EtcdRestoreParameters{
			SnapshotName: "s1", SafetySnapshot: safety, Integrity: integrity,
		}}},
	}
}

// StoredSnapshot is a snapshot of the cluster, of so many bytes.
func StoredSnapshot(size int64) *v1alpha1.EtcdSnapshot {
	hash := strings.Repeat("a", 64)
	return &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "s1"},
		Spec: v1alpha1.EtcdSnapshotSpec{ClusterName: Cluster, Reason: v1alpha1.SnapshotManual, Contents: &v1alpha1.SnapshotContents{
			TakenTime: metav1.NewTime(now), SizeBytes: size, Hash: hash, Revision: 1234, Machine: "c1-cp-2", Members: 3, EtcdVersion: "3.6.4", TalosVersion: running,
			Keys:     v1alpha1.SnapshotKeys{KubernetesCA: hash, ServiceAccount: hash},
			Location: v1alpha1.SnapshotLocation{BucketURL: "s3://b", Key: "k", SizeBytes: size, Hash: hash},
		}},
	}
}

// restorePlans are plans of restores.
func restorePlans() []Row {
	const whole, raw = 5*512 + 32, 5 * 512
	return []Row{
		{
			Name: "plan/a restore", Given: given(StoredSnapshot(whole)), Call: plan(restores("None", "")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_RESTORE))
				g.Expect(p.GetConfirmation()).To(gomega.Equal(pb.Confirmation_CONFIRMATION_NAME))
				g.Expect(groupsOf(p.GetStages()[1])).To(gomega.Equal("c1-cp-1 c1-cp-2 c1-cp-3"))
				g.Expect(groupsOf(p.GetStages()[2])).To(gomega.Equal("c1-cp-1"))
				g.Expect(groupsOf(p.GetStages()[3])).To(gomega.Equal("c1-cp-2 | c1-cp-3"))
				g.Expect(groupsOf(p.GetStages()[4])).To(gomega.Equal("c1-w-1 c1-w-2"))
				g.Expect(p.GetStages()[4].GetGroups()[0].GetMachines()[0].GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_RESTART_COMPONENTS))
				g.Expect(warningsOf(p)).To(gomega.Equal([]string{"Outage", "Rewinds", "NoSnapshot"}))
				g.Expect(p.GetLosses()).To(gomega.ContainElement("whatever was written to the Kubernetes API since 2026-01-02T03:04:05Z (revision 1234 of etcd)"))
				g.Expect(p.GetLiveGates()).To(gomega.Equal([]string{"TargetOwned", "MachinesDiscovered"}))
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor cluster restore c1 --from s1 --no-safety-snapshot --namespace default"))
			},
		},
		{
			Name: "plan/a restore with a snapshot that nobody stores", Given: given(StoredSnapshot(whole)), Call: plan(restores("Take", "")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()[0].GetGate()).To(gomega.Equal("SnapshotStorage"))
				g.Expect(planOf(answer).GetCommand()).To(gomega.Equal("ichor cluster restore c1 --from s1 --safety-snapshot --namespace default"))
			},
		},
		{
			Name: "plan/a restore of nothing", Call: plan(restores("None", "")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()[0].GetGate()).To(gomega.Equal("SnapshotUsable"))
			},
		},
		{
			Name: "plan/a restore of a raw copy", Given: given(StoredSnapshot(raw)), Call: plan(restores("None", "")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()[0].GetHelp()).To(gomega.ContainSubstring("--raw-copy"))
			},
		},
		{
			Name: "plan/a restore of a raw copy, on somebody's word", Given: given(StoredSnapshot(raw)), Call: plan(restores("None", "RawCopy")),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()).To(gomega.BeEmpty())
				g.Expect(warningsOf(planOf(answer))).To(gomega.ContainElement("RawCopy"))
				g.Expect(planOf(answer).GetCommand()).To(gomega.ContainSubstring("--raw-copy"))
			},
		},
	}
}
