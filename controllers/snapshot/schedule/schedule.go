// SPDX-License-Identifier: Apache-2.0

// Package schedule says when snapshots of etcd are due, how old the last one may be, and which are too many. It is pure.
package schedule

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

const (
	// spread is over how long the runs of clusters with the same schedule are spread, unless they come more often than four times as long.
	spread = 30 * time.Minute

	// furthest is how far back a run is looked for. A schedule has one at least every eight years: the 29th of February.
	furthest = 9 * 366 * 24 * time.Hour

	// patience is how long a snapshot that an operation asked for is tried, once there is a later one.
	patience = time.Hour
)

// Schedule is when snapshots of one cluster are taken.
type Schedule struct {
	cron cron.Schedule
	zone *time.Location
	hash uint64
}

// fiveFields reads cron expressions of five fields, and no descriptors such as @every.
var fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// Of reads the schedule of a cluster; nil if it has none.
func Of(cluster types.NamespacedName, backup *v1alpha1.EtcdBackupSpec) (*Schedule, error) {
	if backup == nil || backup.Schedule == "" {
		return nil, nil //nolint:nilnil // There is none.
	}
	zone, err := time.LoadLocation(cmp.Or(backup.TimeZone, "UTC"))
	if err != nil {
		return nil, fmt.Errorf("spec.etcdBackup.timeZone %q: want a name of the IANA database, such as Europe/Berlin", backup.TimeZone)
	}
	parsed, err := fiveFields.Parse(backup.Schedule)
	if err != nil {
		return nil, fmt.Errorf("spec.etcdBackup.schedule %q: %w", backup.Schedule, err)
	}
	s := &Schedule{cron: parsed, zone: zone}
	if s.next(time.Unix(0, 0)).IsZero() {
		return nil, fmt.Errorf("spec.etcdBackup.schedule %q never comes", backup.Schedule)
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(cluster.String())) // It never fails.
	s.hash = hash.Sum64()
	return s, nil
}

// next is the first run after a time.
func (s *Schedule) next(t time.Time) time.Time { return s.cron.Next(t.In(s.zone)) }

// last is the last run that is not after a time; zero if there was none for years.
func (s *Schedule) last(t time.Time) time.Time {
	for back := time.Hour; back <= 2*furthest; back *= 2 {
		found := s.next(t.Add(-back))
		if found.IsZero() || found.After(t) {
			continue
		}
		for {
			later := s.next(found)
			if later.IsZero() || later.After(t) {
				return found
			}
			found = later
		}
	}
	return time.Time{}
}

// delay is how long after each run this cluster comes: clusters with the same schedule come one after the other, and a cluster always at
// the same time.
func (s *Schedule) delay(now time.Time) time.Duration {
	first := s.next(now)
	within := min(spread, s.next(first).Sub(first)/4)
	if within <= 0 {
		return 0
	}
	return time.Duration(s.hash % uint64(within)).Truncate(time.Second)
}

// Run is what the schedule asks for at a time.
type Run struct {
	// Due is the run that a snapshot is to be taken for now; zero if there is none.
	Due time.Time

	// Next is when to ask again.
	Next time.Time
}

// At says what the schedule asks for. However many runs were missed, one snapshot makes up for them; while one is still to be taken, none
// is due.
func (s *Schedule) At(now time.Time, snapshots []v1alpha1.EtcdSnapshot) Run {
	delay := s.delay(now)
	run := Run{Next: s.next(now.Add(-delay)).Add(delay)}
	latest := s.last(now.Add(-delay))
	if latest.IsZero() {
		return run
	}
	for i := range snapshots {
		if snapshot := &snapshots[i]; snapshot.Spec.Reason == v1alpha1.SnapshotScheduled && covers(snapshot, latest) {
			return run
		}
	}
	run.Due = latest
	return run
}

// covers says whether a snapshot is, or will be, from after a run.
func covers(snapshot *v1alpha1.EtcdSnapshot, run time.Time) bool {
	switch {
	case !snapshot.DeletionTimestamp.IsZero():
		return !snapshot.Spec.ScheduledTime.Time.Before(run)
	case snapshot.Spec.Contents == nil:
		return true
	}
	return !snapshot.Spec.ScheduledTime.Time.Before(run) || !snapshot.Spec.Contents.TakenTime.Time.Before(run)
}

// Name is the name of the snapshot for a run: the same for every hub that comes to think of it.
func Name(cluster string, run time.Time) string {
	return cluster + "-" + run.UTC().Format("20060102-1504")
}

// TooOldAfter is when a snapshot from a time is too old: two runs have passed since, and the second has had its time.
func (s *Schedule) TooOldAfter(taken time.Time) time.Time {
	second := s.next(s.next(taken))
	return second.Add(max(s.next(second).Sub(second)/2, spread))
}

// Last is the youngest good snapshot, or nil.
func Last(snapshots []v1alpha1.EtcdSnapshot) *v1alpha1.EtcdSnapshot {
	if good := goodOnes(snapshots, func(*v1alpha1.EtcdSnapshot) bool { return true }); len(good) > 0 {
		return good[0]
	}
	return nil
}

// goodOnes are good snapshots, the youngest first.
func goodOnes(snapshots []v1alpha1.EtcdSnapshot, wanted func(*v1alpha1.EtcdSnapshot) bool) []*v1alpha1.EtcdSnapshot {
	var good []*v1alpha1.EtcdSnapshot
	for i := range snapshots {
		if snapshots[i].Good() && wanted(&snapshots[i]) {
			good = append(good, &snapshots[i])
		}
	}
	slices.SortFunc(good, func(a, b *v1alpha1.EtcdSnapshot) int {
		return cmp.Or(b.Spec.Contents.TakenTime.Compare(a.Spec.Contents.TakenTime.Time), strings.Compare(a.Name, b.Name))
	})
	return good
}

// automatic says whether no person asked for a snapshot.
func automatic(snapshot *v1alpha1.EtcdSnapshot) bool {
	return snapshot.Spec.Reason != v1alpha1.SnapshotManual
}

// Excess are the snapshots that are too many: good ones that no person asked for, beyond those to keep, and others that nobody waits for
// any more since there is a later good one. The last good one is never among them.
func Excess(now time.Time, keep int32, snapshots []v1alpha1.EtcdSnapshot) []*v1alpha1.EtcdSnapshot {
	last := Last(snapshots)
	if last == nil || keep < 1 {
		return nil
	}
	kept := goodOnes(snapshots, automatic)
	excess := slices.Clone(kept[min(len(kept), int(keep)):])
	for i := range snapshots {
		snapshot := &snapshots[i]
		asked := snapshot.Spec.ScheduledTime
		if asked.IsZero() {
			asked = snapshot.CreationTimestamp
		}
		late := asked.Add(patience).Before(now) && asked.Time.Before(last.Spec.Contents.TakenTime.Time)
		if automatic(snapshot) && snapshot.Spec.Contents == nil && snapshot.DeletionTimestamp.IsZero() && late {
			excess = append(excess, snapshot)
		}
	}
	return slices.DeleteFunc(excess, func(s *v1alpha1.EtcdSnapshot) bool { return s == last })
}
