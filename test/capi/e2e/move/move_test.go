// SPDX-License-Identifier: Apache-2.0

package move_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	preDrain      = "pre-drain.delete.hook.machine.cluster.x-k8s.io/ichor"
	beforeUpgrade = "before-upgrade.hook.cluster.cluster.x-k8s.io/ichor"
	skip          = "cluster.x-k8s.io/skip-remediation"
)

var _ = Describe("A target with a finished operation", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		adopt(ctx, "finished")
		from.ichor(ctx, 0, "upgrade", "talos", "1.14.1", "--cluster", "finished", "-n", "finished", "--follow", "--yes")
	}, NodeTimeout(4*time.Minute))

	It("is described with the hub's condition", func(ctx SpecContext) {
		Eventually(condition(ctx, from, "finished", &clusterv1.Cluster{}, v1alpha1.TalosAvailableCondition)).WithContext(ctx).Should(HavePrefix("True Available"))
		out, err := clusterctl.Run(ctx, "describe", "cluster", "finished", "-n", "finished", "--show-conditions", "all", "--kubeconfig", from.Kubeconfig(), "--color=false")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`(?m)ichor\.maesh\.dev/TalosAvailable +True +Available`))
	}, SpecTimeout(5*time.Minute))

	It("is moved, and the operation does not run again", func(ctx SpecContext) {
		op := operationOn(ctx, from, "finished")
		mark := from.Fleet.Journal().Last()
		move(ctx, "finished")

		Expect(left(ctx, from, "finished")).To(BeEmpty())
		Eventually(condition(ctx, to, "finished", &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
		moved := operationOn(ctx, to, "finished")
		Expect(moved.Name).To(Equal(op.Name))
		Eventually(condition(ctx, to, "finished", moved, "Succeeded")).WithContext(ctx).Should(HavePrefix("True"))
		Expect(moved.Status.CompletionTime.Equal(&op.Status.CompletionTime)).To(BeTrue())
		Expect(reboots("finished", mark)).To(BeEmpty())
		Expect(from.Fleet.Journal().Entries(journal.Filter{Cluster: "finished", Method: invariant.InstallMethod, After: mark})).To(BeEmpty())

		Eventually(condition(ctx, to, "finished", &clusterv1.Cluster{}, v1alpha1.TalosAvailableCondition)).WithContext(ctx).Should(HavePrefix("True Available"))
		out, err := clusterctl.Run(ctx, "describe", "cluster", "finished", "-n", "finished", "--show-conditions", "all", "--kubeconfig", to.Kubeconfig(), "--color=false")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("ichor.maesh.dev/TalosAvailable"))
	}, SpecTimeout(5*time.Minute))

	It("is worked on where it is now", func(ctx SpecContext) {
		to.ichor(ctx, 0, "node", "reboot", "worker-1", "--cluster", "finished", "-n", "finished", "--follow", "--yes")
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("A target with a running operation", Ordered, func() {
	var mark uint64

	BeforeAll(func(ctx SpecContext) { adopt(ctx, "running") }, NodeTimeout(4*time.Minute))

	It("is moved when the machine in hand has settled, and says that it does not know what was done", func(ctx SpecContext) {
		mark = from.Fleet.Journal().Last()
		from.ichor(ctx, 0, "upgrade", "talos", "1.14.1", "--cluster", "running", "-n", "running", "--yes")
		_, err := from.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "running", Node: "worker-1", Method: invariant.DownEvent, After: mark})
		Expect(err).NotTo(HaveOccurred())
		worker := from.Fleet.Cluster("running").Node("worker-1")
		worker.PowerOff() // It does not come back until the move waits for it.
		moved := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(moved)
			move(ctx, "running")
		}()
		key, cluster, talos := client.ObjectKey{Namespace: "running", Name: "running"}, &clusterv1.Cluster{}, &v1alpha1.TalosCluster{}
		Eventually(func() *bool {
			Expect(from.client.Get(ctx, key, cluster)).To(Succeed())
			return cluster.Spec.Paused
		}).WithContext(ctx).Should(HaveValue(BeTrue()))
		Expect(from.client.Get(ctx, key, talos)).To(Succeed())
		Expect(talos.Annotations).To(HaveKey(v1alpha1.BlockMoveAnnotation))
		worker.PowerOn()
		Eventually(moved).WithContext(ctx).WithTimeout(5 * time.Minute).Should(BeClosed())

		Expect(left(ctx, from, "running")).To(BeEmpty())
		Expect(reboots("running", mark)).To(Equal([]string{"cp-1", "worker-1"}), "the machine in hand, to its end")
		op := operationOn(ctx, to, "running")
		Eventually(condition(ctx, to, "running", op, "Paused")).WithContext(ctx).Should(HavePrefix("True StatusLost"))
		Expect(reboots("running", mark)).To(HaveLen(2))
	}, SpecTimeout(6*time.Minute))

	It("goes on there when it is told to, and does nothing twice", func(ctx SpecContext) {
		op := operationOn(ctx, to, "running")
		to.ichor(ctx, 0, "operation", "resume", op.Name, "-n", "running")
		Eventually(condition(ctx, to, "running", op, "Succeeded")).WithContext(ctx).WithTimeout(2 * time.Minute).Should(HavePrefix("True"))
		Expect(reboots("running", mark)).To(ConsistOf("cp-1", "worker-1", "worker-2", "worker-3"), "every machine once")
		for _, node := range from.Fleet.Cluster("running").Nodes() {
			Expect(node.State().Running.Version).To(Equal("v1.14.1"))
		}
	}, SpecTimeout(5*time.Minute))

	It("leaves nothing of what it put on Cluster API's objects but the hook of control planes", func(ctx SpecContext) {
		cluster, talos := &clusterv1.Cluster{}, &v1alpha1.TalosCluster{}
		key := client.ObjectKey{Namespace: "running", Name: "running"}
		Eventually(func(g Gomega) {
			g.Expect(to.client.Get(ctx, key, cluster)).To(Succeed())
			g.Expect(to.client.Get(ctx, key, talos)).To(Succeed())
			g.Expect(cluster.Annotations).NotTo(HaveKey(beforeUpgrade))
			g.Expect(talos.Annotations).NotTo(HaveKey(v1alpha1.BlockMoveAnnotation))
			list := &clusterv1.MachineList{}
			g.Expect(to.client.List(ctx, list, client.InNamespace("running"))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(4))
			for _, machine := range list.Items {
				_, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
				_, held := machine.Annotations[preDrain]
				g.Expect(held).To(Equal(controlPlane), machine.Name)
				g.Expect(machine.Annotations).NotTo(HaveKey(skip))
			}
		}).WithContext(ctx).WithTimeout(3 * time.Minute).Should(Succeed())
	}, SpecTimeout(6*time.Minute))
})
