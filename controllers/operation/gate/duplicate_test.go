// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Case B8: records that clash are named, both of them, in the same words every time.
func TestCaseB8Duplicate(t *testing.T) {
	one := func(name, uuid, member, address, node string) *v1alpha1.TalosMachine {
		return &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{UUID: uuid, Address: address},
			Status: v1alpha1.TalosMachineStatus{NodeName: node, EtcdMemberID: member},
		}
	}
	const help = ": delete the TalosMachine that is not there any more"
	for name, row := range map[string]struct {
		other *v1alpha1.TalosMachine
		want  string
	}{
		"none":           {one("b", "u2", "m2", "10.0.0.2", "cp-2"), ""},
		"nothing known":  {one("b", "", "", "", ""), ""},
		"UUID":           {one("b", "U1", "m2", "10.0.0.2", "cp-2"), `a and b have the same UUID "u1"` + help},
		"etcd member ID": {one("b", "u2", "m1", "10.0.0.2", "cp-2"), `a and b have the same etcd member ID "m1"` + help},
		"address":        {one("b", "u2", "m2", "10.0.0.1", "cp-2"), `a and b have the same address "10.0.0.1"` + help},
		"node name":      {one("b", "u2", "m2", "10.0.0.2", "CP-1"), `a and b have the same node name "cp-1"` + help},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			first := one("a", "u1", "m1", "10.0.0.1", "cp-1")
			g.Expect(Duplicate([]*v1alpha1.TalosMachine{first, row.other})).To(Equal(row.want))
			g.Expect(Duplicate([]*v1alpha1.TalosMachine{row.other, first})).To(Equal(row.want))
			other := one("c", "", "", "", "") // Two that know nothing of themselves are no duplicates.
			g.Expect(Duplicate([]*v1alpha1.TalosMachine{row.other, other, first})).To(Equal(row.want))
		})
	}
}

// Nothing disruptive begins, whether the approved machines clash or discovery says that others do.
func TestCaseB8MachinesDiscoveredWaits(t *testing.T) {
	g := NewWithT(t)
	machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.TalosMachineSpec{UUID: "u1"}, Status: v1alpha1.TalosMachineStatus{NodeName: "w-1"}}
	clone := machine.DeepCopy()
	clone.Name, clone.Status.NodeName = "b", "w-2"
	in := Input{
		Cluster:  &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.MembersApprovedAtAnnotation: "x"}}},
		Machines: []*v1alpha1.TalosMachine{machine}, Machine: machine,
	}
	g.Expect(machinesDiscovered(in)).To(BeEmpty())
	in.Machines = append(in.Machines, clone)
	g.Expect(machinesDiscovered(in)).To(HavePrefix(`a and b have the same UUID "u1"`))
	in.Machines = in.Machines[:1]
	in.Cluster.Status.Conditions = []metav1.Condition{{Type: "MachinesDiscovered", Status: "False", Reason: "Unmatched", Message: "Node x has no machine"}}
	g.Expect(machinesDiscovered(in)).To(BeEmpty(), "a machine that waits for its approval stops nobody")
	in.Cluster.Status.Conditions[0].Reason = "Duplicate"
	in.Cluster.Status.Conditions[0].Message = "the machines at x and y have the same UUID"
	g.Expect(machinesDiscovered(in)).To(Equal("the machines at x and y have the same UUID"))
}
