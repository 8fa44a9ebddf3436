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

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
)

// keysOfSnapshot is how many keys a snapshot holds: enough for more than one page of a database.
const keysOfSnapshot = 100

// Snapshot makes what a member sends as a snapshot: a database as etcd's own storage writes it, with the SHA-256 of it behind it. Its
// revision is the index of the cluster. It is answered without a quorum too.
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
	data, err = writeDatabase(index, term, members)
	if err != nil {
		return nil, 0, fmt.Errorf("make a snapshot: %w", err)
	}
	sum := sha256.Sum256(data)
	return append(data, sum[:]...), int64(index), nil
}

func writeDatabase(index, term uint64, members []Member) (data []byte, err error) {
	dir, err := os.MkdirTemp("", "ichor-sim-etcd-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store := backend.New(backend.BackendConfig{
		Path: filepath.Join(dir, "db"), BatchLimit: 10_000, BatchInterval: 1 << 30, MmapSize: 1 << 24, Logger: zap.NewNop(), UnsafeNoFsync: true,
	})
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := fill(store, index, term); err != nil {
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

// fill writes the keys that the revisions up to the index left.
func fill(store backend.Backend, index, term uint64) error {
	tx := store.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	for _, bucket := range schema.AllBuckets {
		tx.UnsafeCreateBucket(bucket)
	}
	schema.UnsafeCreateMetaBucket(tx)
	schema.UnsafeUpdateConsistentIndex(tx, index, term)
	for i := range uint64(keysOfSnapshot) {
		revision := index - keysOfSnapshot + 1 + i
		kv := mvccpb.KeyValue{
			Key: fmt.Appendf(nil, "/registry/configmaps/default/config-%03d", i), Value: bytes.Repeat([]byte{'v'}, 100),
			CreateRevision: int64(revision), ModRevision: int64(revision), Version: 1,
		}
		value, err := kv.Marshal()
		if err != nil {
			return err
		}
		key := append(binary.BigEndian.AppendUint64(nil, revision), '_')
		tx.UnsafeSeqPut(schema.Key, binary.BigEndian.AppendUint64(key, 0), value)
	}
	return nil
}
