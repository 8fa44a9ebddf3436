// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
)

// Entry is a key of etcd with what it holds.
type Entry struct {
	Key   string
	Value []byte
	// Revision is that of its last change.
	Revision int64
}

// Data is what the cluster holds.
type Data interface {
	// Dump returns the revision and all entries.
	Dump() (revision int64, entries []Entry, err error)
	// Load replaces all by what an earlier revision held.
	Load(revision int64, entries []Entry) error
}

// Hold makes the cluster hold data, before it is asked for anything.
func (c *Cluster) Hold(data Data) { c.data = data }

// keysOfSnapshot is how many keys a snapshot holds: enough for more than one page of a database.
const keysOfSnapshot = 100

// Snapshot makes what a member sends as a snapshot: a database as etcd's own storage writes it, with the SHA-256 of it behind it. Its
// revision is that of the data; without any, the index of the cluster. It is answered without a quorum too.
func (c *Cluster) Snapshot(_ context.Context, name string) (data []byte, revision int64, err error) {
	c.mu.Lock()
	_, err = c.ask(name)
	c.index++
	index, term := c.index, c.term
	members := make([]Member, 0, len(c.members))
	for _, m := range c.members {
		members = append(members, m.Member)
	}
	c.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	var entries []Entry
	revision, entries, err = c.dump(index)
	if err != nil {
		return nil, 0, fmt.Errorf("make a snapshot: %w", err)
	}
	data, err = writeDatabase(index, term, members, entries)
	if err != nil {
		return nil, 0, fmt.Errorf("make a snapshot: %w", err)
	}
	sum := sha256.Sum256(data)
	return append(data, sum[:]...), revision, nil
}

// fillerKey begins the keys that make up for data that nobody gave: they are there so that a snapshot has more than a page of a database.
const fillerKey = "/registry/configmaps/default/config-"

// revisionKey is what was written last, if everything else was written earlier: a deletion leaves no entry.
const revisionKey = "/registry/simulated/revision"

// dump returns what a snapshot holds.
func (c *Cluster) dump(index uint64) (revision int64, entries []Entry, err error) {
	if c.data == nil {
		for i := range int64(keysOfSnapshot) {
			entries = append(entries, Entry{
				Key: fmt.Sprintf("%s%03d", fillerKey, i), Value: bytes.Repeat([]byte{'v'}, 100), Revision: int64(index) - keysOfSnapshot + 1 + i,
			})
		}
		return int64(index), entries, nil
	}
	revision, entries, err = c.data.Dump()
	if err == nil && !slices.ContainsFunc(entries, func(e Entry) bool { return e.Revision == revision }) {
		entries = append(entries, Entry{Key: revisionKey, Revision: revision})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return int(a.Revision - b.Revision) })
	return revision, entries, err
}

func writeDatabase(index, term uint64, members []Member, entries []Entry) (data []byte, err error) {
	dir, err := os.MkdirTemp("", "ichor-sim-etcd-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store := backend.New(backend.BackendConfig{
		Path: filepath.Join(dir, "db"), BatchLimit: 10_000, BatchInterval: 1 << 30, MmapSize: 1 << 24, Logger: zap.NewNop(), UnsafeNoFsync: true,
	})
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := fill(store, index, term, entries); err != nil {
		return nil, err
	}
	list := schema.NewMembershipBackend(zap.NewNop(), store)
	for _, m := range members {
		list.MustSaveMemberToBackend(&membership.Member{
			ID:             types.ID(m.ID),
			RaftAttributes: membership.RaftAttributes{PeerURLs: []string{"https://" + m.Address + ":2380"}, IsLearner: m.Learner},
			Attributes:     membership.Attributes{Name: m.Name, ClientURLs: []string{"https://" + m.Address + ":2379"}},
		})
	}
	store.ForceCommit()
	snapshot := store.Snapshot()
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	var out bytes.Buffer
	if _, err := snapshot.WriteTo(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// fill writes the keys.
func fill(store backend.Backend, index, term uint64, entries []Entry) error {
	tx := store.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	for _, bucket := range schema.AllBuckets {
		tx.UnsafeCreateBucket(bucket)
	}
	schema.UnsafeCreateMetaBucket(tx)
	schema.UnsafeUpdateConsistentIndex(tx, index, term)
	for _, entry := range entries {
		kv := mvccpb.KeyValue{
			Key: []byte(entry.Key), Value: entry.Value, CreateRevision: entry.Revision, ModRevision: entry.Revision, Version: 1,
		}
		value, err := kv.Marshal()
		if err != nil {
			return err
		}
		key := append(binary.BigEndian.AppendUint64(nil, uint64(entry.Revision)), '_')
		tx.UnsafeSeqPut(schema.Key, binary.BigEndian.AppendUint64(key, 0), value)
	}
	return nil
}

// entryOf reads a key as fill writes it, and as etcd does.
func entryOf(key, value []byte) (Entry, error) {
	const revisionSize = 8
	var kv mvccpb.KeyValue
	if len(key) < revisionSize {
		return Entry{}, fmt.Errorf("a key of %d bytes", len(key))
	}
	if err := kv.Unmarshal(value); err != nil {
		return Entry{}, err
	}
	return Entry{Key: string(kv.Key), Value: kv.Value, Revision: int64(binary.BigEndian.Uint64(key))}, nil
}
