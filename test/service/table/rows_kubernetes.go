// SPDX-License-Identifier: Apache-2.0

package table

import (
	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

const (
	runningKubernetes = "v1.35.2"
	wantedKubernetes  = "v1.36.1"
)

// upgradeKubernetes orders Kubernetes v1.36.1 for cluster c1.
func upgradeKubernetes(change ...func(*pb.OperationOrder)) *pb.OperationOrder {
	order := &pb.OperationOrder{
		Cluster: ref(Cluster), Kind: pb.OperationKind_OPERATION_KIND_KUBERNETES, Target: &pb.OperationTarget{KubernetesVersion: wantedKubernetes},
	}
	for _, c := range change {
		c(order)
	}
	return order
}

func toKubernetes(version string) func(*pb.OperationOrder) {
	return func(o *pb.OperationOrder) { o.Target = &pb.OperationTarget{KubernetesVersion: version} }
}

// serves makes the cluster run a version of Kubernetes.
func serves(running string) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) { c.Status.KubernetesVersion = running }
}

// kubernetes are the rows about upgrades of Kubernetes. Cases F5 and F6 are among them.
func kubernetes() []Row {
	const path = "KubernetesVersionPath"
	classy := func(c *clusterv1.Cluster) {
		c.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "big"}, Version: runningKubernetes}
	}
	return []Row{
		{
			Name: "kubernetes/a plan", Given: given(cluster(serves(runningKubernetes))),
			Call: plan(upgradeKubernetes(toKubernetes("1.36.1"), func(o *pb.OperationOrder) { o.MaxUnavailable = "2" })),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetRefusals()).To(gomega.BeEmpty())
				g.Expect(p.GetEffect()).To(gomega.Equal(pb.Effect_EFFECT_RESTART_COMPONENTS))
				g.Expect(p.GetConfirmation()).To(gomega.Equal(pb.Confirmation_CONFIRMATION_YES))
				var stages []string
				for _, stage := range p.GetStages() {
					stages = append(stages, stage.GetName()+": "+groupsOf(stage))
				}
				g.Expect(stages).To(gomega.Equal([]string{
					"Check: ", "PrePull: c1-cp-2 c1-cp-3 c1-cp-1 c1-w-1 c1-w-2", "APIServer: c1-cp-2 | c1-cp-3 | c1-cp-1", "ControllerManager: c1-cp-2 | c1-cp-3 | c1-cp-1",
					"Scheduler: c1-cp-2 | c1-cp-3 | c1-cp-1", "ProxyConfig: c1-cp-2 | c1-cp-3 | c1-cp-1", "Kubelets: c1-cp-2 | c1-cp-3 | c1-cp-1 | c1-w-1 c1-w-2", "Manifests: ",
				}))
				g.Expect(warningsOf(p)).To(gomega.ContainElement("NoSnapshot"))
				g.Expect(p.GetTarget().GetKubernetesVersion()).To(gomega.Equal(wantedKubernetes), "F5: with and without its v")
				g.Expect(p.GetWritesSpec()).To(gomega.BeTrue())
				g.Expect(p.GetCommand()).To(gomega.Equal("ichor upgrade kubernetes v1.36.1 --namespace default --cluster c1 --max-unavailable 2"))
				g.Expect(p.GetLiveGates()).To(gomega.And(gomega.ContainElements("EtcdHealthy", "WorkersAvailable"), gomega.Not(gomega.ContainElement("ControlPlaneTransitioning"))))
			},
		},
		{
			Name: "kubernetes/a plan of a cluster that is backed up", Given: given(cluster(func(c *v1alpha1.TalosCluster) {
				c.Status.KubernetesVersion = runningKubernetes
				c.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "s3://backups?region=r"}
			})), Call: plan(upgradeKubernetes()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				p := planOf(answer)
				g.Expect(p.GetStages()[2].GetName()).To(gomega.Equal("Snapshot"))
				g.Expect(p.GetStages()[3].GetName()).To(gomega.Equal("APIServer"))
				g.Expect(warningsOf(p)).NotTo(gomega.ContainElement("NoSnapshot"))
			},
		},
		{
			Name: "kubernetes/a start writes the spec first", Given: given(cluster(serves(runningKubernetes))), Call: create(upgradeKubernetes()),
			Writes: []string{"dry-run create TalosOperation", "apply TalosCluster", "create TalosOperation"},
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				made := answer.(*pb.CreateOperationResponse)
				g.Expect(made.GetWroteSpec()).To(gomega.BeTrue())
				g.Expect(made.GetOperation().GetKind()).To(gomega.Equal(pb.OperationKind_OPERATION_KIND_KUBERNETES))
			},
		},
		invalid("kubernetes/no patch level (F6)", `order.target.kubernetes_version "1.36": version "1.36" has no patch level: did you mean 1.36.0?`, plan(upgradeKubernetes(toKubernetes("1.36")))),
		invalid("kubernetes/what the kind does not bring", `order.target "talos_version v1.14.1": kind kubernetes brings kubernetes_version and nothing else`, plan(upgradeKubernetes(to(wanted)))),
		refusedKubernetes("a minor left out (C16)", path, "skips v1.35", upgradeKubernetes(), serves("v1.34.1")),
		refusedKubernetes("a downgrade", path, "v1.35.1", upgradeKubernetes(toKubernetes("v1.35.1")), serves(runningKubernetes)),
		refusedKubernetes("not known yet (F8)", path, "this hub knows Kubernetes up to", upgradeKubernetes(toKubernetes("v1.99.0")), serves(runningKubernetes)),
		{
			Name: "kubernetes/a version that a topology says", Given: given(own(classy), cluster(serves(runningKubernetes))), Call: plan(upgradeKubernetes()),
			Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
				g.Expect(planOf(answer).GetRefusals()).To(gomega.HaveLen(1))
				g.Expect(planOf(answer).GetRefusals()[0]).To(gomega.And(
					gomega.HaveField("Gate", "KubernetesVersionOwned"),
					gomega.HaveField("Help", gomega.ContainSubstring(`kubectl patch cluster c1 -n default --type merge -p '{"spec":{"topology":{"version":"v1.36.1"}}}'`)),
				))
			},
		},
	}
}

// refusedKubernetes is a plan that refuses.
func refusedKubernetes(name, gate, message string, order *pb.OperationOrder, runs func(*v1alpha1.TalosCluster)) Row {
	return Row{
		Name: "kubernetes/" + name, Given: given(cluster(runs)), Call: plan(order),
		Check: func(g gomega.Gomega, answer proto.Message, _ *World) {
			g.Expect(planOf(answer).GetRefusals()).To(gomega.ContainElement(gomega.And(
				gomega.HaveField("Gate", gate), gomega.HaveField("Message", gomega.ContainSubstring(message)), gomega.HaveField("Help", gomega.Not(gomega.BeEmpty())))))
		},
	}
}
