// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (s *server) Reset(ctx context.Context, r *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	s.note(ctx, "Reset")
	s.reset = r
	return &machineapi.ResetResponse{}, s.refuses
}

func (s *server) EtcdRecover(stream grpc.ClientStreamingServer[common.Data, machineapi.EtcdRecoverResponse]) error {
	var data []byte
	err := drainStream(stream.Recv, func(part *common.Data) { data = append(data, part.GetBytes()...) })
	s.note(stream.Context(), "EtcdRecover "+string(data))
	if err != nil || s.refuses != nil {
		return errors.Join(err, s.refuses)
	}
	return stream.SendAndClose(&machineapi.EtcdRecoverResponse{Messages: []*machineapi.EtcdRecover{{}}})
}

func (s *server) Bootstrap(ctx context.Context, r *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	s.note(ctx, fmt.Sprintf("Bootstrap recover=%t skip=%t", r.GetRecoverEtcd(), r.GetRecoverSkipHashCheck()))
	return &machineapi.BootstrapResponse{}, s.refuses
}

func (s *server) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: s.services}}}, s.refuses
}

func (s *server) ServiceRestart(ctx context.Context, r *machineapi.ServiceRestartRequest) (*machineapi.ServiceRestartResponse, error) {
	s.note(ctx, "ServiceRestart "+r.GetId())
	return &machineapi.ServiceRestartResponse{}, s.refuses
}

func (s *server) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdDefragmentResponse, error) {
	s.note(ctx, "EtcdDefragment")
	return &machineapi.EtcdDefragmentResponse{}, s.refuses
}

func (s *server) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmDisarmResponse, error) {
	s.note(ctx, "EtcdAlarmDisarm")
	return &machineapi.EtcdAlarmDisarmResponse{}, s.refuses
}

func (s *server) EtcdLeaveCluster(ctx context.Context, _ *machineapi.EtcdLeaveClusterRequest) (*machineapi.EtcdLeaveClusterResponse, error) {
	s.note(ctx, "EtcdLeaveCluster")
	return &machineapi.EtcdLeaveClusterResponse{}, s.refuses
}

func (s *server) EtcdRemoveMemberByID(ctx context.Context, r *machineapi.EtcdRemoveMemberByIDRequest) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	s.note(ctx, fmt.Sprintf("EtcdRemoveMemberByID %x", r.GetMemberId()))
	return &machineapi.EtcdRemoveMemberByIDResponse{}, s.refuses
}

// A reset names what it wipes, in the mode that takes it, and never asks for everything.
func TestResetModes(t *testing.T) {
	for name, row := range map[string]struct {
		reset  Reset
		mode   machineapi.ResetRequest_WipeMode
		labels int
		reboot bool
	}{
		"system":         {Reset{Partitions: []string{"STATE", "EPHEMERAL"}}, machineapi.ResetRequest_SYSTEM_DISK, 2, true},
		"disks":          {Reset{Disks: []string{"/dev/vdb"}, PowerOff: true}, machineapi.ResetRequest_USER_DISKS, 0, false},
		"both":           {Reset{Partitions: []string{"STATE"}, Disks: []string{"/dev/vdb"}}, machineapi.ResetRequest_ALL, 1, true},
		"nothing at all": {},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, c := serve(t)
			err := (&connection{client: c, guard: allowed}).Reset(t.Context(), "10.0.0.1", row.reset)
			if name == "nothing at all" {
				g.Expect(err).To(MatchError("resetting 10.0.0.1: nothing to wipe was named"))
				g.Expect(s.reset).To(BeNil())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.reset.GetMode()).To(Equal(row.mode))
			g.Expect(s.reset.GetGraceful()).To(BeFalse())
			g.Expect(s.reset.GetReboot()).To(Equal(row.reboot))
			g.Expect(s.reset.GetUserDisksToWipe()).To(Equal(row.reset.Disks))
			g.Expect(s.reset.GetSystemPartitionsToWipe()).To(HaveLen(row.labels))
			for i, partition := range s.reset.GetSystemPartitionsToWipe() {
				g.Expect(partition.GetLabel()).To(Equal(row.reset.Partitions[i]))
				g.Expect(partition.GetWipe()).To(BeTrue())
			}
		})
	}
}

// A service runs since the first of the last events that say so: what its health check finds is an event as well.
func TestServices(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	at := func(seconds int) *timestamppb.Timestamp {
		return timestamppb.New(time.Unix(int64(seconds), 1500).UTC())
	}
	events := func(states ...string) *machineapi.ServiceEvents {
		list := &machineapi.ServiceEvents{}
		for i, state := range states {
			list.Events = append(list.Events, &machineapi.ServiceEvent{State: state, Ts: at(i)})
		}
		return list
	}
	s.services = []*machineapi.ServiceInfo{
		{Id: "kubelet", State: "Running", Health: &machineapi.ServiceHealth{Healthy: true}, Events: events("Running", "Stopping", "Preparing", "Running", "Running")},
		{Id: "ext-a", State: "Running", Health: &machineapi.ServiceHealth{Unknown: true}, Events: events("Running")},
		{Id: "etcd", State: "Waiting", Health: &machineapi.ServiceHealth{Unknown: true}, Events: events("Running", "Waiting")},
	}
	w := &connection{client: c}
	started := func(second int) time.Time { return time.Unix(int64(second), 1000).UTC() }
	g.Expect(w.Services(t.Context(), "10.0.0.1")).To(Equal([]Service{
		{ID: "etcd", State: "Waiting"},
		{ID: "ext-a", State: "Running", Running: true, Started: started(0)},
		{ID: "kubelet", State: "Running", Running: true, Healthy: true, Checked: true, Started: started(3)},
	}))
	s.refuses = status.Error(codes.Unavailable, "EOF")
	_, err := w.Services(t.Context(), "10.0.0.1")
	g.Expect(err).To(MatchError(ContainSubstring("services at 10.0.0.1")))
}

func TestVolumes(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	volume := func(id string, spec block.VolumeStatusSpec) *block.VolumeStatus {
		r := block.NewVolumeStatus(block.NamespaceName, id)
		*r.TypedSpec() = spec
		return r
	}
	system := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
	system.TypedSpec().DevPath = "/dev/vda"
	s.create(t, system,
		volume("STATE", block.VolumeStatusSpec{Type: block.VolumeTypePartition, Location: "/dev/vda5", ParentLocation: "/dev/vda", PrettySize: "105 MB"}),
		volume("ETCD", block.VolumeStatusSpec{Type: block.VolumeTypeDirectory, Location: "/var/lib/etcd"}),
		volume("u-data", block.VolumeStatusSpec{Type: block.VolumeTypeDisk, Location: "/dev/vdb", PrettySize: "11 GB"}),
		volume("IMAGECACHE", block.VolumeStatusSpec{Type: block.VolumeTypePartition}),
	)
	g.Expect((&connection{client: c}).Volumes(t.Context(), "10.0.0.1")).To(Equal([]Volume{
		{ID: "ETCD", Disk: "/var/lib/etcd"},
		{ID: "STATE", Partition: true, Disk: "/dev/vda", System: true, Size: "105 MB"},
		{ID: "u-data", Disk: "/dev/vdb", Size: "11 GB"},
	}))
}

// A member that is gone is what was asked for (B21).
func TestCaseB21RemovedTwice(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	w := &connection{client: c, guard: allowed}
	s.refuses = status.Error(codes.NotFound, "etcdserver: member not found")
	g.Expect(w.RemoveEtcdMember(t.Context(), "10.0.0.1", 0x1a)).To(Succeed())
	s.refuses = status.Error(codes.Unknown, "failed to remove member: etcdserver: unhealthy cluster")
	g.Expect(w.RemoveEtcdMember(t.Context(), "10.0.0.1", 0x1a)).To(MatchError(ContainSubstring("removing etcd member 000000000000001a by way of 10.0.0.1")))
}

func TestDefragmentTellsWhy(t *testing.T) {
	g := NewWithT(t)
	s, c := serve(t)
	s.refuses = errors.New("etcdserver: request timed out")
	_, _, err := (&connection{client: c, guard: allowed}).Defragment(t.Context(), "10.0.0.1")
	g.Expect(err).To(MatchError(ContainSubstring("defragmenting etcd at 10.0.0.1")))
}
