// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

var (
	busy = sim.ClusterSpec{
		Name: "busy", ControlPlanes: 3, Workers: 2, TalosVersion: "v1.14.0", Extensions: []string{"tools"}, UserVolumes: []string{"data"}, SystemVolumes: []string{"ETCD"},
	}
	lone = sim.ClusterSpec{Name: "lone", ControlPlanes: 1, Workers: 1}
	pair = sim.ClusterSpec{Name: "pair", ControlPlanes: 2, Workers: 1}
)

var _ = Describe("Acting on single machines", Ordered, func() {
	var w *world
	var before uint64

	BeforeAll(func(ctx SpecContext) { w = install(ctx, busy, lone, pair) }, NodeTimeout(3*time.Minute))
	BeforeEach(func() { before = w.Fleet.Journal().Last() })

	// did are the calls of some methods that nodes have got since the spec began, in order.
	did := func(cluster string, methods ...string) []string {
		var list []string
		for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, After: before}) {
			if slices.Contains(methods, entry.Method) {
				list = append(list, strings.TrimPrefix(entry.Method, "MachineService/")+" "+entry.Node)
			}
		}
		return list
	}
	entry := func(cluster, node, method string) journal.Entry {
		GinkgoHelper()
		entries := w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, Node: node, Method: method, After: before})
		Expect(entries).NotTo(BeEmpty())
		return entries[0]
	}

	It("restarts services once, and names those that there are", func(ctx SpecContext) {
		for _, service := range []string{"kubelet", "ext-tools"} {
			w.ichor(ctx, 0, "node", "restart-service", "worker-1", "--cluster", "busy", "--service", service, "--follow", "--yes")
			Expect(entry("busy", "worker-1", "MachineService/ServiceRestart").Code).To(Equal("OK"))
		}
		Expect(did("busy", "MachineService/ServiceRestart")).To(Equal([]string{"ServiceRestart worker-1", "ServiceRestart worker-1"}))
		result := w.ichor(ctx, 3, "node", "restart-service", "worker-1", "--cluster", "busy", "--service", "ext-other", "--follow", "--yes")
		Expect(result.Err).To(ContainSubstring(`machine busy-worker-1 has no service "ext-other"; it has ext-tools, kubelet`))
		Expect(did("busy", "MachineService/ServiceRestart")).To(HaveLen(2))
		w.discard(ctx, "busy")
		Expect(w.ichor(ctx, 1, "node", "restart-service", "cp-1", "--cluster", "busy", "--service", "etcd", "--yes").Err).To(
			ContainSubstring("Talos restarts no others"))
	}, SpecTimeout(2*time.Minute))

	It("defragments every etcd member, the leader last, and takes the alarm back then", func(ctx SpecContext) {
		leader := w.Fleet.Cluster("busy").Leader().Name()
		id, err := w.Fleet.Inject(fault.Fault{Name: fault.EtcdAlarm, Cluster: "busy", Node: "cp-2"})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "node", "etcd-defrag", "--cluster", "busy", "--alarms", "disarm", "--follow", "--yes")
		calls := did("busy", "MachineService/EtcdDefragment", "MachineService/EtcdAlarmDisarm")
		Expect(calls).To(HaveLen(4))
		Expect(calls[:3]).To(ConsistOf("EtcdDefragment cp-1", "EtcdDefragment cp-2", "EtcdDefragment cp-3"))
		Expect(calls[2]).To(Equal("EtcdDefragment " + leader))
		Expect(calls[3]).To(HavePrefix("EtcdAlarmDisarm "))
		w.Fleet.Clear(id)

		result := w.ichor(ctx, 0, "node", "etcd-defrag", "cp-1", "--cluster", "lone", "--follow", "--yes")
		Expect(result.Err).To(ContainSubstring("answers nothing while it is defragmented"))
		Expect(did("lone", "MachineService/EtcdDefragment")).To(Equal([]string{"EtcdDefragment cp-1"}))
	}, SpecTimeout(2*time.Minute))

	It("moves the leadership, and has nothing to do where there is none", func(ctx SpecContext) {
		leader := w.Fleet.Cluster("busy").Leader().Name()
		w.ichor(ctx, 0, "node", "etcd-forfeit-leadership", leader, "--cluster", "busy", "--follow", "--yes")
		Expect(w.Fleet.Cluster("busy").Leader().Name()).NotTo(Equal(leader))
		w.ichor(ctx, 0, "node", "etcd-forfeit-leadership", leader, "--cluster", "busy", "--follow", "--yes")
		Expect(did("busy", "MachineService/EtcdForfeitLeadership")).To(Equal([]string{"EtcdForfeitLeadership " + leader}))
	}, SpecTimeout(2*time.Minute))

	It("reboots by force without a drain (D9)", func(ctx SpecContext) {
		result := w.ichor(ctx, 0, "node", "reboot", "worker-2", "--cluster", "busy", "--mode", "force", "--follow", "--yes")
		Expect(result.Err).To(ContainSubstring("no pod is evicted"))
		Expect(entry("busy", "worker-2", "MachineService/Reboot").Arguments).To(HaveKeyWithValue("mode", "FORCE"))
		Expect(did("busy", "kube PATCH nodes/worker-2")).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))

	It("shuts a machine down, which stays off and cordoned until it is given back (D1, D3)", func(ctx SpecContext) {
		Expect(w.ichor(ctx, 2, "node", "shutdown", "worker-2", "--cluster", "busy", "--yes").Err).To(ContainSubstring("--confirm busy-worker-2"))
		result := w.ichor(ctx, 0, "node", "shutdown", "worker-2", "--cluster", "busy", "--confirm", "busy-worker-2", "--follow")
		Expect(result.Err).To(ContainSubstring("kubectl uncordon worker-2"))
		Expect(entry("busy", "worker-2", "MachineService/Shutdown").Arguments).To(HaveKeyWithValue("force", "true"))
		Expect(did("busy", "MachineService/Shutdown", "event down")).To(Equal([]string{"Shutdown worker-2", "event down worker-2"}))
		Expect(w.kubernetesNode("busy", "worker-2").Spec.Unschedulable).To(BeTrue())

		w.Fleet.Cluster("busy").Node("worker-2").PowerOn()
		Eventually(func() bool { return w.Fleet.Cluster("busy").Node("worker-2").State().Ready }).WithContext(ctx).Should(BeTrue())
		Expect(w.kubernetesNode("busy", "worker-2").Spec.Unschedulable).To(BeTrue(), "it is theirs to give back who powered it on")
	}, SpecTimeout(2*time.Minute))

	It("wipes user volumes, and gives the machine back", func(ctx SpecContext) {
		result := w.ichor(ctx, 0, "node", "reset", "worker-1", "--cluster", "busy", "--wipe", "user-volumes", "--confirm", "busy-worker-1", "--follow",
			"--override", "WorkersAvailable=worker-2 is cordoned by the shutdown")
		Expect(result.Err).To(ContainSubstring("Lost for good: busy-worker-1: its user volumes"))
		Expect(entry("busy", "worker-1", "MachineService/Reset").Arguments).To(And(
			HaveKeyWithValue("mode", "USER_DISKS"), HaveKeyWithValue("disks", "/dev/vdb"), HaveKeyWithValue("partitions", ""), HaveKeyWithValue("reboot", "true")))
		Expect(w.kubernetesNode("busy", "worker-1").Spec.Unschedulable).To(BeFalse())
		Expect(did("busy", "MachineService/Reset")).To(HaveLen(1))
	}, SpecTimeout(2*time.Minute))

	It("resets a control plane: out of etcd first, then everything that makes it one of its cluster (B21, D14)", func(ctx SpecContext) {
		cluster := w.Fleet.Cluster("busy")
		result := w.ichor(ctx, 0, "node", "reset", "cp-2", "--cluster", "busy", "--confirm", "busy-cp-2", "--follow")
		Expect(result.Err).To(And(ContainSubstring("Lost for good: busy-cp-2: its etcd member"), ContainSubstring("kubectl delete talosmachine -n default busy-cp-2")))
		Expect(entry("busy", "cp-2", "MachineService/Reset").Arguments).To(And(
			HaveKeyWithValue("mode", "SYSTEM_DISK"), HaveKeyWithValue("partitions", "EPHEMERAL,ETCD,STATE"), HaveKeyWithValue("graceful", "false")))
		order := did("busy", "MachineService/EtcdLeaveCluster", "MachineService/Reset", "event maintenance")
		Expect(order).To(Equal([]string{"EtcdLeaveCluster cp-2", "Reset cp-2", "event maintenance cp-2"}))
		Expect(cluster.Node("cp-2").State().Maintenance).To(BeTrue())
		Expect(w.kubernetesNode("busy", "cp-2").Spec.Unschedulable).To(BeTrue())
		Eventually(func() string {
			return w.ichor(ctx, 1, "node", "shutdown", "lone-cp-1", "--cluster", "lone", "--confirm", "lone-cp-1").Err
		}).WithContext(ctx).Should(ContainSubstring("Quorum"))
	}, SpecTimeout(2*time.Minute))

	It("refuses what a cluster does not survive, by the plan and by the start (B1, B2)", func(ctx SpecContext) {
		for _, row := range []struct{ says, args string }{
			{"Quorum: lone-cp-1 is the only control plane of cluster lone: without it the cluster stops", "shutdown cp-1 --cluster lone --confirm lone-cp-1"},
			{"Quorum: lone-cp-1 is the only control plane of cluster lone: the cluster ends with it", "reset cp-1 --cluster lone --confirm lone-cp-1"},
			{"the cluster ends with it", "reset cp-1 --cluster lone --manner forced --confirm lone-cp-1"},
			{"EtcdMember: lone-cp-1 has the only etcd member", "etcd-forfeit-leadership cp-1 --cluster lone --yes"},
			{"etcd loses its quorum once either of them is off", "shutdown cp-2 --cluster pair --confirm pair-cp-2"},
			{"etcd loses its quorum without either of them", "reset cp-2 --cluster pair --confirm pair-cp-2"},
			{"etcd has no quorum while either of its members is defragmented", "etcd-defrag --cluster pair --yes"},
			{"etcd loses its quorum while either of them reboots", "reboot cp-1 --mode force --cluster pair --yes"},
			{"EtcdMember: pair-worker-1 is a worker", "etcd-defrag worker-1 --cluster pair --yes"},
		} {
			args := append([]string{"node"}, strings.Fields(row.args)...)
			Expect(w.ichor(ctx, 1, args...).Err).To(ContainSubstring(row.says), row.args)
		}
		Expect(did("lone", "MachineService/Shutdown", "MachineService/Reset", "MachineService/EtcdForfeitLeadership")).To(BeEmpty())
		Expect(did("pair", "MachineService/Shutdown", "MachineService/Reset", "MachineService/Reboot", "MachineService/EtcdDefragment")).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))
})

// kubernetesNode is a Node as etcd has it.
func (w *world) kubernetesNode(cluster, name string) *corev1.Node {
	GinkgoHelper()
	for _, node := range w.Fleet.Cluster(cluster).KubernetesNodes() {
		if node.Name == name {
			return node
		}
	}
	Fail("no Node " + name)
	return nil
}

// discard deletes what is not over on a cluster.
func (w *world) discard(ctx context.Context, cluster string) {
	GinkgoHelper()
	list := &v1alpha1.TalosOperationList{}
	Expect(w.client.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		if op := &list.Items[i]; op.Spec.ClusterName == cluster && !op.Completed() {
			w.ichor(ctx, 0, "operation", "delete", op.Name)
			Eventually(func() error { _, err := w.get(ctx, op)(); return err }).WithContext(ctx).ShouldNot(Succeed())
		}
	}
}
