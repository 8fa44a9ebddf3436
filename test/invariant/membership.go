// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"fmt"
	"slices"
	"time"

	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// What the journal tells of the members of etcd, and of what machines are told about etcd.
const (
	LearnerEvent = "event " + etcd.LearnerEvent
	VoterEvent   = "event " + etcd.VoterEvent
	RemovedEvent = "event " + etcd.RemovedEvent

	bootstrapMethod = "MachineService/Bootstrap"
	provisioned     = "event provisioned"
)

// Membership is what the journal tells about who has joined etcd on one cluster, and who has left.
type Membership struct {
	// Joined and Removed are the nodes in the order in which their members came to vote, and went.
	Joined, Removed []string

	// Most is how many changes were under way at the same time, at most.
	Most int

	// Provisioned counts how often a node in maintenance mode has taken a machine config.
	Provisioned map[string]int

	problems []string
	pending  []string // The nodes whose join is under way, from their machine config on.
}

// ReadMembership reads the whole journal of a cluster. controlPlanes are the nodes that would join etcd.
func ReadMembership(j *journal.Journal, cluster string, controlPlanes func(node string) bool) Membership {
	m := Membership{Provisioned: map[string]int{}}
	for _, entry := range j.Entries(journal.Filter{Cluster: cluster}) {
		m.read(entry, controlPlanes)
	}
	return m
}

func (m *Membership) read(entry journal.Entry, controlPlanes func(string) bool) {
	switch entry.Method {
	case provisioned:
		m.Provisioned[entry.Node]++
		if controlPlanes(entry.Node) {
			m.begin(entry, "was given a machine config")
		}
	case LearnerEvent:
		m.begin(entry, "became a learner")
	case VoterEvent:
		m.Joined = append(m.Joined, entry.Node)
		m.end(entry.Node)
	case RemovedEvent:
		m.Removed = append(m.Removed, entry.Node)
		m.end(entry.Node)
		m.Most = max(m.Most, len(m.pending)+1)
		if len(m.pending) > 0 {
			m.say(entry, "was removed from etcd while %v joined", m.pending)
		}
	case bootstrapMethod:
		m.say(entry, "was told to bootstrap an etcd of its own")
	}
}

// begin notes a change that is under way. One that began already goes on.
func (m *Membership) begin(entry journal.Entry, what string) {
	if slices.Contains(m.pending, entry.Node) {
		return
	}
	if len(m.pending) > 0 {
		m.say(entry, "%s while %v joined", what, m.pending)
	}
	m.pending = append(m.pending, entry.Node)
	m.Most = max(m.Most, len(m.pending))
}

func (m *Membership) end(node string) {
	m.pending = slices.DeleteFunc(m.pending, func(other string) bool { return other == node })
}

func (m *Membership) say(entry journal.Entry, format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf("#%d %s: %s %s", entry.Sequence, entry.Time.Format(time.TimeOnly+".000"), entry.Node, fmt.Sprintf(format, args...)))
}

// Problems says in which ways more than one change of the membership was under way at once, or a machine was given more than one machine
// config, since each may be another one.
func (m Membership) Problems() []string {
	problems := slices.Clone(m.problems)
	for node, times := range m.Provisioned {
		if left := count(m.Removed, node); times > left+1 {
			problems = append(problems, fmt.Sprintf("%s was given a machine config %d times and has left %d times", node, times, left))
		}
	}
	return append(problems, m.unfinished()...)
}

// unfinished are joins that have not come to their end.
func (m Membership) unfinished() []string {
	if len(m.pending) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%v never became voters", m.pending)}
}

func count(list []string, of string) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(one string) bool { return one != of }))
}
