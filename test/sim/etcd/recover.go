// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// Errors of a bootstrap and of the upload that it begins with.
var (
	// ErrNotPreparing is returned while the machine's etcd does not wait to be bootstrapped.
	ErrNotPreparing = errors.New("bootstrap is not available yet")
	// ErrHasData is returned when there is something in the data directory.
	ErrHasData = errors.New("etcd data directory is not empty")
)

// machine is what a control plane has of etcd while its member does not run.
type machine struct {
	address string
	data    bool   // Its data directory is not empty.
	upload  []byte // The snapshot that was uploaded.
	joins   int    // How many members it has had.

	preparing bool       // Its etcd waits to join others, or to be bootstrapped.
	order     *bootstrap // What it was asked for meanwhile.
}

// bootstrap is how a machine begins a cluster of its own.
type bootstrap struct{ recover, skipHashCheck bool }

// Preparing says that a machine's etcd has no data and waits for others to join, or to be bootstrapped.
func (c *Cluster) Preparing(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[name]
	return m != nil && m.preparing
}

// Recover keeps a snapshot for the bootstrap that is to begin with it. A later one takes its place.
func (c *Cluster) Recover(name string, snapshot []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[name]
	if m == nil || !m.preparing && !m.data {
		return ErrNotPreparing
	}
	m.upload = bytes.Clone(snapshot)
	return nil
}

// Bootstrap has a machine whose etcd waits begin a cluster of its own. It returns before that has begun.
func (c *Cluster) Bootstrap(name string, fromSnapshot, skipHashCheck bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := c.machines[name]; {
	case m == nil:
		return ErrNotPreparing
	case m.data:
		return ErrHasData
	case !m.preparing:
		return ErrNotPreparing
	default:
		m.order = &bootstrap{recover: fromSnapshot, skipHashCheck: skipHashCheck}
	}
	c.signal()
	return nil
}

// Wipe deletes a machine's data and the snapshot that was uploaded. Its member is down, and stays one for the others. When nobody has data,
// there is no cluster any more.
func (c *Cluster) Wipe(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[name]
	if m == nil {
		return
	}
	m.data, m.upload = false, nil
	for _, other := range c.machines {
		if other.data {
			return
		}
	}
	c.members, c.leader = nil, 0
	c.signal()
}

// found begins a cluster of one member. A snapshot that cannot be used leaves everything as it is, and the order is forgotten.
func (c *Cluster) found(name string, m *machine) {
	order := *m.order
	m.order = nil
	revision := uint64(beginningIndex)
	if order.recover {
		at, entries, err := contentOf(m.upload, order.skipHashCheck)
		if err == nil && c.data != nil {
			err = c.data.Load(at, entries)
		}
		if err != nil {
			return
		}
		revision, m.upload = uint64(at), nil
	}
	c.members, c.leader = nil, 0
	c.term, c.index = beginningTerm, revision
	c.admit(name, m, false)
	c.lead(c.members[0])
}

// admit makes a machine a member. Every one that it has had was another.
func (c *Cluster) admit(name string, m *machine, learner bool) {
	id := memberID(c.name, name)
	if m.joins > 0 {
		id = memberID(c.name, fmt.Sprintf("%s/%d", name, m.joins))
	}
	m.joins, m.data, m.preparing = m.joins+1, true, false
	c.members = append(c.members, &member{
		Member: Member{ID: id, Name: name, Address: m.address, Learner: learner}, up: true, database: newDatabase(),
	})
}

// contentOf checks a snapshot as etcd does, and returns the revision of its last key and what it holds.
func contentOf(snapshot []byte, skipHashCheck bool) (revision int64, entries []Entry, err error) {
	content, err := withoutHash(snapshot, skipHashCheck)
	if err != nil {
		return 0, nil, err
	}
	dir, err := os.MkdirTemp("", "ichor-sim-etcd-")
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return 0, nil, err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return 0, nil, fmt.Errorf("open the snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return errors.New("the snapshot has no keys")
		}
		return keys.ForEach(func(key, value []byte) error {
			entry, err := entryOf(key, value)
			revision, entries = max(revision, entry.Revision), append(entries, entry)
			return err
		})
	})
	return revision, entries, err
}

// withoutHash takes the hash away that is behind the database, where there is one.
func withoutHash(snapshot []byte, skipHashCheck bool) ([]byte, error) {
	const sector = 512
	if len(snapshot)%sector != sha256.Size {
		if skipHashCheck {
			return snapshot, nil
		}
		return nil, errors.New("snapshot missing hash but --skip-hash-check=false")
	}
	content, hash := snapshot[:len(snapshot)-sha256.Size], snapshot[len(snapshot)-sha256.Size:]
	if sum := sha256.Sum256(content); !skipHashCheck && !bytes.Equal(sum[:], hash) {
		return nil, fmt.Errorf("expected sha256 %x, got %x", hash, sum)
	}
	return content, nil
}
