// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// +kubebuilder:rbac:groups=ichor.maesh.dev,resources=auditentries,verbs=list;watch;create;delete;record

const (
	// pruneEvery is how often entries are counted.
	pruneEvery = 10 * time.Minute

	// pruneBatch is how many go at once, so that the hub has other things to do in between.
	pruneBatch = 500

	// pruneBatchPause is the time in between.
	pruneBatchPause = 10 * time.Second

	// smallShare is the room of what came to nothing, and of what clients say, as one in so many of the room of what was done.
	smallShare = 10
)

// Limits bound the audit.
type Limits struct {
	// MaxAge is how long entries stay; zero keeps them whatever their age.
	MaxAge time.Duration

	// MaxEntries is how many entries stay in a namespace of what a hub did, the newest; zero keeps all. Beside them a tenth of it is for what
	// changed nothing, and a tenth for what clients say of themselves: neither of them pushes out what was done.
	MaxEntries int

	// MaxTotal is how many stay in all namespaces together; zero keeps all. Beyond it, the namespaces with the most entries give theirs up first.
	MaxTotal int
}

// DefaultLimits keep a quarter of a year.
var DefaultLimits = Limits{MaxAge: 90 * 24 * time.Hour, MaxEntries: 10_000, MaxTotal: 100_000}

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

// shelf is where entries stand that push out each other and no others.
type shelf struct {
	namespace string
	small     bool // What came to nothing, or what clients say.
	client    bool
}

func shelfOf(entry *v1alpha1.AuditEntry) shelf {
	client := entry.Spec.Reporter == v1alpha1.AuditByClient
	return shelf{namespace: entry.Namespace, small: client || cameToNothing(&entry.Spec), client: client}
}

// room is how many entries a shelf has room for, if there is room for so many of what was done.
func (s shelf) room(entries int) int {
	if s.small {
		return max(1, entries/smallShare)
	}
	return entries
}

// surplus are the entries that are beyond the limits, oldest first.
func (l Limits) surplus(entries []v1alpha1.AuditEntry, now time.Time) []*v1alpha1.AuditEntry {
	var surplus, young []*v1alpha1.AuditEntry
	counts := map[shelf]int{}
	for i := range entries {
		entry := &entries[i]
		if l.MaxAge > 0 && now.Sub(entry.CreationTimestamp.Time) > l.MaxAge {
			surplus = append(surplus, entry)
			continue
		}
		young = append(young, entry)
		counts[shelfOf(entry)]++
	}
	slices.SortFunc(young, newestFirst)
	most, kept, onShelf := l.most(counts), 0, map[shelf]int{}
	for _, entry := range young {
		on := shelfOf(entry)
		if onShelf[on] >= on.room(most) || l.MaxTotal > 0 && kept >= l.MaxTotal {
			surplus = append(surplus, entry)
			continue
		}
		onShelf[on]++
		kept++
	}
	slices.SortFunc(surplus, newestFirst)
	slices.Reverse(surplus)
	return surplus
}

// newestFirst orders entries by when the API server wrote them: nobody chooses that.
func newestFirst(a, b *v1alpha1.AuditEntry) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name), cmp.Compare(b.Namespace, a.Namespace))
}

// most is how many entries of what was done a namespace keeps: MaxEntries, or as many as fit into MaxTotal if all namespaces keep as many.
func (l Limits) most(counts map[shelf]int) int {
	most := l.MaxEntries
	if most <= 0 {
		most = math.MaxInt
	}
	if l.MaxTotal <= 0 {
		return most
	}
	fits := func(entries int) bool {
		sum := 0
		for shelf, count := range counts {
			sum += min(count, shelf.room(entries))
		}
		return sum <= l.MaxTotal
	}
	if fits(most) {
		return most
	}
	// No shelf of a namespace has more than MaxTotal, or that one alone would not fit.
	return max(1, sort.Search(min(most, smallShare*(l.MaxTotal+1)), func(i int) bool { return !fits(i + 1) }))
}
