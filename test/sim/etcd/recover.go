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
	"strconv"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// Lose takes the data of a member away for good. The others still count it, until it joins anew.
func (c *Cluster) Lose(id uint64) {
	c.mu.Lock()
	if m := c.find(id); m != nil {
		m.lost = true
	}
	c.mu.Unlock()
	c.set(id, false)
}

// Join waits until there is an etcd of others that serves and has no other learner, and joins it as one. What it knows of an earlier member
// of the name goes.
func (c *Cluster) Join(ctx context.Context, name, address string) (uint64, error) {
	for {
		c.mu.Lock()
		wake := c.wake
		if c.healthy() && !slices.ContainsFunc(c.members, func(m *member) bool { return m.Learner }) {
			id := c.join(name, address)
			leader := c.leaderName()
			c.mu.Unlock()
			c.changed(leader)
			return id, nil
		}
		c.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (c *Cluster) join(name, address string) uint64 {
	c.members = slices.DeleteFunc(c.members, func(m *member) bool { return m.Name == name && m.lost })
	m := c.newMember(name, address)
	m.Learner = true
	c.members = append(c.members, m)
	c.signal()
	return m.ID
}

func (c *Cluster) newMember(name, address string) *member {
	c.joins++
	id := memberID(c.name, name+"#"+strconv.Itoa(c.joins))
	return &member{Member: Member{ID: id, Name: name, Address: address}, up: true, database: newDatabase()}
}

// Promote makes a learner a voter.
func (c *Cluster) Promote(id uint64) bool {
	c.mu.Lock()
	m := c.find(id)
	if m != nil {
		m.Learner = false
		c.signal()
	}
	leader := c.leaderName()
	c.mu.Unlock()
	c.changed(leader)
	return m != nil
}

// Errors of snapshots that no etcd begins with, in its own words.
var (
	errNoHash  = errors.New("snapshot missing hash but --skip-hash-check=false")
	errNoMatch = errors.New("expected sha256 does not match")
)

// Recover begins a new etcd of one member with a snapshot, whatever there was before. It returns the member, and the revision for people.
func (c *Cluster) Recover(name, address string, snapshot []byte, skipHash bool) (id uint64, revision string, err error) {
	at, entries, err := readDatabase(snapshot, skipHash)
	if err != nil {
		return 0, "", err
	}
	if c.data != nil {
		if err := c.data.Load(at, entries); err != nil {
			return 0, "", err
		}
	}
	c.mu.Lock()
	m := c.newMember(name, address)
	c.members, c.index = []*member{m}, max(c.index, uint64(at))
	c.election++ // Whatever was to be elected.
	c.lead(m)
	c.mu.Unlock()
	c.changed(name)
	return m.ID, strconv.FormatInt(at, 10), nil
}

// readDatabase reads what a snapshot holds.
func readDatabase(snapshot []byte, skipHash bool) (revision int64, entries []Entry, err error) {
	database, err := unhashed(snapshot, skipHash)
	if err != nil {
		return 0, nil, err
	}
	dir, err := os.MkdirTemp("", "ichor-sim-etcd-")
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "db")
	if err := os.WriteFile(file, database, 0o600); err != nil {
		return 0, nil, err
	}
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return 0, nil, fmt.Errorf("open the snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(schema.Key.Name())
		if bucket == nil {
			return errors.New("the snapshot has no keys")
		}
		return bucket.ForEach(func(key, value []byte) error {
			entry, err := entryOf(key, value)
			revision = max(revision, entry.Revision)
			entries = append(entries, entry)
			return err
		})
	})
	return revision, entries, err
}

// unhashed is a snapshot without its hash, if that is right.
func unhashed(snapshot []byte, skipHash bool) ([]byte, error) {
	const sector = 512
	if len(snapshot)%sector != sha256.Size {
		if skipHash {
			return snapshot, nil
		}
		return nil, errNoHash
	}
	database, sum := snapshot[:len(snapshot)-sha256.Size], snapshot[len(snapshot)-sha256.Size:]
	if want := sha256.Sum256(database); !skipHash && !bytes.Equal(want[:], sum) {
		return nil, errNoMatch
	}
	return database, nil
}

func entryOf(key, value []byte) (Entry, error) {
	var kv mvccpb.KeyValue
	if err := kv.Unmarshal(value); err != nil {
		return Entry{}, err
	}
	const revisionSize = 8
	if len(key) < revisionSize {
		return Entry{}, fmt.Errorf("a key of %d bytes", len(key))
	}
	return Entry{Key: string(kv.Key), Value: kv.Value, Revision: int64(binary.BigEndian.Uint64(key))}, nil
}
