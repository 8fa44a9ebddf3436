// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// deniedFor is how long a namespace stays denied before it is asked about again, give or take jitter, so that not all callers ask at once.
	// Most callers may read few namespaces of many, and each answer costs the management API a review.
	deniedFor, jitter = time.Minute, 12 * time.Second

	// againAfter is when what could not be looked at again is looked at the next time.
	againAfter = 5 * time.Second

	// lookTimeout bounds one look at all namespaces. It goes on without whoever began it, since others wait for it or come after them.
	lookTimeout = 5 * time.Minute

	// asideAtOnce is how many questions of one caller are asked at once by what is looked at again in the background.
	asideAtOnce = 4
)

// readable remembers in which namespaces one caller may read one resource.
type readable struct {
	ask   func(ctx context.Context, namespace string) (bool, error)
	now   func() time.Time
	aside func(func()) // Runs what is done in the background, in its turn.

	mu      sync.Mutex
	allowed map[string]time.Time // When each was last allowed.
	denied  []string             // Sorted.
	again   time.Time            // When denied is to be asked about again.
	looking *look                // What is under way that callers wait for.
	busy    bool                 // Denied ones are being asked about again.
	widest  []string             // The most namespaces that a call was about since then.
}

// look is a question about some namespaces, under way.
type look struct {
	done chan struct{}
	err  error
}

func newReadable(ask func(context.Context, string) (bool, error), now func() time.Time, aside func(func())) *readable {
	return &readable{ask: ask, now: now, aside: aside, allowed: map[string]time.Time{}}
}

// among says which namespaces the caller may read. Where they were denied before, that is looked at again in the background; what was allowed,
// or is new, is asked about. If that fails, the answer is what is known.
func (r *readable) among(ctx context.Context, namespaces []string) (map[string]bool, error) {
	since := r.now().Add(-goodFor)
	for {
		open, answer, under := r.known(namespaces, since)
		if len(open) == 0 {
			return answer, nil
		}
		select {
		case <-under.done:
		case <-ctx.Done():
			return answer, ctx.Err()
		}
		if under.err != nil {
			_, answer, _ = r.known(namespaces, since)
			return answer, under.err
		}
	}
}

// known are the namespaces that are readable, and those that nobody knows of, with the look at them that is under way or begins.
func (r *readable) known(namespaces []string, since time.Time) (open []string, answer map[string]bool, under *look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer = map[string]bool{}
	for _, namespace := range namespaces {
		if at, ok := r.allowed[namespace]; ok && !at.Before(since) {
			answer[namespace] = true
		} else if _, denied := slices.BinarySearch(r.denied, namespace); ok || !denied {
			open = append(open, namespace)
		}
	}
	if len(open) > 0 && (r.looking == nil || r.looking.over()) {
		r.looking = &look{done: make(chan struct{})}
		go r.look(r.looking, open)
	}
	if len(namespaces) > len(r.widest) {
		r.widest = namespaces
	}
	if len(r.denied) > 0 && !r.busy && !r.now().Before(r.again) {
		r.busy = true
		go r.aside(r.lookAgain)
	}
	return open, answer, r.looking
}

func (l *look) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// look asks about some namespaces that callers wait for.
func (r *readable) look(l *look, namespaces []string) {
	defer close(l.done)
	l.err = r.askAll(namespaces, atOnce)
}

// lookAgain asks about what was denied.
func (r *readable) lookAgain() {
	err := r.askAll(r.forget(), asideAtOnce)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy, r.again = false, r.later()
	if err != nil {
		r.again = r.now().Add(againAfter)
	}
}

// forget leaves out namespaces that no call is about any more, and returns those that are denied.
func (r *readable) forget() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	about := slices.Sorted(slices.Values(r.widest))
	r.widest = nil
	left := func(namespace string) bool { _, found := slices.BinarySearch(about, namespace); return !found }
	r.denied = slices.DeleteFunc(slices.Clone(r.denied), left)
	maps.DeleteFunc(r.allowed, func(namespace string, _ time.Time) bool { return left(namespace) })
	return r.denied
}

// later is when to ask again about what is denied now.
func (r *readable) later() time.Time {
	return r.now().Add(deniedFor - jitter + rand.N(2*jitter)) //nolint:gosec // It spreads load, and keeps no secret.
}

// askAll asks about namespaces, and writes the answers down. After the first that fails it asks no more.
func (r *readable) askAll(namespaces []string, atOnce int) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	begun := r.now() // No answer is older.
	var lock sync.Mutex
	answers := map[string]bool{}
	for _, namespace := range namespaces {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			allowed, err := r.ask(ctx, namespace)
			if err != nil {
				return err
			}
			lock.Lock()
			defer lock.Unlock()
			answers[namespace] = allowed
			return nil
		})
	}
	err := group.Wait()
	r.note(answers, begun)
	return err
}

// note writes answers down.
func (r *readable) note(answers map[string]bool, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.denied) == 0 {
		r.again = r.later()
	}
	for namespace, allowed := range answers {
		delete(r.allowed, namespace)
		if allowed {
			r.allowed[namespace] = at
		}
	}
	denied := slices.DeleteFunc(slices.Clone(r.denied), func(namespace string) bool { return answers[namespace] })
	for namespace, allowed := range answers {
		if !allowed {
			denied = append(denied, namespace)
		}
	}
	slices.Sort(denied)
	r.denied = slices.Clip(slices.Compact(denied))
}
