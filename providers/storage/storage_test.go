// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/target"
)

const (
	replicas    = "ichor.maesh.dev/storage-replicas"
	evacuatedBy = "ichor.maesh.dev/storage-evacuated-by"
	owner       = "default/op-1"
)

func allowed(context.Context) error { return nil }

func TestLook(t *testing.T) {
	for name, row := range map[string]struct {
		annotations map[string]string
		want        State
		err         string
	}{
		"no storage":           {nil, State{}, ""},
		"three":                {map[string]string{replicas: "3"}, State{Replicas: 3}, ""},
		"none":                 {map[string]string{replicas: "0"}, State{}, ""},
		"being evacuated":      {map[string]string{replicas: "1", evacuatedBy: owner}, State{Replicas: 1, EvacuatedBy: owner}, ""},
		"storage went away":    {map[string]string{evacuatedBy: owner}, State{EvacuatedBy: owner}, ""},
		"no number":            {map[string]string{replicas: "many"}, State{}, `annotation ichor.maesh.dev/storage-replicas of Node w-1 is "many", and must be the number of its replicas`},
		"less than none":       {map[string]string{replicas: "-1"}, State{}, `annotation ichor.maesh.dev/storage-replicas of Node w-1 is "-1", and must be the number of its replicas`},
		"more than fit an int": {map[string]string{replicas: "99999999999999999999"}, State{}, `annotation ichor.maesh.dev/storage-replicas of Node w-1 is "99999999999999999999", and must be the number of its replicas`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state, err := New(nil).Look(t.Context(), target.Target{}, kube.Node{Name: "w-1", Storage: row.annotations})
			g.Expect(state).To(Equal(row.want))
			if row.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(row.err))
		})
	}
}

// The annotation is written once, whoever asks again; what is left is told each time, and the end of it is no error.
func TestEvacuateAndRestore(t *testing.T) {
	g := NewWithT(t)
	api := fake.New()
	api.Set(kube.Node{Name: "w-1", Storage: map[string]string{replicas: "2"}})
	s := New(api)
	evacuate := func() error { return s.Evacuate(t.Context(), target.Target{}, allowed, "w-1", owner) }
	left := &MovingError{}
	g.Expect(errors.As(evacuate(), &left)).To(BeTrue())
	g.Expect(left).To(Equal(&MovingError{Node: "w-1", Replicas: 2}))
	g.Expect(kube.Classify(left)).To(BeEquivalentTo("Retryable"))
	g.Expect(api.Get("w-1").Storage).To(HaveKeyWithValue(evacuatedBy, owner))
	api.Change("w-1", func(n *kube.Node) { n.Storage[replicas] = "1" })
	g.Expect(evacuate()).To(MatchError("waiting for the storage to move 1 replicas off Node w-1"))
	api.Change("w-1", func(n *kube.Node) { n.Storage[replicas] = "0" })
	g.Expect(evacuate()).To(Succeed())
	g.Expect(api.Calls()).To(Equal([]string{"Annotate w-1"}))

	g.Expect(s.Restore(t.Context(), target.Target{}, allowed, "w-1", "default/op-2")).To(Succeed())
	g.Expect(api.Get("w-1").Storage).To(HaveKey(evacuatedBy), "another operation's")
	g.Expect(s.Restore(t.Context(), target.Target{}, allowed, "w-1", owner)).To(Succeed())
	g.Expect(api.Get("w-1").Storage).NotTo(HaveKey(evacuatedBy))
	g.Expect(s.Restore(t.Context(), target.Target{}, allowed, "w-1", owner)).To(Succeed(), "once more is harmless")
	g.Expect(api.Calls()).To(Equal([]string{"Annotate w-1", "Annotate w-1"}))
}

func TestEvacuatedByAnother(t *testing.T) {
	g := NewWithT(t)
	api := fake.New()
	api.Set(kube.Node{Name: "w-1", Storage: map[string]string{replicas: "0", evacuatedBy: "somebody"}})
	g.Expect(New(api).Evacuate(t.Context(), target.Target{}, allowed, "w-1", owner)).To(Succeed())
	g.Expect(api.Get("w-1").Storage).To(HaveKeyWithValue(evacuatedBy, "somebody"))
	g.Expect(api.Calls()).To(BeEmpty())
}

func TestEvacuateIsFenced(t *testing.T) {
	g := NewWithT(t)
	api := fake.New()
	api.Set(kube.Node{Name: "w-1", Storage: map[string]string{replicas: "2"}})
	lost := func(context.Context) error { return errors.New("the lock is gone") }
	g.Expect(New(api).Evacuate(t.Context(), target.Target{}, lost, "w-1", owner)).To(MatchError(guard.ErrNotAllowed))
	g.Expect(api.Get("w-1").Storage).NotTo(HaveKey(evacuatedBy))
}
