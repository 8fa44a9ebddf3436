// SPDX-License-Identifier: Apache-2.0

// Package etcdfile checks a snapshot of etcd while it streams by.
//
// A snapshot is a database of bbolt with the SHA-256 of all of it at the end. The revision that it holds is the last key of its bucket
// "key", which is found without keeping the database: of each page only what leads there is kept, 8 bytes for most.
package etcdfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
)

// Facts are what a snapshot is known by.
type Facts struct {
	// Size is the size of the whole snapshot, and Hash the SHA-256 of it in hexadecimal.
	Size int64
	Hash string

	// Revision is the revision of etcd that it holds.
	Revision int64
}

// ErrDamaged means that what came by is no whole snapshot.
var ErrDamaged = errors.New("the snapshot is damaged")

// Checker takes a snapshot as a Writer. It never fails before Finish.
type Checker struct {
	size        int64
	whole, body hash.Hash
	tail        []byte // The last bytes so far, which may be the sum.
	pages       pages
}

// New returns a Checker.
func New() *Checker { return &Checker{whole: sha256.New(), body: sha256.New()} }

// Write implements io.Writer.
func (c *Checker) Write(data []byte) (int, error) {
	c.size += int64(len(data))
	c.whole.Write(data)
	c.tail = append(c.tail, data...)
	if extra := len(c.tail) - sha256.Size; extra > 0 {
		c.body.Write(c.tail[:extra])
		c.pages.write(c.tail[:extra])
		c.tail = append(c.tail[:0], c.tail[extra:]...)
	}
	return len(data), nil
}

// sector is what the size of a database is a multiple of.
const sector = 512

// FinishRawCopy is Finish for a database that was copied from a disk, which has no sum at its end.
func (c *Checker) FinishRawCopy() (Facts, error) {
	if c.size == 0 || c.size%sector != 0 {
		return Facts{}, fmt.Errorf("%w: a database has a multiple of %d bytes, and this has %d", ErrDamaged, sector, c.size)
	}
	c.pages.write(c.tail)
	revision, err := c.pages.revision()
	if err != nil {
		return Facts{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return Facts{Size: c.size, Hash: hex.EncodeToString(c.whole.Sum(nil)), Revision: revision}, nil
}

// Finish says what the snapshot is, or why it is none.
func (c *Checker) Finish() (Facts, error) {
	switch {
	case c.size == 0:
		return Facts{}, fmt.Errorf("%w: it is empty", ErrDamaged)
	case c.size%sector != sha256.Size:
		return Facts{}, fmt.Errorf("%w: a snapshot of %d bytes does not end with a SHA-256", ErrDamaged, c.size)
	case !bytes.Equal(c.body.Sum(nil), c.tail):
		return Facts{}, fmt.Errorf("%w: its data is not what the SHA-256 at its end was made of", ErrDamaged)
	}
	revision, err := c.pages.revision()
	if err != nil {
		return Facts{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return Facts{Size: c.size, Hash: hex.EncodeToString(c.whole.Sum(nil)), Revision: revision}, nil
}
