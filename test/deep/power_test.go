// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"

	"ichor.maesh.dev/hub/test/sim"
)

func TestDeepMachinesComeAndGo(t *testing.T) {
	g := NewWithT(t)
	o := options(t, t.TempDir(), sim.ClusterSpec{Name: "c", ControlPlanes: 3, Workers: 1})
	s := start(t, o)
	cluster := s.Cluster("c")
	k, api, ctx := kubeClient(t, cluster), talosClient(t, cluster), within(t)
	second := cluster.Node("cp-2")
	before, err := members(ctx, api, second)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(put(ctx, k, "first")).To(Succeed())

	boot := second.State().BootID
	g.Expect(api.Reboot(at(ctx, second))).To(Succeed())
	g.Eventually(ctx, second.State).WithPolling(poll).Should(And(HaveField("BootID", Not(Equal(boot))), HaveField("Ready", true)))
	g.Eventually(ctx, members).WithArguments(ctx, api, second).WithPolling(poll).Should(HaveKeyWithValue("cp-2",
		gstruct.PointTo(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{"Id": Equal(before["cp-2"].GetId())}))), "the same member")

	// One of three may be away, whoever it is.
	leader := cluster.Leader()
	leader.PowerOff()
	g.Eventually(ctx, func() *sim.Node { return cluster.Leader() }).WithPolling(poll).Should(And(Not(BeNil()), Not(Equal(leader))))
	g.Eventually(ctx, put).WithArguments(ctx, k, "second").WithPolling(poll).Should(Succeed())
	g.Eventually(ctx, readyNodes).WithArguments(ctx, k).WithPolling(poll).ShouldNot(ContainElement(leader.Name()))
	leader.PowerOn()
	g.Eventually(ctx, leader.State).WithPolling(poll).Should(HaveField("Ready", true))
	g.Eventually(ctx, readyNodes).WithArguments(ctx, k).WithPolling(poll).Should(ContainElement(leader.Name()))

	// What is killed is started again.
	pids := cluster.Processes("cp-1")
	g.Expect(pids).To(HaveLen(2))
	for _, pid := range pids {
		g.Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
	}
	g.Eventually(ctx, func() map[string]int { return cluster.Processes("cp-1") }).WithPolling(poll).Should(And(
		HaveKeyWithValue("etcd", Not(Equal(pids["etcd"]))), HaveKeyWithValue("kube-apiserver", Not(Equal(pids["kube-apiserver"])))))
	g.Eventually(ctx, voters).WithArguments(ctx, api, cluster.Node("cp-1")).WithPolling(poll).Should(HaveLen(3))

	s.Stop()
	again := start(t, o).Cluster("c")
	found, err := names(within(t), kubeClient(t, again))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(ConsistOf("first", "second"), "the disks outlast the simulator")
	g.Expect(voters(within(t), talosClient(t, again), again.Node("cp-1"))).To(HaveLen(3))
}
