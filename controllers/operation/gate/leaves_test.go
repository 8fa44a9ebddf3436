// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/talos"
)

// leaverOf is a look at a cluster that c1-cp-1 is to leave for good.
func leaverOf(controlPlanes int, dead bool) *Input {
	in := cluster(controlPlanes, 1)
	in.Stage = plan.Stage{Leaves: true, Sick: dead, Gates: []string{"MachinesDiscovered", "TargetReachable", "EtcdHealthy"}}
	return in
}

// What has to be well is well, and fewer are needed afterwards: any control plane may leave but the last.
func TestLeavesWhereAllAreWell(t *testing.T) {
	for controlPlanes, want := range map[int]string{1: "c1-cp-1 has the last etcd member", 2: "", 3: "", 4: "", 5: ""} {
		NewWithT(t).Expect(Check(*leaverOf(controlPlanes, false)).Message).To(Equal(want), "%d", controlPlanes)
	}
	in := leaverOf(5, false)
	in.etcd("c1-cp-4", func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} })
	NewWithT(t).Expect(Check(*in).Message).To(Equal("the etcd member of c1-cp-4 cannot be asked: no answer"), "who leaves in good order has time")
}

// Case B4: the member of a machine that is dead is removed by a majority of members that are well, and by nobody else. Of five, two may be lost.
func TestCaseB4LeavesDead(t *testing.T) {
	for name, row := range map[string]struct {
		members int
		silent  []int
		want    string
	}{
		"one of three":  {3, nil, ""},
		"two of three":  {3, []int{2}, "etcd has 3 members, and 1 others are not the 2 that it needs; no answer from c1-cp-2"},
		"one of two":    {2, nil, "etcd has 2 members, and 1 others are not the 2 that it needs"},
		"one of four":   {4, nil, ""},
		"two of four":   {4, []int{2}, "etcd has 4 members, and 2 others are not the 3 that it needs; no answer from c1-cp-2"},
		"two of five":   {5, []int{3}, ""},
		"three of five": {5, []int{3, 4}, "etcd has 5 members, and 2 others are not the 3 that it needs; no answer from c1-cp-3, c1-cp-4"},
		"all of three":  {3, []int{2, 3}, "no other etcd member answers"},
	} {
		t.Run(name, func(t *testing.T) {
			in := leaverOf(row.members, true)
			for i := range row.members {
				in.etcd(fmt.Sprintf("c1-cp-%d", i+1), func(e *EtcdView) { e.Leader = 2 })
			}
			for _, i := range append(row.silent, 1) {
				in.etcd(fmt.Sprintf("c1-cp-%d", i), func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} })
			}
			NewWithT(t).Expect(Check(*in).Message).To(Equal(row.want))
		})
	}
}

// While somebody learns nobody is removed, but for a learner that is dead itself.
func TestLeavesNoLearnerBeside(t *testing.T) {
	for id, want := range map[uint64]string{1: "", 3: "etcd member cp-3 is a learner"} {
		in := leaverOf(3, true)
		in.Machine.Status.EtcdMemberID = "1"
		in.etcd("c1-cp-1", func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} })
		for _, name := range []string{"c1-cp-2", "c1-cp-3"} {
			in.etcd(name, func(e *EtcdView) {
				e.Leader = 2
				e.Members = []talos.EtcdMember{{ID: 1, Hostname: "cp-1", Started: true}, {ID: 2, Hostname: "cp-2", Started: true}, {ID: 3, Hostname: "cp-3", Started: true}}
				e.Members[id-1].Learner = true
			})
		}
		NewWithT(t).Expect(Check(*in).Message).To(Equal(want))
	}
	in := leaverOf(3, true)
	in.etcd("c1-cp-2", func(e *EtcdView) { e.Alarms = []string{"CORRUPT on member 2"} })
	NewWithT(t).Expect(Check(*in).Message).To(Equal("etcd has an alarm: CORRUPT on member 2"))
	delete(in.View.Etcd, "c1-cp-2")
	NewWithT(t).Expect(Check(*in).Message).To(Equal("the etcd member of c1-cp-2 has not been asked"))
}
