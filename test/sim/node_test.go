// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// insecure connects as to a machine that has no machine config.
func insecure(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.New(t.Context(), client.WithMaintenanceMode(address, nil), client.WithGRPCDialOptions(impatient))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func uuidOf(ctx context.Context, c *client.Client) func() (string, error) {
	return func() (string, error) {
		system, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c.COSI, hardware.SystemInformationID)
		if err != nil {
			return "", err
		}
		return system.TypedSpec().UUID, nil
	}
}

func system(labels ...string) *machine.ResetRequest {
	req := &machine.ResetRequest{Reboot: true, Mode: machine.ResetRequest_SYSTEM_DISK}
	for _, label := range labels {
		req.SystemPartitionsToWipe = append(req.SystemPartitionsToWipe, &machine.ResetPartitionSpec{Label: label, Wipe: true})
	}
	return req
}

// A machine that was reset comes back in maintenance mode: it asks nobody who they are, tells who it is, and belongs to no cluster.
func TestReset(t *testing.T) {
	g := NewWithT(t)
	ctx := within(t)
	c := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, Workers: 1}).Cluster("a")
	worker := c.Node("worker-1")
	talos := talosClient(t, c.Talosconfig())
	g.Expect(talos.ResetGeneric(client.WithNodes(ctx, worker.Address()), system("STATE", "EPHEMERAL"))).To(Succeed())

	open := insecure(t, worker.Address())
	g.Eventually(uuidOf(ctx, open)).WithContext(ctx).Should(Equal(worker.UUID()))
	_, err := open.ServiceList(ctx)
	g.Expect(client.StatusCode(err)).To(Equal(codes.Unimplemented))
	_, err = talos.Version(client.WithNodes(ctx, worker.Address()))
	g.Expect(err).To(HaveOccurred(), "it has no credentials of the cluster any more")
	g.Eventually(func() bool {
		return slices.ContainsFunc(c.KubernetesNodes(), func(n *corev1.Node) bool {
			return n.Name == "worker-1" && n.Status.Conditions[0].Status != corev1.ConditionTrue
		})
	}).WithContext(ctx).Should(BeTrue())

	worker.PowerOff()
	worker.PowerOn()
	g.Eventually(uuidOf(ctx, open)).WithContext(ctx).Should(Equal(worker.UUID()), "a wiped disk stays so")
}

// What is left out of a reset stays: with its machine config, a machine comes back as what it was.
func TestResetOfOtherDisks(t *testing.T) {
	g := NewWithT(t)
	ctx := within(t)
	c := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1, UserVolumes: []string{"data"}}).Cluster("a")
	worker, talos := c.Node("worker-1"), talosClient(t, c.Talosconfig())
	before, on := worker.State().BootID, client.WithNodes(ctx, worker.Address())
	for name, req := range map[string]*machine.ResetRequest{
		"no such disk":               {Mode: machine.ResetRequest_USER_DISKS, UserDisksToWipe: []string{"/dev/vdx"}},
		"the system disk":            {Mode: machine.ResetRequest_USER_DISKS, UserDisksToWipe: []string{"/dev/vda"}},
		"disks with the system":      {Mode: machine.ResetRequest_SYSTEM_DISK, UserDisksToWipe: []string{"/dev/vdb"}},
		"partitions with user disks": {Mode: machine.ResetRequest_USER_DISKS, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "STATE"}}},
		"no such partition":          system("STATE", "ETCD"),
	} {
		g.Expect(client.StatusCode(talos.ResetGeneric(on, req))).To(Equal(codes.Unknown), name)
	}
	g.Expect(talos.ResetGeneric(on, &machine.ResetRequest{Mode: machine.ResetRequest_USER_DISKS, UserDisksToWipe: []string{"/dev/vdb"}, Reboot: true})).To(Succeed())
	g.Eventually(worker.State).WithContext(ctx).Should(And(HaveField("BootID", Not(Equal(before))), HaveField("Ready", true)))
}

// A member leaves, or is removed by another one; either way the others go on without it, and the machine's own API server with it.
func TestLeaveEtcd(t *testing.T) {
	g := NewWithT(t)
	ctx := within(t)
	c := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3}).Cluster("a")
	talos := talosClient(t, c.Talosconfig())
	members := func() []string {
		reply, err := talos.EtcdMemberList(client.WithNodes(ctx, c.Node("cp-3").Address()), &machine.EtcdMemberListRequest{})
		if err != nil {
			return nil
		}
		var names []string
		for _, member := range reply.GetMessages()[0].GetMembers() {
			names = append(names, member.GetHostname())
		}
		return names
	}
	list, err := talos.EtcdMemberList(client.WithNodes(ctx, c.Node("cp-3").Address()), &machine.EtcdMemberListRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	second := list.GetMessages()[0].GetMembers()[1].GetId()

	g.Expect(talos.EtcdLeaveCluster(client.WithNodes(ctx, c.Node("cp-1").Address()), &machine.EtcdLeaveClusterRequest{})).To(Succeed())
	g.Eventually(members).WithContext(ctx).Should(Equal([]string{"cp-2", "cp-3"}))
	g.Expect(c.Node("cp-1").State().EtcdUp).To(BeFalse())
	g.Eventually(func() any { return c.Leader() }).WithContext(ctx).ShouldNot(BeNil())

	on := client.WithNodes(ctx, c.Node("cp-3").Address())
	g.Expect(talos.EtcdRemoveMemberByID(on, &machine.EtcdRemoveMemberByIDRequest{MemberId: second})).To(Succeed())
	g.Eventually(members).WithContext(ctx).Should(Equal([]string{"cp-3"}))
	g.Expect(c.Node("cp-2").State().EtcdUp).To(BeFalse())
	err = talos.EtcdRemoveMemberByID(on, &machine.EtcdRemoveMemberByIDRequest{MemberId: second})
	g.Expect(client.StatusCode(err)).To(Equal(codes.NotFound))
	g.Expect(talos.EtcdLeaveCluster(on, &machine.EtcdLeaveClusterRequest{})).NotTo(Succeed(), "the last one cannot")
}

// An alarm about space comes back as long as the database is full, and goes for good once it has been defragmented.
func TestDefragmentAndDisarm(t *testing.T) {
	g := NewWithT(t)
	ctx := within(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1})
	c := s.Cluster("a")
	on, talos := client.WithNodes(ctx, c.Node("cp-1").Address()), talosClient(t, c.Talosconfig())
	size := func() int64 {
		reply, err := talos.EtcdStatus(on)
		g.Expect(err).NotTo(HaveOccurred())
		return reply.GetMessages()[0].GetMemberStatus().GetDbSize()
	}
	alarms := func() int {
		reply, err := talos.EtcdAlarmList(on)
		g.Expect(err).NotTo(HaveOccurred())
		return len(reply.GetMessages()[0].GetMemberAlarms())
	}
	disarm := func() {
		_, err := talos.EtcdAlarmDisarm(on)
		g.Expect(err).NotTo(HaveOccurred())
	}
	before := size()
	_, err := s.Inject(fault.Fault{Name: fault.EtcdAlarm, Node: "cp-1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(alarms()).To(Equal(1))
	g.Expect(size()).To(BeNumerically(">", before))
	disarm()
	g.Expect(alarms()).To(Equal(1))
	_, err = talos.EtcdDefragment(on)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(size()).To(BeNumerically("<", before))
	g.Expect(alarms()).To(Equal(1), "the alarm stands until it is taken back")
	disarm()
	g.Expect(alarms()).To(BeZero())
}

// Services of extensions restart and have no health check.
func TestRestartExtension(t *testing.T) {
	g := NewWithT(t)
	ctx := within(t)
	c := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Extensions: []string{"tools"}}).Cluster("a")
	on, talos := client.WithNodes(ctx, c.Node("cp-1").Address()), talosClient(t, c.Talosconfig())
	started := func() (time.Time, error) {
		services, err := talos.ServiceInfo(on, "ext-tools")
		if err != nil || services[0].Service.GetState() != "Running" {
			return time.Time{}, err
		}
		events := services[0].Service.GetEvents().GetEvents()
		return events[len(events)-1].GetTs().AsTime(), nil
	}
	before, err := started()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = talos.ServiceRestart(on, "ext-tools")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(started).WithContext(ctx).Should(BeTemporally(">", before))
	_, err = talos.ServiceRestart(on, "ext-other")
	g.Expect(err).To(MatchError(ContainSubstring(`service "ext-other" not defined`)))
}
