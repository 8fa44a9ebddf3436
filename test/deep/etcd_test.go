// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ichor.maesh.dev/hub/test/sim"
)

// members are the members as one machine's answers them, by their host names.
func members(ctx context.Context, api *client.Client, n *sim.Node) (map[string]*machineapi.EtcdMember, error) {
	resp, err := api.EtcdMemberList(at(ctx, n), &machineapi.EtcdMemberListRequest{})
	if err != nil {
		return nil, err
	}
	found := map[string]*machineapi.EtcdMember{}
	for _, m := range resp.GetMessages()[0].GetMembers() {
		found[m.GetHostname()] = m
	}
	return found, nil
}

// voters are the host names of the members that vote.
func voters(ctx context.Context, api *client.Client, n *sim.Node) ([]string, error) {
	all, err := members(ctx, api, n)
	var found []string
	for name, m := range all {
		if !m.GetIsLearner() {
			found = append(found, name)
		}
	}
	return found, err
}

func etcdStatus(ctx context.Context, api *client.Client, n *sim.Node) (*machineapi.EtcdMemberStatus, error) {
	resp, err := api.EtcdStatus(at(ctx, n))
	if err != nil {
		return nil, err
	}
	return resp.GetMessages()[0].GetMemberStatus(), nil
}

// snapshot takes a snapshot from a machine's member.
func snapshot(ctx context.Context, api *client.Client, n *sim.Node) ([]byte, error) {
	stream, err := api.EtcdSnapshot(at(ctx, n), &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		return nil, err
	}
	defer stream.Close() //nolint:errcheck // It was only read.
	return io.ReadAll(stream)
}

func TestDeepMembers(t *testing.T) {
	g := NewWithT(t)
	o := options(t, t.TempDir(), sim.ClusterSpec{Name: "three", ControlPlanes: 3, Workers: 2})
	s := start(t, o)
	cluster := s.Cluster("three")
	k, api, ctx := kubeClient(t, cluster), talosClient(t, cluster), within(t)
	first := cluster.Node("cp-1")

	g.Expect(voters(ctx, api, first)).To(ConsistOf("cp-1", "cp-2", "cp-3"), "the others have joined as learners and were promoted")
	g.Eventually(ctx, readyNodes).WithArguments(ctx, k).WithPolling(poll).Should(ConsistOf("cp-1", "cp-2", "cp-3", "worker-1", "worker-2"))
	ids := map[uint64]bool{}
	for _, n := range cluster.Nodes()[:3] {
		state, err := etcdStatus(ctx, api, n)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(state.GetLeader()).NotTo(BeZero())
		g.Expect(state.GetDbSize()).To(BeNumerically(">", 0))
		g.Expect(state.GetProtocolVersion()).To(HavePrefix("3.6."))
		ids[state.GetMemberId()] = true
	}
	g.Expect(ids).To(HaveLen(3))

	g.Expect(put(ctx, k, "kept")).To(Succeed())
	data, err := snapshot(ctx, api, cluster.Node("cp-2"))
	g.Expect(err).NotTo(HaveOccurred())
	expectSnapshot(t, data, "/registry/configmaps/default/kept")

	_, err = api.EtcdDefragment(at(ctx, first))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(alarms(ctx, api, first)).To(BeEmpty())
	full, err := etcdStatus(ctx, api, cluster.Node("cp-2"))
	g.Expect(err).NotTo(HaveOccurred())
	raise(t, filepath.Join(o.Dir, "three", "disks", "cp-2", "root"), cluster.Node("cp-2"), full.GetMemberId(), etcdserverpb.AlarmType_NOSPACE)
	raised := And(HaveLen(1), HaveEach(And(HaveField("MemberId", full.GetMemberId()), HaveField("Alarm", machineapi.EtcdMemberAlarm_NOSPACE))))
	g.Expect(alarms(ctx, api, first)).To(raised, "every member knows of it")
	g.Expect(put(ctx, k, "refused")).To(MatchError(ContainSubstring("database space exceeded")))
	disarmed, err := api.EtcdAlarmDisarm(at(ctx, first))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(disarmed.GetMessages()[0].GetMemberAlarms()).To(raised)
	g.Expect(alarms(ctx, api, first)).To(BeEmpty())
	g.Expect(put(ctx, k, "taken")).To(Succeed())

	leader := cluster.Leader()
	g.Expect(leader).NotTo(BeNil())
	moved, err := api.EtcdForfeitLeadership(at(ctx, leader), &machineapi.EtcdForfeitLeadershipRequest{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(moved.GetMessages()[0].GetMember()).NotTo(Or(BeEmpty(), Equal(leader.Name())))
	g.Eventually(ctx, func() string { return cluster.Leader().Name() }).WithPolling(poll).Should(Equal(moved.GetMessages()[0].GetMember()))
}

// alarms are the alarms of all members as one machine's member answers them.
func alarms(ctx context.Context, api *client.Client, n *sim.Node) ([]*machineapi.EtcdMemberAlarm, error) {
	resp, err := api.EtcdAlarmList(at(ctx, n))
	if err != nil {
		return nil, err
	}
	return resp.GetMessages()[0].GetMemberAlarms(), nil
}

// raise has a member raise an alarm, as one does that finds out by itself. The Talos API has no call for that: etcd is asked, with the
// certificate among the machine's files below root.
func raise(t *testing.T, root string, n *sim.Node, member uint64, alarm etcdserverpb.AlarmType) {
	t.Helper()
	g := NewWithT(t)
	config, err := transport.TLSInfo{
		CertFile: filepath.Join(root, constants.EtcdAdminCert), KeyFile: filepath.Join(root, constants.EtcdAdminKey), TrustedCAFile: filepath.Join(root, constants.EtcdCACert),
	}.ClientConfig()
	g.Expect(err).NotTo(HaveOccurred())
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + net.JoinHostPort(n.Address(), "2379")}, TLS: config})
	g.Expect(err).NotTo(HaveOccurred())
	defer etcd.Close() //nolint:errcheck // What it was asked is answered.
	_, err = etcdserverpb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(within(t), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: alarm,
	})
	g.Expect(err).NotTo(HaveOccurred())
}

// expectSnapshot checks the hash of a snapshot, and that a key is in it.
func expectSnapshot(t *testing.T, data []byte, key string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(len(data)%512).To(Equal(sha256.Size), "a database with its hash behind it")
	content, hash := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	sum := sha256.Sum256(content)
	g.Expect(sum[:]).To(Equal(hash))
	path := filepath.Join(t.TempDir(), "db")
	g.Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	g.Expect(err).NotTo(HaveOccurred())
	defer db.Close() //nolint:errcheck // It was only read.
	found := false
	g.Expect(db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(_, value []byte) error {
			found = found || bytes.Contains(value, []byte(key))
			return nil
		})
	})).To(Succeed())
	g.Expect(found).To(BeTrue(), "%s is in the snapshot", key)
}

func TestDeepRemovals(t *testing.T) {
	g := NewWithT(t)
	s := start(t, options(t, t.TempDir(), sim.ClusterSpec{Name: "three", ControlPlanes: 3}))
	cluster := s.Cluster("three")
	api, ctx := talosClient(t, cluster), within(t)
	first, second, third := cluster.Node("cp-1"), cluster.Node("cp-2"), cluster.Node("cp-3")
	before, err := members(ctx, api, first)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(removeMember(ctx, api, first, 42)).To(Equal(codes.NotFound))
	g.Expect(api.EtcdLeaveCluster(at(ctx, third), &machineapi.EtcdLeaveClusterRequest{})).To(Succeed())
	g.Expect(voters(ctx, api, first)).To(ConsistOf("cp-1", "cp-2"))
	g.Expect(cluster.Processes("cp-3")).To(BeEmpty(), "neither etcd nor the API server beside it")

	// A machine without data joins anew when it boots, and is another member then.
	g.Expect(api.Reboot(at(ctx, third))).To(Succeed())
	g.Eventually(ctx, voters).WithArguments(ctx, api, first).WithPolling(poll).Should(ConsistOf("cp-1", "cp-2", "cp-3"))
	after, err := members(ctx, api, first)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after["cp-3"].GetId()).NotTo(Equal(before["cp-3"].GetId()))

	g.Expect(removeMember(ctx, api, first, after["cp-2"].GetId())).To(Equal(codes.OK))
	g.Expect(voters(ctx, api, first)).To(ConsistOf("cp-1", "cp-3"))
	_, err = etcdStatus(ctx, api, second)
	g.Expect(err).To(HaveOccurred(), "a member that was removed does not run on")
}

func removeMember(ctx context.Context, api *client.Client, n *sim.Node, id uint64) codes.Code {
	err := api.EtcdRemoveMemberByID(at(ctx, n), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	return status.Code(err)
}
