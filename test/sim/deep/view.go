// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// view is what is known of the members without asking them.
type view struct {
	mu     sync.Mutex
	leader string            // The name of the leader's machine; empty while there is none.
	ids    map[string]uint64 // By the names of machines whose members have answered.
	up     map[string]bool   // Those whose members vote and know a leader.
}

func (v *view) serving(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.up[name]
}

// observeEvery is the pause between two looks at the members.
const observeEvery = 300 * time.Millisecond

// observe looks at the members from time to time.
func (c *Cluster) observe() {
	for await(c.life, nil, observeEvery) == nil {
		c.look(c.life)
	}
}

// look asks all members, and tells of another leader.
func (c *Cluster) look(ctx context.Context) {
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	var mu sync.Mutex
	answers := map[string]*clientv3.StatusResponse{}
	var group sync.WaitGroup
	for _, n := range nodes {
		group.Go(func() {
			if status, err := c.status(ctx, n); err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers[n.name] = status
			}
		})
	}
	group.Wait()
	if c.view.take(answers) {
		c.change(func() {})
		c.Changed(c.Leader())
	}
}

// take notes what the members have answered, and says whether that is news.
func (v *view) take(answers map[string]*clientv3.StatusResponse) bool {
	leader, ids, up := "", map[string]uint64{}, map[string]bool{}
	for name, status := range answers {
		ids[name] = status.Header.MemberId
		up[name] = status.Leader != 0 && !status.IsLearner
		if status.Leader == status.Header.MemberId {
			leader = name
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	news := leader != v.leader || !maps.Equal(up, v.up)
	for name, id := range v.ids {
		if _, known := ids[name]; !known {
			ids[name] = id // It is the same after a reboot.
		}
	}
	v.leader, v.ids, v.up = leader, ids, up
	return news
}

// forget is for a member that is gone for good.
func (v *view) forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.ids, name)
	delete(v.up, name)
}

// status is what a member says of itself.
func (c *Cluster) status(ctx context.Context, n *node) (*clientv3.StatusResponse, error) {
	_, client, err := c.ask(n.name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return client.Status(ctx, n.clientURL())
}

// MemberID is the ID of a machine's member, zero while it has none.
func (c *Cluster) MemberID(name string) uint64 {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	return c.view.ids[name]
}

// Leader is the name of the leader, or nothing while there is none.
func (c *Cluster) Leader() string {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	return c.view.leader
}

// Healthy says whether there is a leader.
func (c *Cluster) Healthy() bool { return c.Leader() != "" }

// WaitHealthy waits until there is a leader.
func (c *Cluster) WaitHealthy(ctx context.Context) error {
	for {
		changed := c.changes()
		if c.Healthy() {
			return nil
		}
		if err := await(ctx, changed, observeEvery); err != nil {
			return err
		}
	}
}
