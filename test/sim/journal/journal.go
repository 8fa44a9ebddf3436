// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"k8s.io/utils/clock"
)

// readsKept is how many of the latest read-only calls are kept per cluster. Reads beyond that are only counted.
const readsKept = 512

// Journal keeps entries in memory, and the mutating ones in a file as well.
type Journal struct {
	clock clock.PassiveClock
	file  *os.File

	mu       sync.Mutex
	sequence uint64
	kept     []*Entry          // Mutating calls and events: never dropped.
	reads    map[string]*ring  // By cluster.
	counts   map[string]uint64 // Reads by cluster/node/method.
	subs     map[*subscription]struct{}
}

// Open makes a journal that appends to the file, or keeps to memory when path is empty.
func Open(path string, clk clock.PassiveClock) (*Journal, error) {
	j := &Journal{
		clock:  clk,
		reads:  map[string]*ring{},
		counts: map[string]uint64{},
		subs:   map[*subscription]struct{}{},
	}
	if path == "" {
		return j, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j.file = file
	return j, nil
}

// Close closes the file.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// Call is a call under way.
type Call struct {
	journal *Journal
	entry   *Entry
	read    bool
}

// Begin records the arrival of a call. The caller fills in all but sequence and time.
func (j *Journal) Begin(e Entry, read bool) *Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sequence++
	e.Sequence, e.Time = j.sequence, j.clock.Now()
	c := &Call{journal: j, entry: &e, read: read}
	if read {
		j.keepRead(c.entry)
	} else {
		j.kept = append(j.kept, c.entry)
	}
	j.publish(e, read)
	return c
}

// Describe adds an argument that was not known when the call arrived.
func (c *Call) Describe(key, value string) {
	c.update(func(e *Entry) {
		arguments := make(map[string]string, len(e.Arguments)+1)
		for k, v := range e.Arguments {
			arguments[k] = v
		}
		arguments[key] = value
		e.Arguments = arguments // A fresh map: copies of the entry are out already.
	})
}

// Exit records the installer's exit code.
func (c *Call) Exit(code int32) { c.update(func(e *Entry) { e.ExitCode = &code }) }

func (c *Call) update(change func(*Entry)) {
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	change(c.entry)
}

// End records the outcome of a call.
func (c *Call) End(code, message string) {
	j := c.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	c.entry.Done, c.entry.Code, c.entry.Message = true, code, message
	c.entry.Duration = j.clock.Since(c.entry.Time)
	j.publish(*c.entry, c.read)
}

// Event records a change of state, such as "boot" or "ready".
func (j *Journal) Event(cluster, node, name, message string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sequence++
	e := Entry{
		Sequence: j.sequence, Time: j.clock.Now(), Cluster: cluster, Node: node,
		Method: "event " + name, Message: message, Done: true,
	}
	j.kept = append(j.kept, &e)
	j.publish(e, false)
}

func (j *Journal) keepRead(e *Entry) {
	j.counts[e.Cluster+"/"+e.Node+"/"+e.Method]++
	r := j.reads[e.Cluster]
	if r == nil {
		r = &ring{}
		j.reads[e.Cluster] = r
	}
	r.add(e)
}

// publish hands an entry to the file and the subscribers. A file that cannot be written must not stop a simulation.
func (j *Journal) publish(e Entry, read bool) {
	if j.file != nil && !read {
		if line, err := json.Marshal(e); err == nil {
			_, _ = j.file.Write(append(line, '\n'))
		}
	}
	for s := range j.subs {
		s.offer(e)
	}
}

// Entries returns what the filter selects, in order of arrival.
func (j *Journal) Entries(f Filter) []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries(f)
}

func (j *Journal) entries(f Filter) []Entry {
	var found []Entry
	add := func(list []*Entry) {
		for _, e := range list {
			if f.Matches(*e) {
				found = append(found, *e)
			}
		}
	}
	add(j.kept)
	for cluster, r := range j.reads {
		if f.Cluster == "" || f.Cluster == cluster {
			add(r.entries)
		}
	}
	slices.SortFunc(found, func(a, b Entry) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return found
}

// Last returns the latest sequence, for Filter.After.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sequence
}

// Reads returns how often each read-only method was called, by "cluster/node/method".
func (j *Journal) Reads() map[string]uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	counts := make(map[string]uint64, len(j.counts))
	for k, v := range j.counts {
		counts[k] = v
	}
	return counts
}

// Wait returns the first entry that the filter selects, present or future.
func (j *Journal) Wait(ctx context.Context, f Filter) (Entry, error) {
	entries, err := j.WaitN(ctx, f, 1)
	if err != nil {
		return Entry{}, err
	}
	return entries[0], nil
}

// WaitN waits until the filter selects n different entries and returns them in the order in which they came to match.
func (j *Journal) WaitN(ctx context.Context, f Filter, n int) ([]Entry, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var found []Entry
	seen := map[uint64]bool{}
	err := j.Follow(ctx, f, func(e Entry) error {
		if seen[e.Sequence] {
			return nil
		}
		seen[e.Sequence] = true
		if found = append(found, e); len(found) == n {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return found, nil
	}
	return nil, fmt.Errorf("waited for %d journal entries %+v, saw %d: %w", n, f, len(found), err)
}

// ring keeps the latest readsKept entries.
type ring struct {
	entries []*Entry
	next    int
}

func (r *ring) add(e *Entry) {
	if len(r.entries) < readsKept {
		r.entries = append(r.entries, e)
		return
	}
	r.entries[r.next] = e
	r.next = (r.next + 1) % readsKept
}
