// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	nodeplan "ichor.maesh.dev/hub/controllers/operation/kind/node/plan"
	"ichor.maesh.dev/hub/providers/talos"
)

func TestNextDefrag(t *testing.T) {
	for name, row := range map[string]struct {
		step   v1alpha1.OperationStep
		status func(*v1alpha1.UnitStatus)
		change func(*talos.Etcd)
		want   kind.Action
	}{
		"begin":                   {"", nil, nil, kind.Action{Verdict: kind.Call, Step: "Defragmenting"}},
		"done":                    {"Defragmenting", succeeded, nil, kind.Action{Verdict: kind.Done}},
		"failed":                  {"Defragmenting", failed("Permanent"), nil, kind.Action{Verdict: kind.Fail, Message: "Defragmenting failed: it broke"}},
		"not back yet":            {"Defragmenting", succeeded, func(e *talos.Etcd) { e.Leader = 0 }, kind.Action{Verdict: kind.Wait, Message: "waiting until etcd has a leader"}},
		"reports what it lacks":   {"Defragmenting", succeeded, func(e *talos.Etcd) { e.Errors = []string{"sick"} }, kind.Action{Verdict: kind.Wait, Message: "waiting until the etcd member is healthy: [sick]"}},
		"its alarm stays for now": {"Defragmenting", succeeded, func(e *talos.Etcd) { e.Alarms = []string{"NOSPACE on member 1a"} }, kind.Action{Verdict: kind.Done}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("EtcdDefrag", nil)
			if row.change != nil {
				w.talos.Change("10.0.0.2", func(_ *talos.Machine, e *talos.Etcd) { row.change(e) })
			}
			u := w.unit("cp-2", row.step, row.status)
			u.Status.Stage = nodeplan.DefragStage
			NewWithT(t).Expect(w.next(t, u)).To(Equal(row.want))
		})
	}
}

func TestDefragTellsWhatItWon(t *testing.T) {
	g := NewWithT(t)
	w := newWorld("EtcdDefrag", nil)
	outcome, err := w.executor.Do(t.Context(), w.scope, w.unit("cp-2", "Defragmenting", nil), "Defragmenting")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(outcome.Message).To(Equal("the database has 1.0 MiB, and had 2.0 MiB"))
}

// Talos takes all alarms back or none: where there is one that is not about space, none.
func TestNextDisarm(t *testing.T) {
	alarmed := func(alarms ...string) func(*talos.Etcd) { return func(e *talos.Etcd) { e.Alarms = alarms } }
	for name, row := range map[string]struct {
		step   v1alpha1.OperationStep
		status func(*v1alpha1.UnitStatus)
		change func(*talos.Etcd)
		want   kind.Action
	}{
		"no alarm":     {"", nil, alarmed(), kind.Action{Verdict: kind.Done}},
		"space":        {"", nil, alarmed("NOSPACE on member 1a"), kind.Action{Verdict: kind.Call, Step: "Disarming"}},
		"another one":  {"", nil, alarmed("NOSPACE on member 1a", "CORRUPT on member 1b"), kind.Action{Verdict: kind.Fail, Message: "etcd has an alarm that is not about space, and would lose it as well: CORRUPT on member 1b"}},
		"taken back":   {"Disarming", succeeded, alarmed(), kind.Action{Verdict: kind.Done}},
		"raised again": {"Disarming", succeeded, alarmed("NOSPACE on member 1a"), kind.Action{Verdict: kind.Wait, Message: "waiting until the alarm is gone: NOSPACE on member 1a"}},
		"could not":    {"Disarming", failed("Permanent"), alarmed("NOSPACE on member 1a"), kind.Action{Verdict: kind.Fail, Message: "Disarming failed: it broke"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("EtcdDefrag", func(n *v1alpha1.NodeParameters) { n.Alarms = "Disarm" })
			w.talos.Change("10.0.0.1", func(_ *talos.Machine, e *talos.Etcd) { row.change(e) })
			u := w.unit("cp-1", row.step, row.status)
			u.Status.Stage = nodeplan.DisarmStage
			NewWithT(t).Expect(w.next(t, u)).To(Equal(row.want))
		})
	}
	t.Run("nobody tells", func(t *testing.T) {
		seen := kind.Observation{Talos: talos.Machine{UUID: "uuid-cp-1"}, EtcdTrouble: "no answer"}
		w := newWorld("EtcdDefrag", nil)
		u := w.unit("cp-1", "", func(s *v1alpha1.UnitStatus) { s.Stage = nodeplan.DisarmStage })
		NewWithT(t).Expect(w.executor.Next(w.scope, u, seen)).To(Equal(kind.Action{Verdict: kind.Wait, Reason: "EtcdHealthy", Message: "waiting for etcd: no answer"}))
	})
}

func TestNextForfeit(t *testing.T) {
	waits := func(reason, message string) kind.Action {
		return kind.Action{Verdict: kind.Wait, Reason: reason, Message: message}
	}
	for name, row := range map[string]struct {
		step   v1alpha1.OperationStep
		status func(*v1alpha1.UnitStatus)
		change func(*talos.Etcd)
		want   kind.Action
	}{
		"leads":                       {"", nil, nil, kind.Action{Verdict: kind.Call, Step: "Forfeiting"}},
		"does not lead":               {"", nil, func(e *talos.Etcd) { e.Leader = 0x1b }, kind.Action{Verdict: kind.Done}},
		"nobody leads":                {"", nil, func(e *talos.Etcd) { e.Leader = 0 }, waits("EtcdHealthy", "etcd does not tell who leads: there is no leader")},
		"a learner would":             {"", nil, func(e *talos.Etcd) { e.Members[1].Learner = true }, waits("EtcdHealthy", "etcd member cp-2 is a learner: it could not lead")},
		"one would that is not there": {"", nil, func(e *talos.Etcd) { e.Members[1].Started = false }, waits("EtcdHealthy", "etcd member 000000000000001b has not started: it could not lead")},
		"asked, leads yet":            {"Forfeiting", succeeded, nil, waits("", "waiting until another etcd member leads")},
		"asked, election":             {"Forfeiting", succeeded, func(e *talos.Etcd) { e.Leader = 0 }, waits("", "etcd does not tell who leads: there is no leader")},
		"asked, done":                 {"Forfeiting", succeeded, func(e *talos.Etcd) { e.Leader = 0x1c }, kind.Action{Verdict: kind.Done}},
		"failed":                      {"Forfeiting", failed("Timeout"), nil, kind.Action{Verdict: kind.Fail, Message: "Forfeiting failed: it broke"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("EtcdForfeitLeadership", nil)
			if row.change != nil {
				w.talos.Change("10.0.0.1", func(_ *talos.Machine, e *talos.Etcd) { row.change(e) })
			}
			NewWithT(t).Expect(w.next(t, w.unit("cp-1", row.step, row.status))).To(Equal(row.want))
		})
	}
}
