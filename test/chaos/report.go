// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report is what a run was, and what it found.
type Report struct {
	// Clusters and Machines count what took part.
	Clusters, Machines int

	// Operations counts operations by kind and end.
	Operations map[string]int

	// Kills and Stops count the ends of the hub.
	Kills, Stops int

	// Faults counts the faults that were ordered, by name.
	Faults map[string]int

	// Moves counts what was done to clusters, by action.
	Moves map[string]int

	// Entries is the length of the journal.
	Entries uint64

	// Problems is what must not be.
	Problems []string
}

func (r *run) report() *Report {
	report := &Report{
		Clusters: len(r.players), Operations: r.watcher.ends(), Kills: r.kills, Stops: r.stops, Faults: map[string]int{}, Moves: map[string]int{},
		Entries: r.harness.Journal().Last(), Problems: r.log.found(),
	}
	for _, p := range r.players {
		report.Machines += len(r.harness.Fleet.Cluster(p.cluster).Nodes())
		for _, f := range p.faults {
			report.Faults[f.fault.Name]++
		}
		for _, move := range p.moves {
			report.Moves[string(move.Do)]++
		}
	}
	return report
}

// String is the report as people read it.
func (r *Report) String() string {
	return strings.Join([]string{
		fmt.Sprintf("clusters:   %d with %d machines", r.Clusters, r.Machines),
		"operations: " + counts(r.Operations),
		fmt.Sprintf("hub:        %d killed, %d stopped", r.Kills, r.Stops),
		"faults:     " + counts(r.Faults),
		"moves:      " + counts(r.Moves),
		fmt.Sprintf("journal:    %d entries", r.Entries),
		fmt.Sprintf("problems:   %d", len(r.Problems)),
	}, "\n")
}

// counts is a total and its parts.
func counts(parts map[string]int) string {
	total, list := 0, make([]string, 0, len(parts))
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		total += parts[name]
		list = append(list, fmt.Sprintf("%s %d", name, parts[name]))
	}
	return fmt.Sprintf("%d (%s)", total, strings.Join(list, ", "))
}
