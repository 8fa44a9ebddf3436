// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// A source may bring refusedAtOnce tokens that are refused, and one more every refusedEvery: each costs a question to somebody else.
	refusedAtOnce, refusedEvery = 30, time.Second

	// sources is how many of them are remembered, goodTokens how many tokens that were good before.
	sources, goodTokens = 4096, 4096

	// judgedAtOnce is how many tokens of one method are asked about at once that were not known before.
	judgedAtOnce = 32

	// sharedBits is how much of an address of IPv6 is one source: whoever has one has all of its network.
	sharedBits = 64
)

var errTooManyRefused = connect.NewError(connect.CodeResourceExhausted,
	errors.New("too many bearer tokens of this address were refused: wait some seconds before the next one"))

// Refusals bound what callers can make the hub ask others by tokens that are no good. A token that was good before is not held back, whatever
// others do who come from the same address.
type Refusals struct {
	now     func() time.Time
	sources *lru.Cache
	good    *lru.Cache

	mu    sync.Mutex
	slots map[int]chan struct{}
}

// NewRefusals returns bounds that nothing counts against yet.
func NewRefusals(now func() time.Time) *Refusals {
	return &Refusals{now: now, sources: lru.New(sources), good: lru.New(goodTokens), slots: map[int]chan struct{}{}}
}

// judge asks a method whose a token is, if its source has not brought too many that were refused.
func (r *Refusals) judge(ctx context.Context, method int, token string, ask func() (Caller, error)) (Caller, error) {
	if r == nil {
		return ask()
	}
	key := sha256.Sum256([]byte(token))
	source := sourceOf(ctx)
	if _, good := r.good.Get(key); !good {
		leave, err := r.enter(ctx, method)
		if err != nil {
			return Caller{}, err
		}
		defer leave()
		if source != "" && r.limiter(source).TokensAt(r.now()) < 1 {
			return Caller{}, errTooManyRefused
		}
	}
	caller, err := ask()
	switch {
	case err == nil:
		r.good.Add(key, nil)
	case connect.CodeOf(err) == connect.CodeUnauthenticated:
		r.good.Remove(key)
		if source != "" {
			r.limiter(source).AllowN(r.now(), 1)
		}
	}
	return caller, err
}

// enter waits for a slot of a method. One that hangs holds up no other.
func (r *Refusals) enter(ctx context.Context, method int) (leave func(), err error) {
	r.mu.Lock()
	slots := r.slots[method]
	if slots == nil {
		slots = make(chan struct{}, judgedAtOnce)
		r.slots[method] = slots
	}
	r.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("too many bearer tokens are asked about at once: try again"))
	}
}

func (r *Refusals) limiter(source string) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.sources.Get(source); ok {
		return known.(*rate.Limiter) //nolint:forcetypeassert // There is nothing else in it.
	}
	made := rate.NewLimiter(rate.Every(refusedEvery), refusedAtOnce)
	r.sources.Add(source, made)
	return made
}

type sourceKey struct{}

// sourceOf is where a token comes from; empty for one that is looked at again while its call goes on.
func sourceOf(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	if address, err := netip.ParseAddr(source); err == nil && address.Is6() {
		if network, err := address.WithZone("").Prefix(sharedBits); err == nil {
			return network.String()
		}
	}
	return source
}
