// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ichor.maesh.dev/hub/test/sim/etcd"
)

// etcdNode returns the node of a call that only control planes can answer.
func etcdNode(ctx context.Context, what string) (*node, error) {
	n := nodeFrom(ctx)
	if !n.ControlPlane {
		return nil, status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", what)
	}
	return n, nil
}

func etcdError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, etcd.ErrSingleMember):
		return status.Error(codes.Unknown, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}

// EtcdMemberList lists the members, which needs a leader.
func (machineService) EtcdMemberList(ctx context.Context, _ *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	n, err := etcdNode(ctx, "member list")
	if err != nil {
		return nil, err
	}
	members, err := n.Etcd().Members(ctx, n.Name)
	if err != nil {
		return nil, etcdError(err)
	}
	list := &machineapi.EtcdMembers{}
	for _, m := range members {
		list.LegacyMembers = append(list.LegacyMembers, m.Name)
		list.Members = append(list.Members, &machineapi.EtcdMember{
			Id: m.ID, Hostname: m.Name, IsLearner: m.Learner,
			PeerUrls:   []string{"https://" + m.Address + ":2380"},
			ClientUrls: []string{"https://" + m.Address + ":2379"},
		})
	}
	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{list}}, nil
}

// EtcdStatus is the member's own view; it answers without a leader too, and then says so.
func (machineService) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	n, err := etcdNode(ctx, "etcd status")
	if err != nil {
		return nil, err
	}
	s, err := n.Etcd().Status(ctx, n.Name)
	if err != nil {
		return nil, etcdError(err)
	}
	member := &machineapi.EtcdMemberStatus{
		MemberId: s.MemberID, Leader: s.Leader, IsLearner: s.Learner,
		RaftTerm: s.Term, RaftIndex: s.Index, RaftAppliedIndex: s.Index,
		DbSize: s.Size, DbSizeInUse: s.InUse, ProtocolVersion: s.Version, StorageVersion: s.StorageVersion,
	}
	if s.Leader == 0 {
		member.Errors = []string{etcd.ErrNoLeader.Error()}
	}
	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: member}}}, nil
}

// EtcdAlarmList lists the alarms of all members.
func (machineService) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	n, err := etcdNode(ctx, "etcd alarm list")
	if err != nil {
		return nil, err
	}
	alarms, err := n.Etcd().Alarms(ctx, n.Name)
	if err != nil {
		return nil, etcdError(err)
	}
	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: memberAlarms(alarms)}}}, nil
}

// EtcdForfeitLeadership moves the leadership to another member; the answer names none if there was none to move.
func (machineService) EtcdForfeitLeadership(
	ctx context.Context, _ *machineapi.EtcdForfeitLeadershipRequest,
) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	n, err := etcdNode(ctx, "etcd forfeit leadership")
	if err != nil {
		return nil, err
	}
	leader, err := n.Etcd().Forfeit(ctx, n.Name)
	if err != nil {
		return nil, etcdError(err)
	}
	return &machineapi.EtcdForfeitLeadershipResponse{
		Messages: []*machineapi.EtcdForfeitLeadership{{Member: leader}},
	}, nil
}
