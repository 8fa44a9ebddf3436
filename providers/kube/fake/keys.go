// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"time"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/target"
)

// SetServer makes the API server at an address take the tokens of keys, by their IDs; the first one signs. Without keys it does not answer.
func (k *Kube) SetServer(address string, keys ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.servers == nil {
		k.servers = map[string][]string{}
	}
	k.servers[address] = keys
}

// SetLegacyTokens says which Secrets hold a token.
func (k *Kube) SetLegacyTokens(tokens ...kube.LegacyToken) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.legacy = tokens
}

// Store puts objects of a kind into etcd, as namespace/name.
func (k *Kube) Store(kind string, names ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stored == nil {
		k.stored = map[string][]string{}
	}
	k.stored[kind] = slices.Sorted(slices.Values(append(k.stored[kind], names...)))
}

// Written is how often an object was written again.
func (k *Kube) Written(kind, name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.written[kind+" "+name]
}

// Server implements kube.Provider.
func (k *Kube) Server(_ context.Context, _ target.Target, g guard.Func, address string, _ int) (kube.Server, func(), error) {
	return &server{Kube: k, guard: g, address: address}, func() {}, nil
}

// server is the API server of one control plane. A token is the ID of the key that signed it.
type server struct {
	*Kube

	guard   guard.Func
	address string
}

func (s *server) keys() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if keys := s.servers[s.address]; len(keys) > 0 {
		return slices.Clone(keys), nil
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

func (s *server) SigningKeys(context.Context) ([]string, error) {
	keys, err := s.keys()
	return slices.Sorted(slices.Values(keys)), err
}

func (s *server) IssueToken(ctx context.Context, _ time.Duration) (token kube.Token, err error) {
	if err := guard.Check(guard.With(ctx, s.guard), "IssueToken"); err != nil {
		return token, err
	}
	err = s.Run(ctx, "IssueToken", s.address, func() error {
		keys, err := s.keys()
		if err == nil {
			token = kube.Token{Text: keys[0], KeyID: keys[0]}
		}
		return err
	})
	return token, err
}

func (s *server) TakesToken(ctx context.Context, token string) (takes bool, err error) {
	if err := guard.Check(guard.With(ctx, s.guard), "TakesToken"); err != nil {
		return false, err
	}
	err = s.Run(ctx, "TakesToken", s.address, func() error {
		keys, err := s.keys()
		takes = slices.Contains(keys, token)
		return err
	})
	return takes, err
}

// Rewrite writes what nobody has written since it was stored: what is as it would be written stays as it is.
func (s *server) Rewrite(ctx context.Context, kind, after string, limit int) (done kube.Rewritten, err error) {
	if err := guard.Check(guard.With(ctx, s.guard), "Rewrite"); err != nil {
		return done, err
	}
	err = s.Run(ctx, "RewriteAt", s.address, func() error {
		if _, err := s.keys(); err != nil {
			return err
		}
		done = s.rewrite(kind, after, limit, false)
		return nil
	})
	return done, err
}

// ReadAll is one look, however many objects it reads.
func (s *server) ReadAll(ctx context.Context, kind string) (int, error) {
	if err := s.Look(ctx, "ReadAll", s.address); err != nil {
		return 0, err
	}
	if _, err := s.keys(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stored[kind]), nil
}

func (c *client) LegacyTokens(context.Context) ([]kube.LegacyToken, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.legacy), nil
}

// Rewrite is one call, however many objects it writes.
func (c *client) Rewrite(ctx context.Context, kind, after string, limit int) (done kube.Rewritten, err error) {
	if err := errors.Join(guard.Check(guard.With(ctx, c.guard), "Rewrite"), c.answer()); err != nil {
		return done, err
	}
	err = c.Run(ctx, "Rewrite", kind, func() error {
		done = c.rewrite(kind, after, limit, true)
		return nil
	})
	return done, err
}

// rewrite goes through the objects of a kind behind one of them, and writes those that nobody has written yet, or all.
func (k *Kube) rewrite(kind, after string, limit int, all bool) kube.Rewritten {
	k.mu.Lock()
	defer k.mu.Unlock()
	done := kube.Rewritten{Last: after}
	for _, name := range k.stored[kind] {
		switch {
		case name <= done.Last:
			continue
		case done.Count >= limit:
			done.More = true
			return done
		}
		if k.written == nil {
			k.written = map[string]int{}
		}
		if all || k.written[kind+" "+name] == 0 {
			k.written[kind+" "+name]++
		}
		done.Count, done.Last = done.Count+1, name
	}
	return done
}
