// SPDX-License-Identifier: Apache-2.0

package deep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/secrets"
)

// Options say what a cluster's processes are made of.
type Options struct {
	// Name is the cluster's name.
	Name string
	// Dir keeps what is on the control planes' disks.
	Dir string
	// Binary is the API server, which is etcd as well.
	Binary string
	// Files are what Talos has written on a machine from its config.
	Files func(node string) (*secrets.Files, error)
	// Audit hears of each change that a client from outside has asked an API server for, when that is over.
	Audit func(node string, event *auditv1.Event)
	// Changed is told the leader's name after each change of it.
	Changed func(leader string)
	// BackOff is the pause before a process that has ended is started again.
	BackOff time.Duration
	// Logger hears of what goes wrong.
	Logger logr.Logger
}

// Cluster is the control plane of one cluster, as processes. Its methods may be called from any goroutine.
type Cluster struct {
	Options

	life    context.Context //nolint:containedctx // Ends with the cluster; what runs in the background asks it.
	endLife context.CancelFunc
	running chan struct{} // Closed when Run has started everything.
	group   sync.WaitGroup

	mu     sync.Mutex
	nodes  []*node // In the order of Add.
	byName map[string]*node
	view   view
	wake   chan struct{} // Closed and replaced at each change.
}

// New makes a cluster without machines.
func New(o Options) *Cluster {
	c := &Cluster{Options: o, byName: map[string]*node{}, running: make(chan struct{}), wake: make(chan struct{})}
	c.life, c.endLife = context.WithCancel(context.Background())
	return c
}

// Add tells of a control plane. Nothing runs before Run.
func (c *Cluster) Add(name, address string) {
	n, err := newNode(c.Dir, name, address)
	if err != nil {
		c.Logger.Error(err, "A disk could not be made", "cluster", c.Name)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes, c.byName[name] = append(c.nodes, n), n
}

// Know tells of a machine that may join one day. Nothing runs there before its disk is made.
func (c *Cluster) Know(name, address string) { c.Add(name, address) }

// Run starts what the machines ran last, or makes a new cluster of them, and returns when all of it serves. server is what a machine's
// config says about its API server.
func (c *Cluster) Run(ctx context.Context, server func(node string) component.Part) error {
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	if len(nodes) == 0 {
		return errors.New("the cluster has no control plane")
	}
	founded := filepath.Join(c.Dir, "founded")
	if _, err := os.Stat(founded); errors.Is(err, os.ErrNotExist) {
		c.change(func() { nodes[0].bootstrap = &founding })
	}
	c.group.Go(c.observe)
	for _, n := range nodes {
		c.followAudit(n)
	}
	group, starting := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error { return c.startNode(starting, n, server(n.name)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	close(c.running)
	return errors.Join(os.WriteFile(founded, nil, 0o600), c.WaitHealthy(ctx))
}

func (c *Cluster) startNode(ctx context.Context, n *node, part component.Part) error {
	if err := c.Join(ctx, n.name); err != nil {
		return fmt.Errorf("etcd of %s: %w", n.name, err)
	}
	if err := c.startServer(ctx, n, part); err != nil {
		return fmt.Errorf("API server of %s: %w", n.name, err)
	}
	return nil
}

// Stop ends all processes in order. What is on the disks stays.
func (c *Cluster) Stop() error {
	c.endLife()
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { errs[i] = errors.Join(c.stopServer(n), c.stopEtcd(n, (*process).stop)) })
	}
	group.Wait()
	c.group.Wait()
	return errors.Join(errs...)
}

// change changes the cluster's state and wakes whoever waits for that.
func (c *Cluster) change(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
	close(c.wake)
	c.wake = make(chan struct{})
}

// await waits until something has changed since the channel was taken, or for a while.
func await(ctx context.Context, changed <-chan struct{}, atMost time.Duration) error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// changes is a channel that closes at the next change.
func (c *Cluster) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wake
}

func (c *Cluster) node(name string) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.byName[name]; ok {
		return n, nil
	}
	return nil, fmt.Errorf("machine %s has no etcd: %w", name, etcd.ErrNotRunning)
}

// write brings the files on a machine's disk in line with its config.
func (c *Cluster) write(n *node) (*secrets.Files, error) {
	n.disk.Lock()
	defer n.disk.Unlock()
	files, err := c.Files(n.name)
	if err != nil {
		return nil, fmt.Errorf("files of %s: %w", n.name, err)
	}
	if n.written == files {
		return files, nil
	}
	if _, err := files.Write(n.root()); err != nil {
		return nil, fmt.Errorf("write the files of %s: %w", n.name, err)
	}
	n.written = files
	return files, nil
}

// Rewrite is write for a machine whose processes run already.
func (c *Cluster) Rewrite(name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	_, err = c.write(n)
	return err
}

// Processes are the process IDs of what runs on a machine, by the names of the programs.
func (c *Cluster) Processes(name string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	running := map[string]int{}
	n := c.byName[name]
	if n == nil {
		return running
	}
	if n.etcd != nil && !n.etcd.process.gone() {
		running["etcd"] = n.etcd.process.pid
	}
	if n.server != nil && !n.server.process.gone() {
		running[component.APIServer] = n.server.process.pid
	}
	return running
}
