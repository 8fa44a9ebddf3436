// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// kept is how many changes are kept: a site of some thousand machines that comes back at once is no reason to send everything to everybody.
// They are references to messages, and what is old among them is held by nothing else, so it bounds memory.
const kept = 32_768

// Change is one change of one message: what it was, and what it is. Nothing is nil; one pair is set.
type Change struct {
	Key types.NamespacedName

	// OperationBefore and Operation are set if an operation changed.
	OperationBefore, Operation *pb.Operation

	// ClusterBefore and Cluster are set if a cluster changed.
	ClusterBefore, Cluster *pb.Cluster

	// MachineBefore and Machine are set if a machine changed. Of is its cluster as it was at that time, nil if there was none.
	MachineBefore, Machine *pb.Machine
	Of                     *pb.Cluster
}

// history is a ring of the latest changes. The revision of a change is its number: the first one is 1.
type history struct {
	ring []Change
	last uint64

	// more is closed at the next change.
	more chan struct{}
	// told is the revision up to which those who wait have been told.
	told uint64
}

func newHistory() history { return history{more: make(chan struct{})} }

func (h *history) append(change Change) {
	if len(h.ring) < kept {
		h.ring = append(h.ring, change)
	} else {
		h.ring[h.last%kept] = change
	}
	h.last++
}

// tell wakes those who wait for a change, once for all that came since.
func (h *history) tell() {
	if h.told == h.last {
		return
	}
	h.told = h.last
	close(h.more)
	h.more = make(chan struct{})
}

// After reads changes that came after a revision into a buffer, as many as fit. more is closed as soon as there are more than there were.
// ok is false if what came then is not known any more, or that revision was never reached.
func (f *Fleet) After(revision uint64, buffer []Change) (changes []Change, more <-chan struct{}, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	h := &f.history
	if revision > h.last || h.last-revision > uint64(len(h.ring)) {
		return nil, nil, false
	}
	changes = buffer[:0]
	for revision < h.last && len(changes) < cap(buffer) {
		changes = append(changes, h.ring[revision%kept])
		revision++
	}
	return changes, h.more, true
}

// Last is the revision of the latest change.
func (f *Fleet) Last() uint64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.history.last
}

// Changes says whether the fleet goes on changing.
func (f *Fleet) Changes() bool { return f.epoch != "" }

// Token names a revision to others; it is empty where coming back to it is of no use.
func (f *Fleet) Token(revision uint64) string {
	if f.epoch == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", f.epoch, revision)
}

// Revision is the one that a token names; ok is false if it is a token of another fleet, or none at all.
func (f *Fleet) Revision(token string) (revision uint64, ok bool) {
	epoch, number, found := strings.Cut(token, ":")
	if !found || epoch == "" || epoch != f.epoch {
		return 0, false
	}
	revision, err := strconv.ParseUint(number, 10, 64)
	return revision, err == nil
}
