// SPDX-License-Identifier: Apache-2.0

package etcdfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

// The layout of a database of bbolt.
const (
	headerSize  = 16
	elementSize = 16
	metaSize    = 64
	bucketSize  = 16

	branchFlag = 0x01
	leafFlag   = 0x02
	bucketFlag = 0x01

	magic   = 0xED0CDAED
	version = 2

	leastPage, mostPage = 1 << 10, 64 << 10

	// mostBuffered bounds what is kept of runs of pages. The largest request that etcd takes is 1.5 MiB.
	mostBuffered = 256 << 20

	// mostDepth and mostRoot bound what is looked at for the bucket: there are some ten buckets.
	mostDepth, mostRoot = 64, 4096
)

// keyBucket has the keys of etcd, by revision.
const keyBucket = "key"

var order = binary.LittleEndian

// pages keeps of every page what leads to the last key. Pages that are not in use hold what they held before, so nothing is followed but
// from the root.
type pages struct {
	size     int
	buffer   []byte
	next     uint64 // The page that the buffer is of.
	runs     []*run
	buffered int
	err      error // What makes it no database.

	meta     meta
	branches map[uint64][]uint64
	buckets  map[uint64]bucket
	last     map[uint64]int64 // The last revision of a leaf with revisions.
}

// meta is the part of a page that says where the root is.
type meta struct {
	root, transaction uint64
	valid             bool
}

// bucket is where a bucket is found: at its root, or in the leaf itself.
type bucket struct {
	root   uint64
	inline int64
}

// run is a page that goes on over the pages behind it.
type run struct {
	id   uint64
	data []byte
	want int
}

func (p *pages) write(data []byte) {
	for len(data) > 0 && p.err == nil {
		want := p.size
		if want == 0 {
			want = headerSize + metaSize
		}
		take := min(want-len(p.buffer), len(data))
		p.buffer = append(p.buffer, data[:take]...)
		data = data[take:]
		if len(p.buffer) < want {
			return
		}
		if p.size == 0 {
			p.begin()
			continue
		}
		p.page(p.next, p.buffer)
		p.next++
		p.buffer = p.buffer[:0]
	}
}

// begin learns the size of pages from the first one.
func (p *pages) begin() {
	body := p.buffer[headerSize:]
	size := int(order.Uint32(body[8:]))
	switch {
	case order.Uint32(body) != magic:
		p.err = errors.New("it does not begin like a database of bbolt")
	case order.Uint32(body[4:]) != version:
		p.err = fmt.Errorf("it is a database of bbolt in format %d, want %d", order.Uint32(body[4:]), version)
	case size < leastPage || size > mostPage || size&(size-1) != 0:
		p.err = fmt.Errorf("it is a database of bbolt with pages of %d bytes", size)
	}
	p.size = size
	p.branches, p.buckets, p.last = map[uint64][]uint64{}, map[uint64]bucket{}, map[uint64]int64{}
}

func (p *pages) page(id uint64, data []byte) {
	if id < 2 {
		p.readMeta(data[headerSize:])
		return
	}
	p.goOn(data)
	flags, overflow := order.Uint16(data[8:]), int(order.Uint32(data[12:]))
	if order.Uint64(data) != id || flags != branchFlag && flags != leafFlag {
		return
	}
	if overflow == 0 {
		p.read(id, data)
		return
	}
	want := (overflow + 1) * p.size
	if overflow > mostBuffered/p.size || p.buffered+want > mostBuffered {
		p.err = fmt.Errorf("page %d goes on over %d others", id, overflow)
		return
	}
	p.buffered += want
	p.runs = append(p.runs, &run{id: id, data: append(make([]byte, 0, want), data...), want: want})
}

// goOn adds a page to the runs that it may be part of.
func (p *pages) goOn(data []byte) {
	left := p.runs[:0]
	for _, r := range p.runs {
		if r.data = append(r.data, data...); len(r.data) < r.want {
			left = append(left, r)
			continue
		}
		p.read(r.id, r.data)
		p.buffered -= r.want
	}
	p.runs = left
}

// readMeta takes the later one of the two pages that say where the root is.
func (p *pages) readMeta(data []byte) {
	sum := fnv.New64a()
	sum.Write(data[:metaSize-8])
	m := meta{root: order.Uint64(data[16:]), transaction: order.Uint64(data[48:]), valid: true}
	ours := order.Uint32(data) == magic && order.Uint32(data[4:]) == version && sum.Sum64() == order.Uint64(data[metaSize-8:])
	if ours && (!p.meta.valid || m.transaction > p.meta.transaction) {
		p.meta = m
	}
}

// read keeps what a page leads to. What a page that is not in use holds may be anything.
func (p *pages) read(id uint64, data []byte) {
	count := int(order.Uint16(data[10:]))
	if headerSize+count*elementSize > len(data) || count == 0 {
		return
	}
	if order.Uint16(data[8:]) == branchFlag {
		children := make([]uint64, count)
		for i := range children {
			children[i] = order.Uint64(data[headerSize+i*elementSize+8:])
		}
		p.branches[id] = children
		return
	}
	if found, ok := findBucket(data, count); ok {
		p.buckets[id] = found
	}
	if revision, ok := lastRevision(data, count); ok {
		p.last[id] = revision
	}
}

// element is the key of an element of a leaf, and what follows it.
func element(data []byte, i int) (flags uint32, key, value []byte, ok bool) {
	at := headerSize + i*elementSize
	flags = order.Uint32(data[at:])
	from := uint64(at) + uint64(order.Uint32(data[at+4:]))
	middle := from + uint64(order.Uint32(data[at+8:]))
	to := middle + uint64(order.Uint32(data[at+12:]))
	if to > uint64(len(data)) {
		return 0, nil, nil, false
	}
	return flags, data[from:middle], data[middle:to], true
}

func findBucket(data []byte, count int) (bucket, bool) {
	for i := range count {
		flags, key, value, ok := element(data, i)
		if !ok || flags&bucketFlag == 0 || string(key) != keyBucket || len(value) < bucketSize {
			continue
		}
		found := bucket{root: order.Uint64(value)}
		if inline := value[bucketSize:]; found.root == 0 && len(inline) >= headerSize {
			within := int(order.Uint16(inline[10:]))
			if within > 0 && headerSize+within*elementSize <= len(inline) {
				found.inline, _ = lastRevision(inline, within)
			}
		}
		return found, true
	}
	return bucket{}, false
}

// lastRevision is the revision of the last key of a leaf: 8 bytes, an underscore, 8 bytes of the part, and a t for what was deleted.
func lastRevision(data []byte, count int) (int64, bool) {
	flags, key, _, ok := element(data, count-1)
	if !ok || flags&bucketFlag != 0 || len(key) != 17 && len(key) != 18 || key[8] != '_' {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(key)), true
}

// revision is that of the last key.
func (p *pages) revision() (int64, error) {
	switch {
	case p.err != nil:
		return 0, p.err
	case !p.meta.valid:
		return 0, errors.New("neither of its first pages says where its root is")
	}
	at, ok := p.find(p.meta.root)
	if !ok {
		return 0, errors.New("it has no bucket with the keys of etcd")
	}
	revision := at.inline
	if at.root != 0 {
		revision = p.lastBelow(at.root)
	}
	if revision <= 0 {
		return 0, errors.New("it holds no key of etcd")
	}
	return revision, nil
}

// find looks for the bucket below the root of all buckets.
func (p *pages) find(root uint64) (bucket, bool) {
	todo := []uint64{root}
	for looked := 0; len(todo) > 0 && looked < mostRoot; looked++ {
		id := todo[0]
		todo = todo[1:]
		if found, ok := p.buckets[id]; ok {
			return found, true
		}
		todo = append(todo, p.branches[id]...)
	}
	return bucket{}, false
}

// lastBelow follows the last branch to a leaf; 0 if it leads to none.
func (p *pages) lastBelow(id uint64) int64 {
	for range mostDepth {
		children, branch := p.branches[id]
		if !branch {
			return p.last[id]
		}
		id = children[len(children)-1]
	}
	return 0
}
