// SPDX-License-Identifier: Apache-2.0

// Package recent keeps answers of the management API for some seconds, so that the same question is not asked with every request.
package recent

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
)

// askTimeout bounds a question. It belongs to everybody who waits for the answer, so nobody's own deadline may end it.
const askTimeout = 10 * time.Second

// Clock tells the time.
type Clock interface{ Now() time.Time }

// Answers are the answers to the most recent questions.
type Answers[V any] struct {
	kept  *cache.LRUExpireCache
	under singleflight.Group
}

// New returns a place for so many answers.
func New[V any](most int, clock Clock) *Answers[V] {
	return &Answers[V]{kept: cache.NewLRUExpireCacheWithClock(most, clock)}
}

// Ask returns the answer that is kept under a key, or asks. Who asks the same at the same time waits for one answer. ask says how long its
// answer may be kept; an error is told to whoever waits, and not kept.
func (a *Answers[V]) Ask(ctx context.Context, key string, ask func(context.Context) (V, time.Duration, error)) (V, error) {
	if kept, ok := a.kept.Get(key); ok {
		return kept.(V), nil
	}
	asked := a.under.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		answer, ttl, err := ask(ctx)
		if err == nil {
			a.kept.Add(key, answer, ttl)
		}
		return answer, err
	})
	select {
	case result := <-asked:
		answer, _ := result.Val.(V)
		return answer, result.Err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}
