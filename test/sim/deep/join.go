// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"ichor.maesh.dev/hub/test/sim/etcd"
)

// Bootstrap is how a machine without data begins a new cluster.
type Bootstrap struct {
	// Recover begins with the snapshot that was uploaded; SkipHashCheck accepts one without a hash.
	Recover, SkipHashCheck bool
}

// founding is how the first machine of a simulation begins.
var founding = Bootstrap{}

// errNobody says that there is no cluster to join yet.
var errNobody = errors.New("no other control plane serves etcd")

// Join starts a machine's member, and returns when that is a voter: with its data as it was, or without as a new member of the others'
// cluster, or of one of its own when it is told to bootstrap. It tries until the context ends.
func (c *Cluster) Join(ctx context.Context, name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	for {
		changed := c.changes()
		err := c.begin(ctx, n)
		if err == nil {
			c.look(ctx)
			return nil
		}
		if !errors.Is(err, errNobody) {
			c.Logger.V(1).Info("A member does not serve yet", "cluster", c.Name, "node", n.name, "reason", err.Error())
		}
		if waited := await(ctx, changed, time.Second); waited != nil {
			return errors.Join(waited, err)
		}
	}
}

// begin tries once.
func (c *Cluster) begin(ctx context.Context, n *node) error {
	c.mu.Lock()
	m, order := n.etcd, n.bootstrap
	c.mu.Unlock()
	switch {
	case m != nil:
		return c.goOn(ctx, n, m)
	case n.hasData():
		return c.start(ctx, n, membership{state: "existing"})
	case order != nil:
		return c.found(ctx, n, *order)
	}
	c.setPreparing(ctx, n, true)
	err := c.enter(ctx, n)
	c.setPreparing(ctx, n, err != nil && !n.hasData())
	return err
}

// setPreparing notes whether a machine's etcd waits. It is no change that would wake the one who waits.
func (c *Cluster) setPreparing(ctx context.Context, n *node, preparing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.preparing = preparing && ctx.Err() == nil
}

func (c *Cluster) start(ctx context.Context, n *node, begin membership) error {
	m, err := c.startEtcd(ctx, n, begin)
	if err != nil {
		return err
	}
	return c.goOn(ctx, n, m)
}

// goOn waits for a member that was started, and for its vote.
func (c *Cluster) goOn(ctx context.Context, n *node, m *member) error {
	if err := c.serves(ctx, n, m); err != nil {
		return err
	}
	return c.promote(ctx, n)
}

// found begins a cluster of one member.
func (c *Cluster) found(ctx context.Context, n *node, order Bootstrap) error {
	if order.Recover {
		if err := c.restore(ctx, n, order); err != nil {
			c.change(func() { n.bootstrap = nil }) // Somebody has to ask again.
			return err
		}
	}
	begin := membership{state: "new", peers: n.name + "=" + n.peerURL()}
	err := c.start(ctx, n, begin)
	c.change(func() { n.bootstrap, n.preparing = nil, false })
	return err
}

// enter joins the others' cluster as a learner.
func (c *Cluster) enter(ctx context.Context, n *node) error {
	client, err := c.other(n)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	members, id, err := addLearner(ctx, client, n)
	if err != nil {
		return err
	}
	return c.start(ctx, n, membership{state: "existing", peers: initialCluster(members, id, n.name)})
}

// other is a client of any member that runs, but not of one machine.
func (c *Cluster) other(n *node) (*clientv3.Client, error) {
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	for _, o := range nodes {
		if o == n || !c.view.serving(o.name) {
			continue
		}
		if _, client, err := c.ask(o.name); err == nil {
			return client, nil
		}
	}
	return nil, errNobody
}

// addLearner makes a machine a member, in place of the one of its name if there still is one. It returns all members.
func addLearner(ctx context.Context, client *clientv3.Client, n *node) ([]*etcdserverpb.Member, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("list the members: %w", err)
	}
	for _, m := range list.Members {
		switch {
		case m.Name == n.name:
			if _, err := client.MemberRemove(ctx, m.ID); err != nil {
				return nil, 0, fmt.Errorf("remove the former member %016x: %w", m.ID, err)
			}
		case m.Name == "" && m.IsLearner && slices.Equal(m.PeerURLs, []string{n.peerURL()}):
			return list.Members, m.ID, nil // An earlier attempt got as far.
		}
	}
	added, err := client.MemberAddAsLearner(ctx, []string{n.peerURL()})
	if err != nil {
		return nil, 0, fmt.Errorf("add a learner: %w", err)
	}
	return added.Members, added.Member.ID, nil
}

// initialCluster is how etcd is told of all members. The new one has no name yet.
func initialCluster(members []*etcdserverpb.Member, id uint64, name string) string {
	var list []string
	for _, m := range members {
		if m.ID == id {
			m.Name = name
		}
		for _, url := range m.PeerURLs {
			list = append(list, m.Name+"="+url)
		}
	}
	return strings.Join(list, ",")
}

// promote makes a machine's member a voter, if it is none. That takes another member, and one that has caught up.
func (c *Cluster) promote(ctx context.Context, n *node) error {
	for {
		status, err := c.status(ctx, n)
		if err == nil && !status.IsLearner {
			return nil
		}
		if err == nil {
			err = c.attemptPromotion(ctx, n, status.Header.MemberId)
		}
		if waited := await(ctx, nil, pollEvery*3); waited != nil {
			return errors.Join(waited, err)
		}
		if errors.Is(err, etcd.ErrNotRunning) {
			return err
		}
	}
}

func (c *Cluster) attemptPromotion(ctx context.Context, n *node, id uint64) error {
	client, err := c.other(n)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, err = client.MemberPromote(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil
	}
	return err
}

// Down takes a machine's processes away, as a power cut does.
func (c *Cluster) Down(name string) {
	n, err := c.node(name)
	if err != nil {
		return
	}
	err = errors.Join(c.stopEtcd(n, (*process).kill), c.stopServer(n))
	if err != nil {
		c.Logger.Error(err, "A machine's processes did not end", "cluster", c.Name, "node", name)
	}
	c.change(func() { n.preparing, n.bootstrap = false, nil })
	c.look(c.life)
}
