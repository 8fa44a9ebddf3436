// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
)

func (c *connection) Defragment(ctx context.Context, address string) (before, after int64, err error) {
	if before, err = c.databaseSize(ctx, address); err != nil {
		return 0, 0, err
	}
	if _, err = c.client.EtcdDefragment(c.guarded(ctx, address)); err != nil {
		return 0, 0, fmt.Errorf("defragmenting etcd at %s: %w", address, err)
	}
	after, err = c.databaseSize(ctx, address)
	return before, after, err
}

// databaseSize is how large the database of an etcd member is on disk.
func (c *connection) databaseSize(ctx context.Context, address string) (int64, error) {
	reply, err := c.client.EtcdStatus(client.WithNode(ctx, address))
	if err != nil {
		return 0, fmt.Errorf("reading the status of etcd at %s: %w", address, err)
	}
	var size int64
	for _, message := range reply.GetMessages() {
		size = message.GetMemberStatus().GetDbSize()
	}
	return size, nil
}

func (c *connection) DisarmAlarms(ctx context.Context, address string) error {
	if _, err := c.client.EtcdAlarmDisarm(c.guarded(ctx, address)); err != nil {
		return fmt.Errorf("disarming the alarms of etcd at %s: %w", address, err)
	}
	return nil
}

func (c *connection) LeaveEtcd(ctx context.Context, address string) error {
	if err := c.client.EtcdLeaveCluster(c.guarded(ctx, address), &machineapi.EtcdLeaveClusterRequest{}); err != nil {
		return fmt.Errorf("leaving etcd at %s: %w", address, err)
	}
	return nil
}

func (c *connection) RemoveEtcdMember(ctx context.Context, address string, id uint64) error {
	err := c.client.EtcdRemoveMemberByID(c.guarded(ctx, address), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	if err != nil && client.StatusCode(err) != codes.NotFound {
		return fmt.Errorf("removing etcd member %016x by way of %s: %w", id, address, err)
	}
	return nil
}
