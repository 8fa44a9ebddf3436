// SPDX-License-Identifier: Apache-2.0

// Package window says whether the maintenance windows of a target are open. It is pure.
package window

import (
	"cmp"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// State is what the windows of a target are at some time.
type State struct {
	// Open says whether operations may begin work on a machine.
	Open bool

	// Changes is when that may change; zero if it never does.
	Changes time.Time
}

// At says what windows are at a time. No window means always open.
func At(windows []v1alpha1.MaintenanceWindow, now time.Time) (State, error) {
	if len(windows) == 0 {
		return State{Open: true}, nil
	}
	var state State
	for i, w := range windows {
		open, changes, err := at(w, now)
		if err != nil {
			return State{}, fmt.Errorf("spec.maintenanceWindows[%d]: %w", i, err)
		}
		switch {
		case open && !state.Open, open == state.Open && (state.Changes.IsZero() || changes.Before(state.Changes)):
			state = State{Open: open, Changes: changes}
		}
	}
	return state, nil
}

// fiveFields reads cron expressions of five fields, and no descriptors such as @every: those have no beginning.
var fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// at finds the last beginning of a window that could still be open, and says when it ends or the next one begins.
func at(w v1alpha1.MaintenanceWindow, now time.Time) (open bool, changes time.Time, err error) {
	zone, err := time.LoadLocation(cmp.Or(w.TimeZone, "UTC"))
	if err != nil {
		return false, time.Time{}, fmt.Errorf("timeZone %q: %w", w.TimeZone, err)
	}
	schedule, err := fiveFields.Parse(w.Schedule)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("schedule %q: %w", w.Schedule, err)
	}
	length := time.Duration(w.DurationSeconds) * time.Second
	begins := schedule.Next(now.In(zone).Add(-length))
	if begins.IsZero() {
		return false, time.Time{}, fmt.Errorf("schedule %q never begins", w.Schedule)
	}
	if !begins.After(now) {
		return true, begins.Add(length), nil
	}
	return false, begins, nil
}
