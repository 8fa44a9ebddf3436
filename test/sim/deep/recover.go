// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"fmt"
	"os"

	"ichor.maesh.dev/hub/test/sim/etcd"
)

// Preparing says that a machine's etcd has no data and waits for others to join, or to be bootstrapped.
func (c *Cluster) Preparing(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.byName[name]
	return n != nil && n.preparing
}

// Recover keeps a snapshot for the bootstrap that is to begin with it. A later one takes its place.
func (c *Cluster) Recover(name string, snapshot []byte) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	if !c.Preparing(name) && !n.hasData() {
		return etcd.ErrNotPreparing
	}
	return os.WriteFile(n.upload(), snapshot, 0o600)
}

// Bootstrap has a machine whose etcd waits begin a cluster of its own. It returns before that has begun.
func (c *Cluster) Bootstrap(name string, fromSnapshot, skipHashCheck bool) error {
	n, err := c.node(name)
	switch {
	case err != nil:
		return err
	case n.hasData():
		return etcd.ErrHasData
	case !c.Preparing(name):
		return etcd.ErrNotPreparing
	}
	c.change(func() { n.bootstrap = &Bootstrap{Recover: fromSnapshot, SkipHashCheck: skipHashCheck} })
	return nil
}

// restore makes the data directory from the snapshot that was uploaded, with etcd's own tool.
func (c *Cluster) restore(ctx context.Context, n *node, order Bootstrap) error {
	n.lifecycle.Lock()
	defer n.lifecycle.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	run, err := program{
		binary: c.Binary, log: n.log("recover"),
		arguments: []string{
			"recover", "--snapshot", n.upload(), "--data-dir", n.dataDir(), "--name", n.name, "--peer-url", n.peerURL(),
			fmt.Sprintf("--skip-hash-check=%t", order.SkipHashCheck),
		},
	}.start()
	if err != nil {
		return err
	}
	<-run.ended
	if run.err != nil {
		return fmt.Errorf("recover etcd of %s, see %s: %w", n.name, n.log("recover"), run.err)
	}
	return os.Remove(n.upload())
}

// Wipe deletes a machine's data and the snapshot that was uploaded. Its member is down.
func (c *Cluster) Wipe(name string) {
	n, err := c.node(name)
	if err != nil {
		return
	}
	n.lifecycle.Lock()
	defer n.lifecycle.Unlock()
	if err := n.clear(); err != nil {
		c.Logger.Error(err, "A disk was not wiped", "cluster", c.Name, "node", name)
	}
	_ = os.Remove(n.upload()) // There is none, most of the time.
	c.view.forget(name)
}
