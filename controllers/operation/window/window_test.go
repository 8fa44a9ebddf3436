// SPDX-License-Identifier: Apache-2.0

package window_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/window"
)

func TestAt(t *testing.T) {
	nightly := v1alpha1.MaintenanceWindow{Schedule: "0 2 * * *", DurationSeconds: 3 * 3600}
	tokyo := v1alpha1.MaintenanceWindow{Schedule: "0 2 * * *", DurationSeconds: 3600, TimeZone: "Asia/Tokyo"}
	for name, row := range map[string]struct {
		windows []v1alpha1.MaintenanceWindow
		now     string
		open    bool
		changes string
	}{
		"none is always":            {nil, "2026-11-29T12:00:00Z", true, ""},
		"before":                    {[]v1alpha1.MaintenanceWindow{nightly}, "2026-11-29T01:59:59Z", false, "2026-11-29T02:00:00Z"},
		"at its beginning":          {[]v1alpha1.MaintenanceWindow{nightly}, "2026-11-29T02:00:00Z", true, "2026-11-29T05:00:00Z"},
		"in the middle":             {[]v1alpha1.MaintenanceWindow{nightly}, "2026-11-29T04:30:00Z", true, "2026-11-29T05:00:00Z"},
		"at its end":                {[]v1alpha1.MaintenanceWindow{nightly}, "2026-11-29T05:00:00Z", false, "2026-11-30T02:00:00Z"},
		"in its own time zone":      {[]v1alpha1.MaintenanceWindow{tokyo}, "2026-11-29T17:30:00Z", true, "2026-11-29T18:00:00Z"},
		"one of two is open":        {[]v1alpha1.MaintenanceWindow{nightly, tokyo}, "2026-11-29T17:30:00Z", true, "2026-11-29T18:00:00Z"},
		"the next of two":           {[]v1alpha1.MaintenanceWindow{nightly, tokyo}, "2026-11-29T12:00:00Z", false, "2026-11-29T17:00:00Z"},
		"over midnight, still open": {[]v1alpha1.MaintenanceWindow{{Schedule: "0 23 * * *", DurationSeconds: 7200}}, "2026-11-29T00:30:00Z", true, "2026-11-29T01:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now, err := time.Parse(time.RFC3339, row.now)
			g.Expect(err).NotTo(HaveOccurred())
			state, err := window.At(row.windows, now)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state.Open).To(Equal(row.open))
			if row.changes == "" {
				g.Expect(state.Changes.IsZero()).To(BeTrue())
				return
			}
			g.Expect(state.Changes.UTC().Format(time.RFC3339)).To(Equal(row.changes))
		})
	}
}

func TestWrongWindowsAreNamed(t *testing.T) {
	g := NewWithT(t)
	_, err := window.At([]v1alpha1.MaintenanceWindow{{Schedule: "0 2 * *", DurationSeconds: 60}}, time.Now())
	g.Expect(err).To(MatchError(And(ContainSubstring("spec.maintenanceWindows[0]"), ContainSubstring(`"0 2 * *"`))))
	_, err = window.At([]v1alpha1.MaintenanceWindow{{Schedule: "0 2 30 2 *", DurationSeconds: 60}}, time.Now())
	g.Expect(err).To(MatchError(ContainSubstring(`"0 2 30 2 *" never begins`)))
	_, err = window.At([]v1alpha1.MaintenanceWindow{{Schedule: "@every 1m", DurationSeconds: 3600}}, time.Now())
	g.Expect(err).To(MatchError(ContainSubstring("@every 1m")))
	_, err = window.At([]v1alpha1.MaintenanceWindow{{Schedule: "0 2 * * *", DurationSeconds: 60, TimeZone: "Mars"}}, time.Now())
	g.Expect(err).To(MatchError(ContainSubstring(`timeZone "Mars"`)))
}

// Whatever a schedule says, a window that is judged has a beginning and an end, in that order, and soon.
func FuzzAt(f *testing.F) {
	f.Add("0 22 * * 6", "Europe/Berlin", int32(4*3600), int64(1767323045))
	f.Add("*/5 * * * *", "", int32(60), int64(0))
	f.Add("0 0 30 2 *", "UTC", int32(60), int64(1767323045))
	f.Add("30 2 * * *", "America/New_York", int32(3600), int64(1773000000)) // The night in which this hour is left out.
	f.Add("@every 1h", "Local", int32(604800), int64(-1))
	f.Fuzz(func(t *testing.T, schedule, zone string, seconds int32, unix int64) {
		now := time.Unix(unix%(1<<33), 0)
		seconds = 60 + (seconds&0x7fffffff)%604741 // What the API lets through.
		state, err := window.At([]v1alpha1.MaintenanceWindow{{Schedule: schedule, TimeZone: zone, DurationSeconds: seconds}}, now)
		if err != nil {
			return
		}
		if !state.Changes.After(now) {
			t.Fatalf("%q in %q changes at %s, and it is %s", schedule, zone, state.Changes, now)
		}
		if state.Open && state.Changes.Sub(now) > time.Duration(seconds)*time.Second {
			t.Fatalf("%q in %q is open for longer than %d seconds", schedule, zone, seconds)
		}
	})
}
