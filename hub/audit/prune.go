// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=auditentries,verbs=get;list;watch;create;delete;record

const (
	// pruneEvery is how often entries are counted.
	pruneEvery = 10 * time.Minute

	// pruneBatch is how many go at once, so that the hub has other things to do in between.
	pruneBatch = 500

	// pruneBatchPause is the time in between.
	pruneBatchPause = 10 * time.Second

	// idleShare is the part of the entries of a namespace that may be about what came to nothing, as one in so many.
	idleShare = 10
)

// Limits bound the audit of a namespace.
type Limits struct {
	// MaxAge is how long entries stay; zero keeps them whatever their age.
	MaxAge time.Duration

	// MaxEntries is how many of them stay in a namespace, the newest; zero keeps all. Entries of what was denied or refused are at most a tenth
	// of it, so that whoever may do nothing cannot push out what was done.
	MaxEntries int
}

// DefaultLimits keep a quarter of a year.
var DefaultLimits = Limits{MaxAge: 90 * 24 * time.Hour, MaxEntries: 10_000}

// Pruner removes entries that are beyond the limits. It is a Runnable of the manager; only the leader prunes.
type Pruner struct {
	// Client lists entries from the cache, and deletes them.
	Client client.Client

	Limits Limits

	// Clock tells the time.
	Clock clock.WithTicker
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Pruner) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (p *Pruner) Start(ctx context.Context) error {
	log := ctrl.Log.WithName("audit")
	wait := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.Clock.After(wait):
		}
		wait = pruneEvery
		switch more, err := p.prune(ctx); {
		case err != nil && ctx.Err() == nil:
			log.Error(err, "Audit entries were not pruned, it is tried again")
		case more:
			wait = pruneBatchPause
		}
	}
}

// prune removes one batch, oldest first, and says whether there is more to remove.
func (p *Pruner) prune(ctx context.Context) (more bool, err error) {
	list := &v1alpha1.AuditEntryList{}
	if err := p.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing audit entries: %w", err)
	}
	surplus := p.Limits.surplus(list.Items, p.Clock.Now())
	for _, entry := range surplus[:min(len(surplus), pruneBatch)] {
		same := client.Preconditions{UID: &entry.UID, ResourceVersion: &entry.ResourceVersion}
		switch err := p.Client.Delete(ctx, entry.DeepCopy(), same); {
		case err == nil:
			pruned.Inc()
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err): // Somebody else's doing is theirs.
			return false, fmt.Errorf("deleting audit entry %s: %w", client.ObjectKeyFromObject(entry), err)
		}
	}
	return len(surplus) > pruneBatch, nil
}

// surplus are the entries that are beyond the limits, oldest first.
func (l Limits) surplus(entries []v1alpha1.AuditEntry, now time.Time) []*v1alpha1.AuditEntry {
	newestFirst := make([]*v1alpha1.AuditEntry, len(entries))
	for i := range entries {
		newestFirst[i] = &entries[i]
	}
	slices.SortFunc(newestFirst, func(a, b *v1alpha1.AuditEntry) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name), cmp.Compare(b.Namespace, a.Namespace))
	})
	type count struct{ all, idle int }
	counts := map[string]*count{}
	var surplus []*v1alpha1.AuditEntry
	for _, entry := range newestFirst {
		seen := counts[entry.Namespace]
		if seen == nil {
			seen = &count{}
			counts[entry.Namespace] = seen
		}
		idle := cameToNothing(entry.Spec.Result)
		old := l.MaxAge > 0 && now.Sub(entry.CreationTimestamp.Time) > l.MaxAge
		tooMany := l.MaxEntries > 0 && (seen.all >= l.MaxEntries || idle && seen.idle >= max(1, l.MaxEntries/idleShare))
		if old || tooMany {
			surplus = append(surplus, entry)
			continue
		}
		seen.all++
		if idle {
			seen.idle++
		}
	}
	slices.Reverse(surplus)
	return surplus
}
