// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Sizes of databases: as they begin, what of them holds data, and the quota at which etcd raises its alarm about space.
const (
	beginning = 24 << 20
	inUse     = 16 << 20
	quota     = 2 << 30
)

// spaceAlarm is the alarm of a database that is full.
const spaceAlarm = "NOSPACE"

// Errors of changes of the membership, in etcd's own words.
var (
	// ErrNoSuchMember is returned for members that are not there, or not any more.
	ErrNoSuchMember = errors.New("etcdserver: member not found")
	// ErrUnhealthy is returned when the members that would be left are too few.
	ErrUnhealthy = errors.New("etcdserver: unhealthy cluster")
)

// database is what of a member's database can be told from outside.
type database struct {
	size int64

	// busy databases are being defragmented: their member answers nothing.
	busy bool

	// defragmented and disarmed are about the alarm that stands: whether the cause was mended, and whether somebody took it back.
	defragmented, disarmed bool
}

func newDatabase() database { return database{size: beginning} }

// raises says whether a member raises the alarm that was ordered. One about space that is taken back is raised anew by the next write, unless
// the database has become smaller meanwhile.
func (m *member) raises(f fault.Fault, ordered bool) bool {
	if !ordered {
		m.database.defragmented, m.database.disarmed = false, false
		return false
	}
	if f.Params[fault.ParamAlarm] == spaceAlarm && !m.database.defragmented {
		m.database.disarmed = false
	}
	return !m.database.disarmed
}

// size is what a member's database has on disk: as much as it may, where it was ordered to be full.
func (c *Cluster) size(m *member) int64 {
	if c.faults == nil || m.database.defragmented {
		return m.database.size
	}
	f, ordered := c.faults.Stands(fault.EtcdAlarm, fault.Site{Cluster: c.name, Node: m.Name})
	if ordered && f.Params[fault.ParamAlarm] == spaceAlarm {
		return quota
	}
	return m.database.size
}

// pauses says whether the cluster answers nothing since its only member is being defragmented.
func (c *Cluster) pauses() bool { return len(c.members) == 1 && c.members[0].database.busy }

// Defragment gives back what a member's database does not use. The member answers nothing meanwhile.
func (c *Cluster) Defragment(ctx context.Context, name string) error {
	c.mu.Lock()
	m, err := c.ask(name)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	m.database.busy = true
	c.signal()
	c.mu.Unlock()
	err = timing.Sleep(ctx, c.clock, c.timings.Defrag)
	c.mu.Lock()
	m.database.busy = false
	if err == nil {
		m.database.size, m.database.defragmented = inUse, true
	}
	leader := c.leaderName()
	c.signal()
	c.mu.Unlock()
	c.changed(leader)
	return err
}

// Disarm takes every alarm back, and returns them.
func (c *Cluster) Disarm(ctx context.Context, name string) ([]Alarm, error) {
	alarms, err := c.Alarms(ctx, name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		m.database.disarmed = true
	}
	return alarms, nil
}

// Remove takes a member out of the cluster for good. by is the machine whose member is asked, which may be the same.
func (c *Cluster) Remove(_ context.Context, by string, id uint64) error {
	c.mu.Lock()
	err := c.remove(by, id)
	leader := c.leaderName()
	c.mu.Unlock()
	if err == nil {
		c.changed(leader)
	}
	return err
}

func (c *Cluster) remove(by string, id uint64) error {
	if _, err := c.ask(by); err != nil {
		return err
	}
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.ID == id })
	switch {
	case !c.healthy():
		return ErrNoLeader
	case i < 0:
		return fmt.Errorf("%016x: %w", id, ErrNoSuchMember)
	case len(c.members) == 1 || !c.quorumWithout(id):
		return ErrUnhealthy
	}
	if m := c.machines[c.members[i].Name]; m != nil && c.members[i].Name == by {
		m.data = false // One that leaves deletes its data.
	}
	c.news(c.members[i], RemovedEvent)
	c.members = slices.Delete(c.members, i, i+1)
	if c.leader == id {
		c.leader = 0
		c.elect()
	}
	c.signal()
	return nil
}

// quorumWithout says whether the voters that are up would be enough if one member did not belong to the cluster.
func (c *Cluster) quorumWithout(id uint64) bool {
	voters, up := 0, 0
	for _, m := range c.members {
		if m.ID == id || c.learner(m) {
			continue
		}
		voters++
		if m.up {
			up++
		}
	}
	return up > voters/2
}
