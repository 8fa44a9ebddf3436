// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"ichor.maesh.dev/hub/test/sim/journal"
)

func open(t *testing.T, path string) (*journal.Journal, *clocktesting.FakeClock) {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Unix(1700000000, 0))
	j, err := journal.Open(path, clk)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = j.Close() })
	return j, clk
}

func TestACallIsRecordedOnArrivalAndCompletedAtItsEnd(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	j, clk := open(t, path)

	call := j.Begin(journal.Entry{Cluster: "c", Node: "n", Method: "MachineService/Reboot"}, false)
	g.Expect(j.Entries(journal.Filter{})).To(ConsistOf(HaveField("Done", false)))
	g.Expect(j.Entries(journal.Filter{Done: true})).To(BeEmpty())
	clk.Step(3 * time.Second)
	call.Exit(4)
	call.End("OK", "")

	entries := j.Entries(journal.Filter{Done: true})
	g.Expect(entries).To(HaveLen(1))
	g.Expect(entries[0].Duration).To(Equal(3 * time.Second))
	g.Expect(entries[0].ExitCode).To(HaveValue(BeEquivalentTo(4)))
	data, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(string(data), "\n")).To(Equal(2), "one line on arrival and one at the end")
}

func TestReadsAreBounded(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	j, _ := open(t, path)
	first := j.Begin(journal.Entry{Cluster: "c", Node: "n", Method: "MachineService/Reboot"}, false)
	first.End("OK", "")
	for range 2000 {
		j.Begin(journal.Entry{Cluster: "c", Node: "n", Method: "State/Get"}, true).End("OK", "")
	}
	g.Expect(j.Reads()).To(Equal(map[string]uint64{"c/n/State/Get": 2000}))
	g.Expect(j.Entries(journal.Filter{Method: "State/Get"})).To(HaveLen(512))
	g.Expect(j.Entries(journal.Filter{Method: "MachineService/*"})).To(HaveLen(1), "changes are never dropped")
	info, err := os.Stat(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Size()).To(BeNumerically("<", 1000), "reads stay out of the file")
}

func TestFilter(t *testing.T) {
	e := journal.Entry{Sequence: 7, Cluster: "c", Node: "n", Method: "kube PATCH nodes/n"}
	for _, tt := range []struct {
		name   string
		filter journal.Filter
		want   bool
	}{
		{"everything", journal.Filter{}, true},
		{"cluster and node", journal.Filter{Cluster: "c", Node: "n"}, true},
		{"another node", journal.Filter{Node: "m"}, false},
		{"a prefix", journal.Filter{Method: "kube *"}, true},
		{"a part", journal.Filter{Method: "kube"}, false},
		{"later ones", journal.Filter{After: 7}, false},
		{"from it on", journal.Filter{After: 6}, true},
		{"completed ones", journal.Filter{Done: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(tt.filter.Matches(e)).To(Equal(tt.want))
		})
	}
}

func TestWaitFindsThePastAndTheFuture(t *testing.T) {
	g := NewWithT(t)
	j, _ := open(t, "")
	j.Event("c", "n", "boot", "")
	e, err := j.Wait(t.Context(), journal.Filter{Method: "event boot"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.Sequence).To(BeEquivalentTo(1))

	found := make(chan journal.Entry, 1)
	go func() {
		e, err := j.Wait(t.Context(), journal.Filter{Method: "event boot", After: j.Last()})
		if err == nil {
			found <- e
		}
	}()
	for len(found) == 0 { // Whether the waiter is already waiting or not, it finds one of these.
		j.Event("c", "n", "boot", "again")
	}
	g.Expect(<-found).To(HaveField("Message", "again"))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = j.WaitN(ended, journal.Filter{Method: "never"}, 1)
	g.Expect(err).To(MatchError(context.Canceled))
}
