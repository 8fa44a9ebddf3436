// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"ichor.maesh.dev/hub/test/sim/etcd"
)

// Members lists the members as one of them answers it, which needs a leader.
func (c *Cluster) Members(ctx context.Context, name string) ([]etcd.Member, error) {
	_, client, err := c.ask(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), answerWithin)
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	members := make([]etcd.Member, 0, len(list.Members))
	for _, m := range list.Members {
		members = append(members, etcd.Member{ID: m.ID, Name: m.Name, Address: c.addressOf(m), Learner: m.IsLearner})
	}
	return members, nil
}

// addressOf is the address of the machine that a member runs on.
func (c *Cluster) addressOf(m *etcdserverpb.Member) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if len(m.PeerURLs) > 0 && m.PeerURLs[0] == n.peerURL() {
			return n.address
		}
	}
	return ""
}

// Status is the local view of a member; it is answered without a quorum too.
func (c *Cluster) Status(ctx context.Context, name string) (etcd.Status, error) {
	n, err := c.node(name)
	if err != nil {
		return etcd.Status{}, err
	}
	s, err := c.status(ctx, n)
	if err != nil {
		return etcd.Status{}, err
	}
	return etcd.Status{
		MemberID: s.Header.MemberId, Leader: s.Leader, Term: s.RaftTerm, Index: s.RaftIndex, Learner: s.IsLearner,
		Size: s.DbSize, InUse: s.DbSizeInUse, Version: s.Version, StorageVersion: s.StorageVersion,
	}, nil
}

// Alarms lists the alarms of all members.
func (c *Cluster) Alarms(ctx context.Context, name string) ([]etcd.Alarm, error) {
	_, client, err := c.ask(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	list, err := client.AlarmList(ctx)
	if err != nil {
		return nil, err
	}
	return alarms(list.Alarms), nil
}

func alarms(list []*etcdserverpb.AlarmMember) []etcd.Alarm {
	var found []etcd.Alarm
	for _, a := range list {
		found = append(found, etcd.Alarm{MemberID: a.MemberID, Name: a.Alarm.String()})
	}
	return found
}

// Disarm takes every alarm back, and returns them.
func (c *Cluster) Disarm(ctx context.Context, name string) ([]etcd.Alarm, error) {
	_, client, err := c.ask(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	list, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err != nil {
		return nil, err
	}
	return alarms(list.Alarms), nil
}

// Defragment defragments a machine's own member.
func (c *Cluster) Defragment(ctx context.Context, name string) error {
	n, client, err := c.ask(name)
	if err != nil {
		return err
	}
	_, err = client.Defragment(ctx, n.clientURL())
	return err
}

// Snapshot is what a member sends as a snapshot, with the revision that it had then or a little later.
func (c *Cluster) Snapshot(ctx context.Context, name string) (data []byte, revision int64, err error) {
	n, client, err := c.ask(name)
	if err != nil {
		return nil, 0, err
	}
	stream, err := client.Snapshot(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer stream.Close() //nolint:errcheck // It was only read.
	if data, err = io.ReadAll(stream); err != nil {
		return nil, 0, err
	}
	status, err := c.status(ctx, n)
	if err != nil {
		return nil, 0, err
	}
	return data, status.Header.Revision, nil
}

// Forfeit moves the leadership from a member to the first other one, as Talos does. It returns that one's name, or nothing when the member
// was not the leader.
func (c *Cluster) Forfeit(ctx context.Context, name string) (string, error) {
	members, err := c.Members(ctx, name)
	if err != nil {
		return "", err
	}
	if len(members) < 2 {
		return "", etcd.ErrSingleMember
	}
	status, err := c.Status(ctx, name)
	if err != nil || status.Leader != status.MemberID {
		return "", err
	}
	_, client, err := c.ask(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for _, m := range members {
		if m.ID == status.MemberID {
			continue
		}
		_, err := client.MoveLeader(ctx, m.ID)
		if errors.Is(err, rpctypes.ErrNotLeader) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("move leadership to %s: %w", m.Name, err)
		}
		c.look(ctx)
		return m.Name, nil
	}
	return "", nil
}

// ValidateForUpgrade is Talos's check before an upgrade of a control plane: any member count but two, and every member started and
// answering a read through the quorum.
func (c *Cluster) ValidateForUpgrade(ctx context.Context) error {
	leader := c.Leader()
	members, err := c.Members(ctx, leader)
	switch {
	case err != nil:
		return err
	case len(members) == 2:
		return fmt.Errorf("etcd member count(%d) is insufficient to maintain quorum if upgrade commences", len(members))
	}
	for _, m := range members {
		if m.Name == "" {
			return fmt.Errorf("etcd member %016x is not started, all members must be running to perform an upgrade", m.ID)
		}
		if err := c.read(ctx, m.Name); err != nil {
			return fmt.Errorf("etcd member %016x is not healthy; all members must be healthy to perform an upgrade: %w", m.ID, err)
		}
	}
	return nil
}

func (c *Cluster) read(ctx context.Context, name string) error {
	_, client, err := c.ask(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*answerWithin)
	defer cancel()
	_, err = client.Get(ctx, "health")
	return err
}

// Remove takes a member out of the cluster for good. by is the machine whose member is asked. One that removes itself loses its data as
// well, as Talos has it; another one is left with data that it cannot use.
func (c *Cluster) Remove(ctx context.Context, by string, id uint64) error {
	_, client, err := c.ask(by)
	if err != nil {
		return err
	}
	if err := c.remove(ctx, client, id); err != nil {
		return err
	}
	n := c.machineOf(id)
	if n == nil {
		return nil
	}
	c.view.forget(n.name)
	c.change(func() {
		if n.etcd != nil {
			n.etcd.removed = true
		}
	})
	errs := []error{c.stopServer(n), c.stopEtcd(n, (*process).stop)}
	if n.name == by {
		errs = append(errs, n.clear())
	}
	c.look(ctx)
	return errors.Join(errs...)
}

// remove asks until the others are sure enough of each other, or until the member is gone.
func (c *Cluster) remove(ctx context.Context, client *clientv3.Client, id uint64) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), removeWithin)
	defer cancel()
	for attempt := 0; ; attempt++ {
		_, err := client.MemberRemove(ctx, id)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, rpctypes.ErrMemberNotFound) && attempt == 0:
			return fmt.Errorf("%016x: %w", id, etcd.ErrNoSuchMember)
		case errors.Is(err, rpctypes.ErrMemberNotFound):
			return nil
		case !errors.Is(err, rpctypes.ErrUnhealthy) && !errors.Is(err, rpctypes.ErrStopped):
			return err
		}
		if waited := await(ctx, nil, time.Second); waited != nil {
			return err
		}
	}
}

// removeWithin bounds how long a removal is tried. Talos tries for five minutes.
const removeWithin = 20 * time.Second

// machineOf is the machine of a member, or nil.
func (c *Cluster) machineOf(id uint64) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if c.MemberID(n.name) == id {
			return n
		}
	}
	return nil
}
