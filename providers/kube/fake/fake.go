// SPDX-License-Identifier: Apache-2.0

// Package fake stands in for the Kubernetes API of targets in tests: it takes orders and keeps minutes.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/target"
)

// Kube is a kube.Provider whose Nodes live in memory.
type Kube struct {
	*script.Script

	// Annotated is called after an annotation of a Node was changed, if it is set: a storage operator lives here.
	Annotated func(node *kube.Node)

	// Synced is called with the manifests that were applied, if it is set: the controllers of workloads live here.
	Synced func(manifests []map[string]any)

	mu         sync.Mutex
	nodes      map[string]*kube.Node
	pods       []kube.ComponentPod
	workloads  map[string]kube.Workload
	deprecated []kube.DeprecatedAPI
	changes    []kube.ManifestChange
	record     kube.Record
	silent     bool
	servers    map[string][]string
	legacy     []kube.LegacyToken
	stored     map[string][]string
	written    map[string]int
	revision   int64
	stale      []kube.Stale
}

// New returns a Kube without Nodes.
func New() *Kube {
	return &Kube{Script: script.New(), nodes: map[string]*kube.Node{}, workloads: map[string]kube.Workload{}}
}

// Set adds or replaces a Node.
func (k *Kube) Set(node kube.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[node.Name] = &node
}

// Remove removes a Node.
func (k *Kube) Remove(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.nodes, name)
}

// Change changes a Node.
func (k *Kube) Change(name string, change func(*kube.Node)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k.nodes[name])
}

// Get is a Node as it is now.
func (k *Kube) Get(name string) kube.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *k.nodes[name]
}

// Silence makes the API not answer, or answer again.
func (k *Kube) Silence(silent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.silent = silent
}

// answer is nil, or what a dial to nobody ends with.
func (k *Kube) answer() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.answerLocked()
}

func (k *Kube) answerLocked() error {
	if k.silent {
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return nil
}

// Record is the hub's record as it is now.
func (k *Kube) Record() kube.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.record
}

// SetRecord replaces the hub's record.
func (k *Kube) SetRecord(record kube.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	record.Version = k.nextVersion()
	k.record = record
}

// SetRevision says at which revision etcd is.
func (k *Kube) SetRevision(revision int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revision = revision
}

// Stale is what was ordered to be deleted as of the past.
func (k *Kube) Stale() []kube.Stale {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.stale)
}

// nextVersion is another resourceVersion than the record has.
func (k *Kube) nextVersion() string {
	version, _ := strconv.Atoi(k.record.Version) // The first one is empty.
	return strconv.Itoa(version + 1)
}

// Reader implements kube.Provider.
func (k *Kube) Reader(context.Context, target.Target) (kube.Reader, error) {
	return &client{Kube: k}, nil
}

// Writer implements kube.Provider.
func (k *Kube) Writer(_ context.Context, _ target.Target, g guard.Func) (kube.Writer, error) {
	return &client{Kube: k, guard: g}, nil
}

type client struct {
	*Kube

	guard guard.Func
}

func (c *client) Version(context.Context) (string, error) { return "v1.35.2", nil }

func (c *client) Nodes(context.Context) ([]kube.Node, error) {
	if err := c.answer(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []kube.Node
	for _, node := range c.nodes {
		found := *node
		found.Storage = maps.Clone(node.Storage)
		list = append(list, found)
	}
	return list, nil
}

func (c *client) Node(_ context.Context, name string) (*kube.Node, error) {
	if err := c.answer(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	node, ok := c.nodes[name]
	if !ok {
		return nil, nil
	}
	found := *node
	found.Storage = maps.Clone(node.Storage)
	return &found, nil
}

func (c *client) change(ctx context.Context, call, name string, effect func(*kube.Node)) error {
	if err := errors.Join(guard.Check(guard.With(ctx, c.guard), call), c.answer()); err != nil {
		return err
	}
	return c.Run(ctx, call, name, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		node, ok := c.nodes[name]
		if !ok {
			return fmt.Errorf("node %q not found", name)
		}
		effect(node)
		return nil
	})
}

func (c *client) Cordon(ctx context.Context, name, owner string) error {
	return c.change(ctx, "Cordon", name, func(node *kube.Node) {
		if !node.Unschedulable {
			node.Unschedulable, node.CordonedBy = true, owner
		}
	})
}

func (c *client) Drain(ctx context.Context, name string) error {
	return c.change(ctx, "Drain", name, func(*kube.Node) {})
}

func (c *client) Uncordon(ctx context.Context, name, owner string) error {
	return c.change(ctx, "Uncordon", name, func(node *kube.Node) {
		if node.CordonedBy == owner {
			node.Unschedulable, node.CordonedBy = false, ""
		}
	})
}

// DeleteNode deletes a Node, unless it is another machine's.
func (c *client) DeleteNode(ctx context.Context, name, uuid string) (deleted bool, err error) {
	if err := errors.Join(guard.Check(guard.With(ctx, c.guard), "DeleteNode"), c.answer()); err != nil {
		return false, err
	}
	err = c.Run(ctx, "DeleteNode", name, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if node, ok := c.nodes[name]; ok && (node.UUID == "" || node.UUID == uuid) {
			delete(c.nodes, name)
			deleted = true
		}
		return nil
	})
	return deleted, err
}

func (c *client) Record(context.Context) (kube.Record, error) { return c.Kube.Record(), c.answer() }

func (c *client) Revision(context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	revision := c.revision
	return revision, c.answerLocked()
}

// RemoveStale deletes the Nodes that are meant.
func (c *client) RemoveStale(ctx context.Context, stale kube.Stale) (removed kube.Removed, err error) {
	if err := errors.Join(guard.Check(guard.With(ctx, c.guard), "RemoveStale"), c.answer()); err != nil {
		return kube.Removed{}, err
	}
	err = c.Run(ctx, "RemoveStale", "", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stale = append(c.stale, stale)
		for _, name := range stale.Nodes {
			if node, ok := c.nodes[name]; ok && !node.Ready {
				delete(c.nodes, name)
				removed.Nodes++
			}
		}
		return nil
	})
	return removed, err
}

func (c *client) WriteRecord(ctx context.Context, record kube.Record) error {
	if err := guard.Check(guard.With(ctx, c.guard), "WriteRecord"); err != nil {
		return err
	}
	return c.Run(ctx, "WriteRecord", record.Stage, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if record.Version != c.record.Version {
			return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, kube.RecordName, errors.New("it has changed"))
		}
		record.Version = c.nextVersion()
		c.record = record
		return nil
	})
}

func (c *client) Annotate(ctx context.Context, name, key string, change func(now string) string) error {
	if node, _ := c.Node(ctx, name); node != nil && change(node.Storage[key]) == node.Storage[key] {
		return nil
	}
	return c.change(ctx, "Annotate", name, func(node *kube.Node) {
		if node.Storage == nil {
			node.Storage = map[string]string{}
		}
		if node.Storage[key] = change(node.Storage[key]); node.Storage[key] == "" {
			delete(node.Storage, key)
		}
		if c.Annotated != nil {
			c.Annotated(node)
		}
	})
}
