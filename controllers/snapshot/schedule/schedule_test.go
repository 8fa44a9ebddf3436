// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/snapshot/schedule"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

// asked is a snapshot that was asked for; taken is when it was taken, empty if it was not.
func asked(name string, reason v1alpha1.SnapshotReason, scheduled, taken string) v1alpha1.EtcdSnapshot {
	s := v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.EtcdSnapshotSpec{Reason: reason}}
	if scheduled != "" {
		s.Spec.ScheduledTime = metav1.NewTime(at(scheduled))
		s.CreationTimestamp = s.Spec.ScheduledTime
	}
	if taken != "" {
		s.Spec.Contents = &v1alpha1.SnapshotContents{TakenTime: metav1.NewTime(at(taken))}
	}
	return s
}

func failed(s v1alpha1.EtcdSnapshot, message string) v1alpha1.EtcdSnapshot {
	s.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "StorageNotAvailable", Message: message}}
	return s
}

func deleted(s v1alpha1.EtcdSnapshot) v1alpha1.EtcdSnapshot {
	s.DeletionTimestamp = ptr.To(metav1.Now())
	return s
}

func of(t *testing.T, cluster string, backup v1alpha1.EtcdBackupSpec) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Of(types.NamespacedName{Namespace: "default", Name: cluster}, &backup)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return s
}

// Within half an hour after each run the cluster has its turn, and only then.
func TestWhenASnapshotIsDue(t *testing.T) {
	nightly := v1alpha1.EtcdBackupSpec{Schedule: "0 2 * * *", Keep: 7}
	scheduled := v1alpha1.SnapshotScheduled
	for name, row := range map[string]struct {
		backup    v1alpha1.EtcdBackupSpec
		now       string
		snapshots []v1alpha1.EtcdSnapshot
		due       string
	}{
		"none yet":                            {nightly, "2026-11-29T12:00:00Z", nil, "2026-11-29T02:00:00Z"},
		"the last run was taken":              {nightly, "2026-11-29T12:00:00Z", []v1alpha1.EtcdSnapshot{asked("a", scheduled, "2026-11-29T02:00:00Z", "2026-11-29T02:10:00Z")}, ""},
		"at the run it is not its turn yet":   {nightly, "2026-11-30T02:00:00Z", []v1alpha1.EtcdSnapshot{asked("a", scheduled, "2026-11-29T02:00:00Z", "2026-11-29T02:10:00Z")}, ""},
		"then it is":                          {nightly, "2026-11-30T02:30:00Z", []v1alpha1.EtcdSnapshot{asked("a", scheduled, "2026-11-29T02:00:00Z", "2026-11-29T02:10:00Z")}, "2026-11-30T02:00:00Z"},
		"missed runs once":                    {nightly, "2026-12-09T12:00:00Z", []v1alpha1.EtcdSnapshot{asked("a", scheduled, "2026-11-29T02:00:00Z", "2026-11-29T02:10:00Z")}, "2026-12-09T02:00:00Z"},
		"one is still to be taken":            {nightly, "2026-12-09T12:00:00Z", []v1alpha1.EtcdSnapshot{asked("a", scheduled, "2026-11-29T02:00:00Z", "")}, ""},
		"one was taken late":                  {nightly, "2026-12-09T12:00:00Z", []v1alpha1.EtcdSnapshot{asked("a", scheduled, "2026-11-29T02:00:00Z", "2026-12-09T03:00:00Z")}, ""},
		"the last run is being deleted":       {nightly, "2026-11-29T12:00:00Z", []v1alpha1.EtcdSnapshot{deleted(asked("a", scheduled, "2026-11-29T02:00:00Z", "2026-11-29T02:10:00Z"))}, ""},
		"a pending one is being deleted":      {nightly, "2026-11-30T12:00:00Z", []v1alpha1.EtcdSnapshot{deleted(asked("a", scheduled, "2026-11-29T02:00:00Z", ""))}, "2026-11-30T02:00:00Z"},
		"what people took is beside":          {nightly, "2026-11-29T12:00:00Z", []v1alpha1.EtcdSnapshot{asked("a", v1alpha1.SnapshotManual, "", "2026-11-29T02:10:00Z")}, "2026-11-29T02:00:00Z"},
		"in its time zone":                    {v1alpha1.EtcdBackupSpec{Schedule: "0 2 * * *", TimeZone: "Asia/Tokyo"}, "2026-11-29T18:00:00Z", nil, "2026-11-29T17:00:00Z"},
		"over the end of summer time":         {v1alpha1.EtcdBackupSpec{Schedule: "30 3 * * *", TimeZone: "Europe/Berlin"}, "2026-10-25T12:00:00Z", nil, "2026-10-25T02:30:00Z"},
		"once in four years":                  {v1alpha1.EtcdBackupSpec{Schedule: "0 0 29 2 *"}, "2027-11-29T12:00:00Z", nil, "2024-02-29T00:00:00Z"},
		"every minute for a day of the month": {v1alpha1.EtcdBackupSpec{Schedule: "* * 1 * *"}, "2026-11-29T12:00:00Z", nil, "2026-11-01T23:59:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			run := of(t, "c1", row.backup).At(at(row.now), row.snapshots)
			due := ""
			if !run.Due.IsZero() {
				due = run.Due.UTC().Format(time.RFC3339)
			}
			g.Expect(due).To(Equal(row.due))
			g.Expect(run.Next).To(BeTemporally(">", at(row.now)))
		})
	}
}

// Three thousand clusters with one schedule do not come at once, and each comes within the half hour.
func TestClustersWithOneScheduleComeOneAfterTheOther(t *testing.T) {
	g := NewWithT(t)
	inMinute := map[time.Time]int{}
	for i := range 3000 {
		s := of(t, fmt.Sprintf("c%d", i), v1alpha1.EtcdBackupSpec{Schedule: "0 2 * * *"})
		next := s.At(at("2026-11-29T02:00:00Z"), []v1alpha1.EtcdSnapshot{asked("a", v1alpha1.SnapshotScheduled, "2026-11-28T02:00:00Z", "2026-11-28T02:10:00Z")}).Next
		g.Expect(next).To(BeTemporally(">=", at("2026-11-29T02:00:00Z")))
		g.Expect(next).To(BeTemporally("<=", at("2026-11-30T02:00:00Z")))
		inMinute[next.Truncate(time.Minute)]++
	}
	g.Expect(len(inMinute)).To(BeNumerically(">=", 30))
	for minute, clusters := range inMinute {
		g.Expect(clusters).To(BeNumerically("<", 200), minute.String())
	}
}

func TestTheNameOfARunIsTheSameEverywhere(t *testing.T) {
	g := NewWithT(t)
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(schedule.Name("c1", at("2026-11-29T17:00:00Z").In(tokyo))).To(Equal("c1-20261129-1700"))
}

func TestWrongSchedulesAreNamed(t *testing.T) {
	for says, backup := range map[string]v1alpha1.EtcdBackupSpec{
		`spec.etcdBackup.schedule "daily"`:                  {Schedule: "daily"},
		`spec.etcdBackup.schedule "0 0 30 2 *" never comes`: {Schedule: "0 0 30 2 *"},
		`spec.etcdBackup.timeZone "Nowhere": want a name`:   {Schedule: "0 2 * * *", TimeZone: "Nowhere"},
	} {
		_, err := schedule.Of(types.NamespacedName{Name: "c1"}, &backup)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(says)))
	}
}

func names(list []*v1alpha1.EtcdSnapshot) []string {
	found := []string{}
	for _, s := range list {
		found = append(found, s.Name)
	}
	return found
}

func TestWhatIsTooMuch(t *testing.T) {
	scheduled := func(name, taken string) v1alpha1.EtcdSnapshot {
		return asked(name, v1alpha1.SnapshotScheduled, "2026-11-01T00:00:00Z", taken)
	}
	one, two, three := scheduled("one", "2026-11-01T00:01:00Z"), scheduled("two", "2026-11-02T00:01:00Z"), scheduled("three", "2026-11-03T00:01:00Z")
	for name, row := range map[string]struct {
		keep      int32
		snapshots []v1alpha1.EtcdSnapshot
		excess    []string
	}{
		"enough room":                           {3, []v1alpha1.EtcdSnapshot{one, two, three}, []string{}},
		"the oldest goes":                       {2, []v1alpha1.EtcdSnapshot{two, one, three}, []string{"one"}},
		"nothing says how many":                 {0, []v1alpha1.EtcdSnapshot{one, two, three}, []string{}},
		"people's are not counted":              {2, []v1alpha1.EtcdSnapshot{asked("mine", v1alpha1.SnapshotManual, "", "2026-11-04T00:00:00Z"), two, three}, []string{}},
		"an operation's are":                    {2, []v1alpha1.EtcdSnapshot{asked("up", v1alpha1.SnapshotUpgrade, "", "2026-11-04T00:00:00Z"), two, three}, []string{"two"}},
		"nobody waits for one that fails":       {1, []v1alpha1.EtcdSnapshot{failed(scheduled("pending", ""), "no bucket"), two}, []string{"pending"}},
		"a status that lies makes none go":      {2, []v1alpha1.EtcdSnapshot{one, failed(two, "it says"), three}, []string{"one"}},
		"none was taken since":                  {1, []v1alpha1.EtcdSnapshot{scheduled("pending", "")}, []string{}},
		"nobody waits for a pending one":        {1, []v1alpha1.EtcdSnapshot{scheduled("pending", ""), three}, []string{"pending"}},
		"what is on its way out is not counted": {2, []v1alpha1.EtcdSnapshot{deleted(one), two, three}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(names(schedule.Excess(at("2026-11-05T00:00:00Z"), row.keep, row.snapshots))).To(Equal(row.excess))
		})
	}
}

func TestHealth(t *testing.T) {
	nightly := &v1alpha1.EtcdBackupSpec{Schedule: "0 2 * * *", Keep: 7}
	fresh := asked("a", v1alpha1.SnapshotScheduled, "2026-11-29T02:00:00Z", "2026-11-29T02:10:00Z")
	pending := asked("b", v1alpha1.SnapshotScheduled, "2026-11-30T02:00:00Z", "")
	for name, row := range map[string]struct {
		backup    *v1alpha1.EtcdBackupSpec
		snapshots []v1alpha1.EtcdSnapshot
		now       string
		status    metav1.ConditionStatus
		reason    string
		message   string
		changes   string
	}{
		"not wanted":          {nil, nil, "2026-11-29T12:00:00Z", "Unknown", "NotConfigured", "spec.etcdBackup is not set", ""},
		"cannot be read":      {&v1alpha1.EtcdBackupSpec{Schedule: "x"}, nil, "2026-11-29T12:00:00Z", "False", "Invalid", `spec.etcdBackup.schedule "x": expected exactly 5 fields, found 1: [x]`, ""},
		"none yet":            {nightly, nil, "2026-11-29T12:00:00Z", "Unknown", "NotYetTaken", "no snapshot has been taken yet", ""},
		"the first one fails": {nightly, []v1alpha1.EtcdSnapshot{failed(pending, "no bucket")}, "2026-11-29T12:00:00Z", "False", "Failing", "b: no bucket", ""},
		"fresh":               {nightly, []v1alpha1.EtcdSnapshot{fresh}, "2026-11-29T12:00:00Z", "True", "BackedUp", "", "2026-12-01T14:00:00Z"},
		"one run was missed":  {nightly, []v1alpha1.EtcdSnapshot{fresh, failed(pending, "no bucket")}, "2026-11-30T20:00:00Z", "True", "BackedUp", "", "2026-12-01T14:00:00Z"},
		"two were":            {nightly, []v1alpha1.EtcdSnapshot{fresh, failed(pending, "no bucket")}, "2026-12-01T14:00:00Z", "False", "TooOld", "the last good snapshot is a, from 2026-11-29T02:10:00Z; b: no bucket", ""},
		"without a schedule":  {&v1alpha1.EtcdBackupSpec{}, []v1alpha1.EtcdSnapshot{fresh}, "2028-11-29T12:00:00Z", "True", "BackedUp", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := &v1alpha1.TalosCluster{Spec: v1alpha1.TalosClusterSpec{EtcdBackup: row.backup}}
			got, changes := schedule.Health(cluster, row.snapshots, at(row.now))
			g.Expect(got).To(Equal(metav1.Condition{Type: "EtcdBackedUp", Status: row.status, Reason: row.reason, Message: row.message}))
			text := ""
			if !changes.IsZero() {
				text = changes.UTC().Format(time.RFC3339)
			}
			g.Expect(text).To(Equal(row.changes))
		})
	}
}

// It follows the schedule, and is the time at which condition EtcdBackedUp changes.
func TestDeadline(t *testing.T) {
	fresh := []v1alpha1.EtcdSnapshot{asked("a", v1alpha1.SnapshotScheduled, "2026-11-29T02:00:00Z", "2026-11-29T02:10:00Z")}
	for name, row := range map[string]struct {
		backup    *v1alpha1.EtcdBackupSpec
		snapshots []v1alpha1.EtcdSnapshot
		scheduled bool
		end       string
	}{
		"not wanted":         {nil, fresh, false, ""},
		"without a schedule": {&v1alpha1.EtcdBackupSpec{}, fresh, false, ""},
		"none yet":           {&v1alpha1.EtcdBackupSpec{Schedule: "0 2 * * *"}, nil, true, ""},
		"hourly":             {&v1alpha1.EtcdBackupSpec{Schedule: "0 * * * *"}, fresh, true, "2026-11-29T04:30:00Z"},
		"nightly":            {&v1alpha1.EtcdBackupSpec{Schedule: "0 2 * * *"}, fresh, true, "2026-12-01T14:00:00Z"},
		"weekly":             {&v1alpha1.EtcdBackupSpec{Schedule: "0 2 * * 0"}, fresh, true, "2026-12-16T14:00:00Z"},
		"cannot be read":     {&v1alpha1.EtcdBackupSpec{Schedule: "x"}, fresh, true, "2026-11-29T02:10:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := &v1alpha1.TalosCluster{Spec: v1alpha1.TalosClusterSpec{EtcdBackup: row.backup}}
			end, scheduled := schedule.Deadline(cluster, row.snapshots)
			g.Expect(scheduled).To(Equal(row.scheduled))
			if row.end == "" {
				g.Expect(end).To(BeZero())
				return
			}
			g.Expect(end).To(BeTemporally("==", at(row.end)))
		})
	}
}
