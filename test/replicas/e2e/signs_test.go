// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// signs notes when a hub last showed that it works: the status of an operation changed, or a machine or a cluster was asked to change.
type signs struct {
	mu   sync.Mutex
	last time.Time
	more chan struct{} // Closed and replaced at every sign.
}

// watchForSigns notes signs until the context ends.
func watchForSigns(ctx context.Context, c client.WithWatch, j *journal.Journal) (*signs, error) {
	s := &signs{more: make(chan struct{})}
	events, err := c.Watch(ctx, &v1alpha1.TalosOperationList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	go func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			if event.Type == watch.Modified {
				s.note()
			}
		}
	}()
	go func() {
		_ = j.Follow(ctx, journal.Filter{After: j.Last()}, func(e journal.Entry) error {
			if !e.Done && byHub(e) {
				s.note()
			}
			return nil
		})
	}()
	return s, nil
}

// byHub says whether an entry is a call by which a hub changes something.
func byHub(e journal.Entry) bool {
	switch e.Method {
	case invariant.InstallMethod, invariant.RebootMethod, "ImageService/Pull", "MachineService/EtcdForfeitLeadership":
		return true
	}
	return strings.HasPrefix(e.Method, "kube ") && e.Arguments["agent"] == invariant.HubAgent
}

func (s *signs) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	close(s.more)
	s.more = make(chan struct{})
}

// after waits for a sign after a moment, and says when it came.
func (s *signs) after(ctx context.Context, g *WithT, since time.Time) time.Time {
	bound := time.After(time.Minute)
	for {
		s.mu.Lock()
		last, more := s.last, s.more
		s.mu.Unlock()
		if last.After(since) {
			return last
		}
		select {
		case <-more:
		case <-ctx.Done():
			g.Expect(ctx.Err()).NotTo(HaveOccurred(), "nothing went on")
		case <-bound:
			g.Expect(true).To(BeFalse(), "nothing went on for a minute")
		}
	}
}
