// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"errors"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ichor.maesh.dev/hub/test/sim/etcd"
)

func memberAlarms(alarms []etcd.Alarm) []*machineapi.EtcdMemberAlarm {
	var list []*machineapi.EtcdMemberAlarm
	for _, a := range alarms {
		list = append(list, &machineapi.EtcdMemberAlarm{
			MemberId: a.MemberID, Alarm: machineapi.EtcdMemberAlarm_AlarmType(machineapi.EtcdMemberAlarm_AlarmType_value[a.Name]),
		})
	}
	return list
}

// EtcdAlarmDisarm takes every alarm back, those of other members too.
func (machineService) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmDisarmResponse, error) {
	n, err := etcdNode(ctx, "etcd alarm disarm")
	if err != nil {
		return nil, err
	}
	alarms, err := n.Etcd().Disarm(ctx, n.Name)
	if err != nil {
		return nil, etcdError(err)
	}
	return &machineapi.EtcdAlarmDisarmResponse{Messages: []*machineapi.EtcdAlarmDisarm{{MemberAlarms: memberAlarms(alarms)}}}, nil
}

// EtcdDefragment defragments the node's own member, and answers when that is over.
func (machineService) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdDefragmentResponse, error) {
	n, err := etcdNode(ctx, "etcd defragment")
	if err != nil {
		return nil, err
	}
	if err := n.Etcd().Defragment(ctx, n.Name); err != nil {
		return nil, etcdError(err)
	}
	return &machineapi.EtcdDefragmentResponse{Messages: []*machineapi.EtcdDefragment{{}}}, nil
}

// EtcdLeaveCluster removes the node's own member, stops it and deletes its data.
func (machineService) EtcdLeaveCluster(ctx context.Context, _ *machineapi.EtcdLeaveClusterRequest) (*machineapi.EtcdLeaveClusterResponse, error) {
	n, err := etcdNode(ctx, "etcd leave")
	if err != nil {
		return nil, err
	}
	if err := n.LeaveEtcd(ctx); err != nil {
		return nil, status.Error(codes.Unknown, "failed to leave cluster: "+err.Error())
	}
	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

// EtcdRemoveMemberByID removes any member. One that runs stops as soon as it hears of it.
func (machineService) EtcdRemoveMemberByID(
	ctx context.Context, req *machineapi.EtcdRemoveMemberByIDRequest,
) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	n, err := etcdNode(ctx, "etcd remove member")
	if err != nil {
		return nil, err
	}
	removed := n.cluster.memberWith(req.GetMemberId()) // Afterwards nobody has that ID.
	switch err := n.Etcd().Remove(ctx, n.Name, req.GetMemberId()); {
	case errors.Is(err, etcd.ErrNoSuchMember):
		return nil, status.Error(codes.NotFound, err.Error())
	case err != nil:
		return nil, status.Error(codes.Unknown, "failed to remove member: "+err.Error())
	}
	if removed != nil {
		removed.StopEtcd()
	}
	return &machineapi.EtcdRemoveMemberByIDResponse{Messages: []*machineapi.EtcdRemoveMemberByID{{}}}, nil
}

// memberWith is the node with a member of the given ID, or nil.
func (c *Cluster) memberWith(id uint64) *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.ControlPlane && id != 0 && n.MemberID() == id })
	if i < 0 {
		return nil
	}
	return c.nodes[i]
}
