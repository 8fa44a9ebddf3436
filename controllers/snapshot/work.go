// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// atOnce bounds how many snapshots are taken together: each takes some of the network and of the storage, and up to some ten megabytes of
// memory.
const atOnce = 8

// done is how a piece of work ended.
type done struct {
	contents *v1alpha1.SnapshotContents
	err      error

	// cleaned says that it was to delete what is stored.
	cleaned bool

	// tidied says that it was to delete what attempts have left.
	tidied bool
}

// piece is work for one snapshot.
type piece struct {
	cancel context.CancelFunc
	began  bool
	ended  *done
}

// work does what takes long, outside of reconciles. A restart may lose it: what is in the objects tells what is to be done.
type work struct {
	ctx   context.Context //nolint:containedctx // It goes on from reconcile to reconcile.
	wake  func(types.NamespacedName)
	slots chan struct{}

	mu     sync.Mutex
	pieces map[types.NamespacedName]*piece
}

func newWork(ctx context.Context, most int, wake func(types.NamespacedName)) *work {
	return &work{ctx: ctx, wake: wake, slots: make(chan struct{}, most), pieces: map[types.NamespacedName]*piece{}}
}

// start begins with something for a snapshot, unless there is something for it already, and says whether it waits for its turn.
func (w *work) start(key types.NamespacedName, do func(context.Context) done) (waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if have := w.pieces[key]; have != nil {
		return !have.began
	}
	ctx, cancel := context.WithCancel(w.ctx)
	made := &piece{cancel: cancel}
	w.pieces[key] = made
	select {
	case w.slots <- struct{}{}:
		made.began = true
		go w.run(ctx, key, made, do)
	default:
		go w.queue(ctx, key, made, do)
	}
	return !made.began
}

// queue waits for a turn.
func (w *work) queue(ctx context.Context, key types.NamespacedName, p *piece, do func(context.Context) done) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		w.finish(key, p, done{err: ctx.Err()})
		return
	}
	w.mu.Lock()
	p.began = true
	w.mu.Unlock()
	w.wake(key)
	w.run(ctx, key, p, do)
}

func (w *work) run(ctx context.Context, key types.NamespacedName, p *piece, do func(context.Context) done) {
	defer p.cancel()
	ended := do(ctx)
	<-w.slots
	w.finish(key, p, ended)
}

func (w *work) finish(key types.NamespacedName, p *piece, ended done) {
	w.mu.Lock()
	p.ended = &ended
	wanted := w.pieces[key] == p
	w.mu.Unlock()
	if wanted {
		w.wake(key)
	}
}

// collect returns how the work for a snapshot ended, and forgets it; nil while it goes on, or if there is none.
func (w *work) collect(key types.NamespacedName) *done {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := w.pieces[key]
	if have == nil || have.ended == nil {
		return nil
	}
	delete(w.pieces, key)
	return have.ended
}

// restore gives back what was collected and could not be made use of.
func (w *work) restore(key types.NamespacedName, ended done) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pieces[key] == nil {
		w.pieces[key] = &piece{cancel: func() {}, began: true, ended: &ended}
	}
}

// stop ends the work for a snapshot. Nobody hears how it ended.
func (w *work) stop(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if have := w.pieces[key]; have != nil {
		have.cancel()
		delete(w.pieces, key)
	}
}

// cancel ends the work for a snapshot. How it ended is collected like any other end.
func (w *work) cancel(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if have := w.pieces[key]; have != nil {
		have.cancel()
	}
}
