// SPDX-License-Identifier: Apache-2.0

package invariant_test

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// story writes a journal line by line.
type story struct{ *journal.Journal }

func newStory(t *testing.T) story {
	t.Helper()
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), clock.RealClock{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = j.Close() })
	return story{j}
}

func (s story) reboot(nodes ...string) story {
	for _, node := range nodes {
		s.Begin(journal.Entry{Cluster: "c", Node: node, Method: invariant.RebootMethod}, false).End("OK", "")
	}
	return s
}

func (s story) legacyUpgrade(nodes ...string) story {
	for _, node := range nodes {
		s.Begin(journal.Entry{Cluster: "c", Node: node, Method: invariant.LegacyUpgradeMethod}, false).End("OK", "")
	}
	return s
}

func (s story) install(node string, code int32) story {
	call := s.Begin(journal.Entry{Cluster: "c", Node: node, Method: invariant.InstallMethod}, false)
	call.Exit(code)
	call.End("OK", "")
	return s
}

func (s story) event(node string, names ...string) story {
	for _, name := range names {
		s.Event("c", node, name, "")
	}
	return s
}

func (s story) cordon(agent, node, unschedulable string) story {
	s.Begin(journal.Entry{
		Cluster: "c", Method: "kube PATCH nodes/" + node, Arguments: map[string]string{"agent": agent, "unschedulable": unschedulable},
	}, false).End("200", "")
	return s
}

func TestRules(t *testing.T) {
	three := invariant.Rules{Cluster: "c", ControlPlanes: []string{"cp-1", "cp-2", "cp-3"}}
	for name, test := range map[string]struct {
		rules invariant.Rules
		tell  func(story)
		wrong []string
	}{
		"one after the other": {rules: three, tell: func(s story) {
			s.reboot("cp-1").event("cp-1", "down", "boot", "running").reboot("cp-2").event("cp-2", "down", "boot", "running").reboot("w-1")
		}},
		"two control planes at once": {rules: three, tell: func(s story) { s.reboot("cp-1", "cp-2") }, wrong: []string{
			"2 control planes were away at once: cp-1, cp-2", "cp-2 was rebooted with 1 of 3 etcd members left",
		}},
		"quorum": {rules: three, tell: func(s story) { s.event("cp-3", "down").reboot("cp-1") }, wrong: []string{
			"cp-1 was rebooted with 1 of 3 etcd members left",
		}},
		"nobody could have known": {
			rules: invariant.Rules{Cluster: "c", ControlPlanes: three.ControlPlanes, Grace: time.Minute},
			tell:  func(s story) { s.event("cp-3", "down").reboot("cp-1") },
		},
		"too many workers": {rules: three, tell: func(s story) { s.reboot("w-1", "w-2") }, wrong: []string{"2 workers were away at once: w-1, w-2"}},
		"workers within the budget": {
			rules: invariant.Rules{Cluster: "c", MaxUnavailable: 2}, tell: func(s story) { s.reboot("w-1", "w-2") },
		},
		"told twice":          {rules: three, tell: func(s story) { s.reboot("w-1", "w-1") }, wrong: []string{"w-1 was told to reboot while it was rebooting"}},
		"installed twice":     {rules: three, tell: func(s story) { s.install("w-1", 0).install("w-1", 0) }, wrong: []string{"the installer ran again on w-1"}},
		"installed once more": {rules: three, tell: func(s story) { s.install("w-1", 6).install("w-1", 0).event("w-1", "boot").install("w-1", 0) }},
		"after a kill":        {rules: invariant.Rules{Cluster: "c", Reinstalls: true}, tell: func(s story) { s.install("w-1", 0).install("w-1", 0) }},
		"outcome unheard of": {
			rules: invariant.Rules{Cluster: "c", Unheard: func(node string, from, to time.Time) bool { return node == "w-1" && !to.Before(from) }},
			tell:  func(s story) { s.install("w-1", 0).install("w-1", 0).install("w-2", 0).install("w-2", 0) },
			wrong: []string{"the installer ran again on w-2"},
		},
		"upgrades of old at once": {rules: three, tell: func(s story) { s.legacyUpgrade("cp-1").reboot("cp-2") }, wrong: []string{
			"2 control planes were away at once: cp-1, cp-2", "cp-2 was rebooted with 1 of 3 etcd members left",
		}},
		"an upgrade of old twice": {rules: three, tell: func(s story) { s.legacyUpgrade("w-1", "w-1") }, wrong: []string{"w-1 was told to reboot while it was rebooting"}},
		"its own cordon":          {rules: three, tell: func(s story) { s.cordon("ichor-hub", "w-1", "true").cordon("ichor-hub", "w-1", "false") }},
		"somebody's cordon":       {rules: three, tell: func(s story) { s.cordon("kubectl", "w-1", "true").cordon("ichor-hub", "w-1", "false") }, wrong: []string{"took off a cordon of w-1 that kubectl had put on"}},
		"a cordon ordered":        {rules: three, tell: func(s story) { s.event("w-1", "cordoned").cordon("ichor-hub", "w-1", "false") }, wrong: []string{"took off a cordon of w-1 that somebody else had put on"}},
		"a cordon taken back": {rules: three, tell: func(s story) {
			s.event("w-1", "cordoned", "uncordoned").cordon("ichor-hub", "w-1", "true").cordon("ichor-hub", "w-1", "false")
		}},
		"before it was looked": {rules: invariant.Rules{Cluster: "c", After: 100}, tell: func(s story) { s.reboot("w-1", "w-1") }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newStory(t)
			test.tell(s)
			found := test.rules.Violations(s.Journal)
			g.Expect(found).To(HaveLen(len(test.wrong)), "%v", found)
			for i, text := range test.wrong {
				g.Expect(found[i]).To(ContainSubstring(text))
			}
		})
	}
}
