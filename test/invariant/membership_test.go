// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/sim/journal"
)

func TestMembership(t *testing.T) {
	for name, row := range map[string]struct {
		entries []journal.Entry
		most    int
		want    []string
	}{
		"nothing": {},
		"one after the other": {
			entries: []journal.Entry{
				{Node: "cp-2", Method: provisioned}, {Node: "cp-2", Method: LearnerEvent}, {Node: "cp-2", Method: VoterEvent},
				{Node: "cp-3", Method: provisioned}, {Node: "cp-3", Method: LearnerEvent}, {Node: "cp-3", Method: VoterEvent}, {Node: "cp-2", Method: RemovedEvent},
			}, most: 1,
		},
		"a worker beside": {entries: []journal.Entry{
			{Node: "cp-2", Method: LearnerEvent}, {Node: "worker-1", Method: provisioned}, {Node: "cp-2", Method: VoterEvent},
		}, most: 1},
		"two learners": {entries: []journal.Entry{
			{Node: "cp-2", Method: provisioned}, {Node: "cp-3", Method: provisioned}, {Node: "cp-2", Method: VoterEvent}, {Node: "cp-3", Method: VoterEvent},
		}, most: 2, want: []string{"#0 00:00:00.000: cp-3 was given a machine config while [cp-2] joined"}},
		"a removal beside a learner": {entries: []journal.Entry{
			{Node: "cp-2", Method: LearnerEvent}, {Node: "cp-3", Method: RemovedEvent}, {Node: "cp-2", Method: VoterEvent},
		}, most: 2, want: []string{"#0 00:00:00.000: cp-3 was removed from etcd while [cp-2] joined"}},
		"a learner that is given up": {entries: []journal.Entry{{Node: "cp-2", Method: LearnerEvent}, {Node: "cp-2", Method: RemovedEvent}}, most: 1},
		"never a voter":              {entries: []journal.Entry{{Node: "cp-2", Method: LearnerEvent}}, most: 1, want: []string{"[cp-2] never became voters"}},
		"a bootstrap":                {entries: []journal.Entry{{Node: "cp-2", Method: bootstrapMethod}}, want: []string{"#0 00:00:00.000: cp-2 was told to bootstrap an etcd of its own"}},
		"two configs": {
			entries: []journal.Entry{{Node: "worker-1", Method: provisioned}, {Node: "worker-1", Method: provisioned}},
			want:    []string{"worker-1 was given a machine config 2 times and has left 0 times"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := Membership{Provisioned: map[string]int{}}
			for _, entry := range row.entries {
				m.read(entry, IsControlPlane)
			}
			g.Expect(m.Problems()).To(Equal(row.want))
			g.Expect(m.Most).To(Equal(row.most))
		})
	}
}
