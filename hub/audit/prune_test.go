// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
)

func TestSurplus(t *testing.T) {
	denied := func(namespace string, seconds int) *v1alpha1.AuditEntry {
		entry := written(namespace, seconds, 1)
		entry.Spec.Result = v1alpha1.AuditDenied
		return entry
	}
	nothing := func(namespace string, seconds int) *v1alpha1.AuditEntry {
		entry := written(namespace, seconds, 1)
		entry.Spec.Effect = v1alpha1.AuditUnchanged
		return entry
	}
	failed := func(namespace string, seconds int, effect v1alpha1.AuditEffect) *v1alpha1.AuditEntry {
		entry := written(namespace, seconds, 1)
		entry.Spec.Result, entry.Spec.Effect = v1alpha1.AuditFailed, effect
		return entry
	}
	reported := func(namespace string, seconds int) *v1alpha1.AuditEntry {
		entry := written(namespace, seconds, 1)
		entry.Spec.Reporter, entry.Spec.Effect = v1alpha1.AuditByClient, v1alpha1.AuditChanged
		return entry
	}
	for name, row := range map[string]struct {
		limits  Limits
		entries []*v1alpha1.AuditEntry
		want    []types.UID
	}{
		"none":     {Limits{MaxAge: time.Hour, MaxEntries: 10}, []*v1alpha1.AuditEntry{written("a", 1, 1)}, nil},
		"too old":  {Limits{MaxAge: 60 * time.Second}, []*v1alpha1.AuditEntry{written("a", 45, 1), written("a", 40, 1), written("a", 39, 1), written("a", 1, 1)}, []types.UID{"a1", "a39"}},
		"too many": {Limits{MaxEntries: 2}, []*v1alpha1.AuditEntry{written("a", 3, 1), written("a", 1, 1), written("a", 4, 1), written("a", 2, 1)}, []types.UID{"a1", "a2"}},
		"counted by namespace": {
			Limits{MaxEntries: 1}, []*v1alpha1.AuditEntry{written("a", 1, 1), written("b", 2, 1), written("b", 3, 1)}, []types.UID{"b2"},
		},
		"what came to nothing pushes out nothing but its own": {
			Limits{MaxEntries: 20}, []*v1alpha1.AuditEntry{written("a", 1, 1), denied("a", 2), denied("a", 3), denied("a", 4), denied("a", 5)}, []types.UID{"a2", "a3"},
		},
		"bypass: what failed at a deadline pushes out nothing but its own": {
			Limits{MaxEntries: 2}, []*v1alpha1.AuditEntry{
				written("a", 1, 1), failed("a", 2, v1alpha1.AuditChanged), failed("a", 3, v1alpha1.AuditUnchanged), failed("a", 4, v1alpha1.AuditUnchanged), nothing("a", 5),
			}, []types.UID{"a3", "a4"},
		},
		"bypass: what clients say pushes out nothing but its own": {
			Limits{MaxEntries: 20}, []*v1alpha1.AuditEntry{
				written("a", 1, 1), denied("a", 2), reported("a", 3), reported("a", 4), reported("a", 5), reported("a", 6),
			}, []types.UID{"a3", "a4"},
		},
		"too many in all: those with the most give first": {
			Limits{MaxEntries: 10, MaxTotal: 4}, []*v1alpha1.AuditEntry{
				written("a", 1, 1), written("b", 2, 1), written("b", 3, 1), written("b", 4, 1), written("b", 5, 1), written("b", 6, 1),
			}, []types.UID{"b2", "b3"},
		},
		"too many in all, in too many namespaces": {
			Limits{MaxTotal: 2}, []*v1alpha1.AuditEntry{written("a", 1, 1), written("b", 2, 1), written("c", 3, 1), written("c", 4, 1)}, []types.UID{"a1", "c3"},
		},
		"too many in all, and too many": {
			Limits{MaxEntries: 1, MaxTotal: 3}, []*v1alpha1.AuditEntry{written("a", 1, 1), written("a", 2, 1), written("b", 3, 1), denied("b", 4)}, []types.UID{"a1"},
		},
		"no limits": {Limits{}, []*v1alpha1.AuditEntry{written("a", 1, 1), denied("a", 2)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var entries []v1alpha1.AuditEntry
			for _, entry := range row.entries {
				entries = append(entries, *entry)
			}
			var uids []types.UID
			for _, entry := range row.limits.surplus(entries, start.Add(100*time.Second)) {
				uids = append(uids, entry.UID)
			}
			NewWithT(t).Expect(uids).To(Equal(row.want))
		})
	}
}

// The leader prunes when it begins and every ten minutes, in batches, and only what it has seen.
func TestPruner(t *testing.T) {
	g := NewWithT(t)
	clock := testingclock.NewFakeClock(start.Add(time.Hour))
	var objects []client.Object
	for i := range pruneBatch + 3 {
		entry := written("a", i, 1)
		entry.ResourceVersion = ""
		objects = append(objects, entry)
	}
	var conditions []client.Preconditions
	objectsClient := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			asked := (&client.DeleteOptions{}).ApplyOptions(options)
			conditions = append(conditions, client.Preconditions{UID: asked.Preconditions.UID, ResourceVersion: asked.Preconditions.ResourceVersion})
			return c.Delete(ctx, object)
		},
	}).Build()
	count := func() int {
		list := &v1alpha1.AuditEntryList{}
		g.Expect(objectsClient.List(t.Context(), list)).To(Succeed())
		return len(list.Items)
	}
	p := &Pruner{Client: objectsClient, Limits: Limits{MaxEntries: 1}, Clock: clock}
	g.Expect(p.NeedLeaderElection()).To(BeTrue())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Start(ctx) }()
	step := func(by time.Duration) {
		g.Eventually(clock.HasWaiters).Should(BeTrue())
		clock.Step(by)
	}
	step(0)
	g.Eventually(count).Should(Equal(3))
	step(pruneBatchPause)
	g.Eventually(count).Should(Equal(1))
	entry := written("a", 9999, 1)
	entry.ResourceVersion = ""
	g.Expect(objectsClient.Create(t.Context(), entry)).To(Succeed())
	step(pruneEvery)
	g.Eventually(count).Should(Equal(1))
	cancel()
	g.Eventually(done).Should(Receive(BeNil()))
	for _, condition := range conditions {
		g.Expect(condition.UID).NotTo(BeNil())
		g.Expect(condition.ResourceVersion).NotTo(BeNil())
	}
}
