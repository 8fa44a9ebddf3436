// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// A control plane whose own member is down is taken away where the others do without it, and only there (B22).
func TestCaseB22SickMember(t *testing.T) {
	for members, allowed := range map[int]bool{1: true, 2: false, 3: true, 4: true, 5: true, 7: true} {
		t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
			g := NewWithT(t)
			in := cluster(members, 1)
			in.Stage.Sick = true
			in.etcd("c1-cp-1", func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} })
			for i := range members {
				in.etcd(fmt.Sprintf("c1-cp-%d", i+1), func(e *EtcdView) { e.Leader = 2 })
			}
			if allowed {
				g.Expect(Check(*in)).To(BeZero())
			} else {
				g.Expect(Check(*in)).To(Equal(Wait{"EtcdHealthy", "etcd has 2 members, and 1 others are not the 2 that it needs"}))
			}
			in.Stage.Sick = false
			g.Expect(Check(*in)).NotTo(BeZero(), "others ask for a member that is well")
		})
	}
}

// The others have to be well, all of them.
func TestSickMemberNeedsTheOthers(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*EtcdView)
		want   string
	}{
		"does not answer": {func(e *EtcdView) { e.Trouble = "no answer" }, "the etcd member of c1-cp-2 cannot be asked: no answer"},
		"has no leader":   {func(e *EtcdView) { e.Leader = 0 }, "the etcd member of c1-cp-2 has no leader"},
		"is a learner":    {func(e *EtcdView) { e.Learner = true }, "the etcd member of c1-cp-2 is a learner"},
		"has an alarm":    {func(e *EtcdView) { e.Alarms = []string{"CORRUPT on member 2"} }, "etcd has an alarm: CORRUPT on member 2"},
	} {
		t.Run(name, func(t *testing.T) {
			in := cluster(3, 0)
			in.Stage.Sick = true
			in.etcd("c1-cp-1", func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} })
			in.etcd("c1-cp-2", row.change)
			NewWithT(t).Expect(Check(*in)).To(Equal(Wait{"EtcdHealthy", row.want}))
		})
	}
	in := cluster(3, 0)
	in.Stage.Sick = true
	delete(in.View.Etcd, "c1-cp-3")
	NewWithT(t).Expect(Check(*in)).To(Equal(Wait{"EtcdHealthy", "the etcd member of c1-cp-3 has not been asked"}))
}

// A member that has been removed already is none that the quorum counts with.
func TestSickMemberThatIsGone(t *testing.T) {
	in := cluster(3, 0)
	in.Stage.Sick = true
	in.etcd("c1-cp-1", func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} })
	for _, name := range []string{"c1-cp-2", "c1-cp-3"} {
		in.etcd(name, func(e *EtcdView) {
			e.Leader = 2
			e.Members = []talos.EtcdMember{{ID: 2, Started: true}, {ID: 3, Started: true}}
		})
	}
	NewWithT(t).Expect(Check(*in)).To(BeZero())
}

// etcdOnly is a stage that takes etcd members away and leaves their machines there.
var etcdOnly = plan.Stage{EtcdOnly: true, Gates: []string{"MachinesDiscovered", "EtcdHealthy"}}

// What mends an etcd that is full is not kept from it by the alarm that says so; by any other it is. Nothing is asked about Nodes, which
// an API server that may not write calls not ready.
func TestEtcdOnly(t *testing.T) {
	g := NewWithT(t)
	in := cluster(3, 1)
	in.Stage = etcdOnly
	in.View.NodesTrouble = "etcdserver: mvcc: database space exceeded"
	for i := range 3 {
		in.etcd(fmt.Sprintf("c1-cp-%d", i+1), func(e *EtcdView) { e.Alarms = []string{"NOSPACE on member 1"} })
	}
	g.Expect(Check(*in)).To(BeZero())
	in.etcd("c1-cp-2", func(e *EtcdView) { e.Alarms = append(e.Alarms, "CORRUPT on member 2") })
	g.Expect(Check(*in)).To(Equal(Wait{"EtcdHealthy", "etcd has an alarm: CORRUPT on member 2"}))

	in = cluster(3, 1)
	in.Stage = etcdOnly
	in.node("cp-2", func(n *kube.Node) { n.Ready = false })
	g.Expect(Check(*in)).To(BeZero())
	in.etcd("c1-cp-2", func(e *EtcdView) { e.Trouble = "no answer" })
	g.Expect(Check(*in)).To(Equal(Wait{"EtcdHealthy", "the etcd member of c1-cp-2 cannot be asked: no answer"}))
}
