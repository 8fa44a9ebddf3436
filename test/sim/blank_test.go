// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// pinned connects to a machine in maintenance mode whose certificate has a fingerprint.
func pinned(t *testing.T, node *sim.Node, fingerprint string) *client.Client {
	t.Helper()
	c, err := client.New(t.Context(), client.WithMaintenanceMode(node.Address(), []string{fingerprint}), client.WithGRPCDialOptions(impatient))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// configOf is the machine config of a node, as text, with a disk to install Talos on.
func configOf(t *testing.T, node *sim.Node) []byte {
	t.Helper()
	_, persistent := node.Config()
	whole, err := persistent.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		c.MachineConfig.MachineInstall.InstallDisk = "/dev/vda"
		return nil
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	data, err := whole.Bytes()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return data
}

// isReady says whether the cluster has a Node of that name that is Ready.
func isReady(c *sim.Cluster, name string) func() bool {
	return func() bool {
		return slices.ContainsFunc(c.KubernetesNodes(), func(n *corev1.Node) bool {
			return n.Name == name && n.Status.Conditions[0].Status == corev1.ConditionTrue
		})
	}
}

// A blank machine waits in maintenance mode. Whoever knows the fingerprint of its certificate gives it a config, with which it installs Talos,
// boots and joins: a control plane as a learner first.
func TestBlankMachinesJoin(t *testing.T) {
	g, ctx := NewWithT(t), within(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, BlankControlPlanes: 1, BlankWorkers: 1})
	c := s.Cluster("a")
	g.Expect(c.Nodes()).To(HaveLen(3))
	g.Expect(c.KubernetesNodes()).To(HaveLen(1), "the others belong to no cluster")
	for name, like := range map[string]string{"cp-2": "cp-1", "worker-1": ""} {
		node := c.Node(name)
		fingerprint, err := node.Fingerprint()
		g.Expect(err).NotTo(HaveOccurred())
		config := configOf(t, node)
		if like != "" {
			config = configOf(t, c.Node(like))
		}
		apply := &machine.ApplyConfigurationRequest{Data: config}

		_, err = pinned(t, node, "AAAA"+fingerprint[4:]).ApplyConfiguration(ctx, apply)
		g.Expect(err).To(HaveOccurred(), "another machine is not given the secrets of the cluster")
		open := pinned(t, node, fingerprint)
		g.Expect(uuidOf(ctx, open)()).To(Equal(node.UUID()))
		version, err := open.Version(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(version.GetMessages()[0].GetVersion().GetTag()).To(Equal(sim.DefaultTalosVersion))
		_, err = open.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: []byte("machine: {}"), DryRun: true})
		g.Expect(client.StatusCode(err)).To(Equal(codes.InvalidArgument))
		_, err = open.ApplyConfiguration(ctx, apply)
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(node.State).WithContext(ctx).Should(And(HaveField("Ready", true), HaveField("Maintenance", false)), name)
		g.Eventually(isReady(c, name)).WithContext(ctx).Should(BeTrue())
		_, err = node.Fingerprint()
		g.Expect(err).To(HaveOccurred())
	}
	members := s.Journal().Entries(journal.Filter{Cluster: "a", Node: "cp-2", Method: "event etcd-*"})
	g.Expect(members).To(HaveExactElements(HaveField("Method", "event "+etcd.LearnerEvent), HaveField("Method", "event "+etcd.VoterEvent)))
	talos := talosClient(t, c.Talosconfig())
	reply, err := talos.EtcdMemberList(client.WithNodes(ctx, c.Node("cp-2").Address()), &machine.EtcdMemberListRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reply.GetMessages()[0].GetMembers()).To(HaveLen(2))
}

// One that was reset keeps the Talos on its disk, and joins as another member than it was.
func TestResetMachineJoinsAgain(t *testing.T) {
	g, ctx := NewWithT(t), within(t)
	c := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3}).Cluster("a")
	node, talos := c.Node("cp-3"), talosClient(t, c.Talosconfig())
	config, before := configOf(t, node), node.State().BootID
	g.Expect(talos.EtcdLeaveCluster(client.WithNodes(ctx, node.Address()), &machine.EtcdLeaveClusterRequest{})).To(Succeed())
	g.Expect(talos.ResetGeneric(client.WithNodes(ctx, node.Address()), system("STATE", "EPHEMERAL"))).To(Succeed())
	g.Eventually(node.State).WithContext(ctx).Should(And(HaveField("Maintenance", true), HaveField("BootID", Not(Equal(before)))))
	fingerprint, err := node.Fingerprint()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = pinned(t, node, fingerprint).ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: config})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(node.State).WithContext(ctx).Should(HaveField("Ready", true))
	g.Eventually(isReady(c, "cp-3")).WithContext(ctx).Should(BeTrue())
}
