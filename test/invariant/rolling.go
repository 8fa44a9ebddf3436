// SPDX-License-Identifier: Apache-2.0

// Package invariant reads from the journal of a simulated fleet whether anything happened that must never happen. End-to-end tests, the
// harness and chaos tests use the one set of checks.
package invariant

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/test/sim/journal"
)

// Methods as the journal of the fleet names them.
const (
	InstallMethod = "LifecycleService/Upgrade"
	RebootMethod  = "MachineService/Reboot"
	// LegacyUpgradeMethod is the upgrade before Talos 1.13: it drains, installs and reboots in one call.
	LegacyUpgradeMethod = "MachineService/Upgrade"

	DownEvent    = "event down"
	BootEvent    = "event boot"
	RunningEvent = "event running"
	ReadyEvent   = "event ready"
)

// Rolling is what the journal of the fleet tells about a rolling operation on one cluster.
type Rolling struct {
	// Installs and Reboots count the accepted calls by node.
	Installs, Reboots map[string]int

	// Order are the nodes in the order in which they were rebooted.
	Order []string

	away map[string][]absence
}

// absence is the time from the call that takes a node away to its being back.
type absence struct{ from, to time.Time }

// ReadRolling reads the whole journal of a cluster.
func ReadRolling(j *journal.Journal, cluster string) Rolling {
	return ReadRollingSince(j, cluster, 0)
}

// ReadRollingSince reads the journal of a cluster from after a sequence on, such as that of an earlier operation's end.
func ReadRollingSince(j *journal.Journal, cluster string, after uint64) Rolling {
	r := Rolling{Installs: map[string]int{}, Reboots: map[string]int{}, away: map[string][]absence{}}
	for _, entry := range j.Entries(journal.Filter{Cluster: cluster, After: after}) {
		r.note(entry)
	}
	return r
}

func (r *Rolling) note(entry journal.Entry) {
	absences := r.away[entry.Node]
	switch entry.Method {
	case InstallMethod:
		if entry.Code == "OK" || !entry.Done {
			r.Installs[entry.Node]++
		}
	case RebootMethod:
		if entry.Code != "OK" {
			return
		}
		r.Reboots[entry.Node]++
		r.Order = append(r.Order, entry.Node)
		r.away[entry.Node] = append(absences, absence{from: entry.Time})
	case RunningEvent:
		if n := len(absences); n > 0 && absences[n-1].to.IsZero() {
			absences[n-1].to = entry.Time
		}
	}
}

// MostAway is the greatest number of the given nodes that were away at the same time.
func (r Rolling) MostAway(nodes func(string) bool) int {
	most := 0
	for node, absences := range r.away {
		for _, one := range absences {
			if nodes(node) {
				most = max(most, r.awayAt(one.from, nodes))
			}
		}
	}
	return most
}

func (r Rolling) awayAt(at time.Time, nodes func(string) bool) int {
	count := 0
	for node, absences := range r.away {
		if nodes(node) && slices.ContainsFunc(absences, func(a absence) bool {
			return !at.Before(a.from) && (a.to.IsZero() || at.Before(a.to))
		}) {
			count++
		}
	}
	return count
}

// Problems says in which ways a rolling operation did what it must not; leader is the node that led etcd when it began.
func (r Rolling) Problems(leader string, maxUnavailable int) []string {
	var problems []string
	for node, times := range r.Reboots {
		if times > 1 {
			problems = append(problems, fmt.Sprintf("%s was rebooted %d times", node, times))
		}
	}
	for node, times := range r.Installs {
		if times > 1 {
			problems = append(problems, fmt.Sprintf("%s was installed %d times", node, times))
		}
	}
	if most := r.MostAway(IsControlPlane); most > 1 {
		problems = append(problems, fmt.Sprintf("%d control planes were away at once", most))
	}
	if most := r.MostAway(func(node string) bool { return !IsControlPlane(node) }); most > maxUnavailable {
		problems = append(problems, fmt.Sprintf("%d workers were away at once", most))
	}
	if last := r.lastControlPlane(); leader != "" && last != leader {
		problems = append(problems, fmt.Sprintf("the last control plane was %s, and %s led etcd", last, leader))
	}
	if first := slices.IndexFunc(r.Order, func(n string) bool { return !IsControlPlane(n) }); first >= 0 && slices.ContainsFunc(r.Order[first:], IsControlPlane) {
		problems = append(problems, fmt.Sprintf("a control plane came after a worker: %v", r.Order))
	}
	return problems
}

func (r Rolling) lastControlPlane() string {
	last := ""
	for _, node := range r.Order {
		if IsControlPlane(node) {
			last = node
		}
	}
	return last
}

// IsControlPlane tells the fleet's nodes apart by their names.
func IsControlPlane(node string) bool { return strings.Contains(strings.ToLower(node), "cp-") }
