// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
)

// errLearner is what a learner answers to a read that needs the quorum.
var errLearner = errors.New("etcdserver: rpc not supported for learner")

// ValidateForUpgrade is Talos's check before an upgrade of a control plane: any member count but two, and every member started,
// voting and up. It says nothing about how many members the upgrade may take away.
func (c *Cluster) ValidateForUpgrade(ctx context.Context) error {
	if err := c.Serve(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) == 2 {
		return fmt.Errorf("etcd member count(%d) is insufficient to maintain quorum if upgrade commences", len(c.members))
	}
	for _, m := range c.members {
		if m.Name == "" {
			return fmt.Errorf("etcd member %016x is not started, all members must be running to perform an upgrade", m.ID)
		}
		if err := m.read(); err != nil {
			return fmt.Errorf("etcd member %016x is not healthy; all members must be healthy to perform an upgrade: %w", m.ID, err)
		}
	}
	return nil
}

// read is a linearizable read through one member.
func (m *member) read() error {
	switch {
	case !m.up:
		return ErrNotRunning
	case m.Learner:
		return errLearner
	}
	return nil
}
