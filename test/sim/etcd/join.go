// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"

	"ichor.maesh.dev/hub/test/sim/timing"
)

// Join starts a machine's member and returns when that votes: with its data as it was, or without as a new member of the others' cluster,
// or of one of its own when it is told to bootstrap. It waits until the context ends, which it does before the machine goes down.
func (c *Cluster) Join(ctx context.Context, name string) error {
	for {
		joined, learner, wake, err := c.begin(ctx, name)
		switch {
		case err != nil:
			return err
		case learner:
			if err := timing.Sleep(ctx, c.clock, c.timings.EtcdJoin); err != nil {
				return err
			}
			c.promote(name)
			return ctx.Err()
		case joined:
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			c.give(name)
			return ctx.Err()
		}
	}
}

// begin tries once. Without success, the channel closes when something has changed.
func (c *Cluster) begin(ctx context.Context, name string) (joined, learner bool, wake <-chan struct{}, err error) {
	c.mu.Lock()
	m := c.machines[name]
	if m == nil || ctx.Err() != nil {
		c.mu.Unlock()
		return false, false, nil, firstOf(ctx.Err(), ErrNotRunning)
	}
	joined, learner = c.enter(name, m)
	if joined {
		c.settle()
	}
	leader, wake := c.leaderName(), c.wake
	c.mu.Unlock()
	if joined {
		c.changed(leader)
	}
	return joined, learner, wake, nil
}

func firstOf(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// enter brings a member up if it can be one; a learner has yet to become a voter. The caller holds the lock.
func (c *Cluster) enter(name string, m *machine) (joined, learner bool) {
	own := c.named(name)
	switch {
	case m.data && own == nil: // It was removed by somebody else: etcd does not run without being a member.
		return false, false
	case m.data:
		own.up = true
		return true, own.Learner
	}
	m.preparing = true
	if m.order != nil {
		c.found(name, m)
		return m.data, false
	}
	if !c.healthy() || slices.ContainsFunc(c.members, func(o *member) bool { return o.Learner }) {
		return false, false // Nobody to join, or another one joins: etcd takes one learner at a time.
	}
	if stale := c.named(name); stale != nil {
		c.news(stale, RemovedEvent)
	}
	c.members = slices.DeleteFunc(c.members, func(o *member) bool { return o.Name == name })
	c.admit(name, m, true)
	c.news(c.members[len(c.members)-1], LearnerEvent)
	return true, true
}

// promote makes a learner a voter.
func (c *Cluster) promote(name string) {
	c.mu.Lock()
	if m := c.named(name); m != nil && m.Learner {
		m.Learner = false
		c.news(m, VoterEvent)
	}
	c.settle()
	leader := c.leaderName()
	c.mu.Unlock()
	c.changed(leader)
}

// give is the end of waiting.
func (c *Cluster) give(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.machines[name]; m != nil {
		m.preparing, m.order = false, nil
	}
}

// settle lets the members that are up elect a leader, or do without. The caller holds the lock.
func (c *Cluster) settle() {
	if m := c.find(c.leader); m == nil || !m.up || !c.quorum() {
		c.leader = 0
	}
	if c.leader == 0 && c.quorum() {
		c.elect()
	}
	c.signal()
}
