// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/test/sim/journal"
)

// HubAgent is how the hub names itself to the Kubernetes API of a target.
const HubAgent = "ichor-hub"

// Methods and events that the rules know besides those of a rolling operation.
const (
	CordonedEvent   = "event cordoned"
	UncordonedEvent = "event uncordoned"

	patchNode = "kube PATCH nodes/"
	putNode   = "kube PUT nodes/"
	patched   = "200"
)

// Rules are what holds at every moment on one cluster, whatever operations run there and whatever fails meanwhile.
type Rules struct {
	// Cluster is the cluster's name.
	Cluster string

	// ControlPlanes are the names of its control planes.
	ControlPlanes []string

	// MaxUnavailable is how many workers may be away at once; zero means one.
	MaxUnavailable int

	// Grace is for how long the hub may not have noticed yet that a machine went down by itself.
	Grace time.Duration

	// Reinstalls allows an installer to run again before the machine has booted, as after a hub that died before it wrote the outcome down.
	Reinstalls bool

	// Unheard says whether the hub may not have heard of what happened to a node between two moments: it was ended, or the network was cut.
	// It allows the same as Reinstalls, and only then.
	Unheard func(node string, from, to time.Time) bool

	// After leaves out what happened up to a sequence of the journal.
	After uint64
}

// node is what the journal tells about one node up to some entry.
type node struct {
	asked     bool      // Told to reboot, and not back yet.
	booting   bool      // Told to reboot, and not booted yet.
	down      time.Time // Since when it is down; zero while it is not.
	installed time.Time // When an installer was started that succeeded, if the machine has not booted since.
	cordon    string    // Who cordoned it: HubAgent, somebody else, or nobody.
}

// ledger reads the journal entry by entry.
type ledger struct {
	rules    Rules
	nodes    map[string]*node
	problems []string
}

// Violations says where the journal shows what must never be: control planes away together, quorum lost by the hub, too many workers
// away, a machine rebooted while it reboots, an installer run over a proven result, a cordon of somebody else taken off.
func (r Rules) Violations(j *journal.Journal) []string {
	l := &ledger{rules: r, nodes: map[string]*node{}}
	for _, entry := range j.Entries(journal.Filter{Cluster: r.Cluster}) {
		l.read(entry)
	}
	return l.problems
}

func (l *ledger) of(name string) *node {
	if l.nodes[name] == nil {
		l.nodes[name] = &node{}
	}
	return l.nodes[name]
}

func (l *ledger) read(entry journal.Entry) {
	n := l.of(entry.Node)
	switch entry.Method {
	case InstallMethod:
		l.installed(entry, n)
	case RebootMethod, LegacyUpgradeMethod:
		if entry.Code == "OK" {
			l.rebooted(entry, n)
		}
	case DownEvent:
		n.down = entry.Time
	case BootEvent:
		n.installed, n.booting = time.Time{}, false
	case RunningEvent:
		n.asked, n.down = false, time.Time{}
	case CordonedEvent:
		n.cordon = "somebody else"
	case UncordonedEvent:
		n.cordon = ""
	}
	l.cordoned(entry)
}

func (l *ledger) say(entry journal.Entry, format string, args ...any) {
	if entry.Sequence > l.rules.After {
		l.problems = append(l.problems, fmt.Sprintf("#%d %s: ", entry.Sequence, entry.Time.Format(time.TimeOnly+".000"))+fmt.Sprintf(format, args...))
	}
}

func (l *ledger) installed(entry journal.Entry, n *node) {
	if !n.installed.IsZero() && !l.rules.mayReinstall(entry, n.installed) {
		l.say(entry, "the installer ran again on %s, which has not booted since it succeeded", entry.Node)
	}
	if entry.ExitCode != nil && *entry.ExitCode == 0 {
		n.installed = entry.Time
	}
}

func (r Rules) mayReinstall(again journal.Entry, installed time.Time) bool {
	return r.Reinstalls || (r.Unheard != nil && r.Unheard(again.Node, installed, again.Time))
}

func (l *ledger) rebooted(entry journal.Entry, n *node) {
	if n.booting {
		l.say(entry, "%s was told to reboot while it was rebooting", entry.Node)
	}
	n.asked, n.booting = true, true
	if slices.Contains(l.rules.ControlPlanes, entry.Node) {
		l.controlPlaneRebooted(entry)
		return
	}
	workers := l.asked(func(name string) bool { return !slices.Contains(l.rules.ControlPlanes, name) })
	if most := max(l.rules.MaxUnavailable, 1); len(workers) > most {
		l.say(entry, "%d workers were away at once: %s", len(workers), strings.Join(workers, ", "))
	}
}

func (l *ledger) controlPlaneRebooted(entry journal.Entry) {
	away := l.asked(func(name string) bool { return slices.Contains(l.rules.ControlPlanes, name) })
	if len(away) > 1 {
		l.say(entry, "%d control planes were away at once: %s", len(away), strings.Join(away, ", "))
	}
	members, up := len(l.rules.ControlPlanes), 0
	for _, name := range l.rules.ControlPlanes {
		n := l.of(name)
		if !n.asked && (n.down.IsZero() || entry.Time.Sub(n.down) < l.rules.Grace) {
			up++
		}
	}
	if members > 1 && up < members/2+1 {
		l.say(entry, "%s was rebooted with %d of %d etcd members left", entry.Node, up, members)
	}
}

// asked are the nodes that were told to reboot and are not back yet, sorted.
func (l *ledger) asked(which func(string) bool) []string {
	var names []string
	for name, n := range l.nodes {
		if n.asked && which(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// cordoned follows who cordons and uncordons Nodes. One that is cordoned already stays with whoever did it.
func (l *ledger) cordoned(entry journal.Entry) {
	name, isPatch := strings.CutPrefix(entry.Method, patchNode)
	if !isPatch {
		name, isPatch = strings.CutPrefix(entry.Method, putNode)
	}
	if !isPatch || entry.Code != patched || strings.Contains(name, "/") {
		return
	}
	n, agent := l.of(name), cmp.Or(entry.Arguments["agent"], "somebody else")
	switch entry.Arguments["unschedulable"] {
	case "true":
		n.cordon = cmp.Or(n.cordon, agent)
	case "false":
		if agent == HubAgent && n.cordon != "" && n.cordon != HubAgent {
			l.say(entry, "the hub took off a cordon of %s that %s had put on", name, n.cordon)
		}
		n.cordon = ""
	}
}
