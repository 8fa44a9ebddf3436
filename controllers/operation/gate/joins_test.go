// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/talos"
)

// newcomerTo is a look at a cluster that a machine is to join.
func newcomerTo(controlPlanes int, role v1alpha1.MachineRole) *Input {
	in := cluster(controlPlanes, 1)
	in.Stage = plan.Stage{Joins: true, Gates: []string{"MachinesDiscovered", "TargetReachable", "EtcdHealthy", "ControlPlanesReady"}}
	in.Machine = &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "c1-new"},
		Spec:       v1alpha1.TalosMachineSpec{Role: role, Address: "10.9.9.9", UUID: "new", Join: &v1alpha1.JoinSpec{}},
	}
	return in
}

// Whatever number there is of them, even one or two, another control plane may join where all are well; it has no Node yet.
func TestJoinsWhereAllAreWell(t *testing.T) {
	for _, controlPlanes := range []int{1, 2, 3, 4, 5} {
		NewWithT(t).Expect(Check(*newcomerTo(controlPlanes, v1alpha1.ControlPlaneRole))).To(BeZero(), "%d", controlPlanes)
	}
}

// One learner at a time, and nobody joins an etcd that is not well: the next failure may be the one too many.
func TestJoinsNothingThatIsNotWell(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"a learner": {func(in *Input) {
			in.etcd("c1-cp-1", func(e *EtcdView) { e.Members[1].Learner = true })
		}, "is a learner"},
		"lists that differ": {func(in *Input) {
			in.etcd("c1-cp-2", func(e *EtcdView) { e.Members = e.Members[:2] })
		}, "knows other members than the others"},
		"a member that nobody knows": {func(in *Input) {
			for _, name := range []string{"c1-cp-1", "c1-cp-2", "c1-cp-3"} {
				in.etcd(name, func(e *EtcdView) { e.Members = append(e.Members[:3:3], talos.EtcdMember{ID: 99, Started: true}) })
			}
		}, "etcd has 4 members and the cluster 3 approved control planes"},
		"a member that is down": {func(in *Input) { in.etcd("c1-cp-3", func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} }) }, "cannot be asked"},
		"a Node that is not ready": {func(in *Input) {
			node := in.View.Nodes["cp-2"]
			node.Ready = false
			in.View.Nodes["cp-2"] = node
		}, "c1-cp-2 is not ready"},
		"a machine that is there": {func(in *Input) { in.Machines[0].Spec.Address = in.Machine.Spec.Address }, "have the same address"},
	} {
		t.Run(name, func(t *testing.T) {
			in := newcomerTo(3, v1alpha1.ControlPlaneRole)
			row.change(in)
			NewWithT(t).Expect(Check(*in).Message).To(ContainSubstring(row.want))
		})
	}
	worker := newcomerTo(3, v1alpha1.WorkerRole)
	worker.etcd("c1-cp-3", func(e *EtcdView) { *e = EtcdView{Trouble: "no answer"} })
	NewWithT(t).Expect(Check(*worker)).To(BeZero(), "a worker changes nothing there")
}
