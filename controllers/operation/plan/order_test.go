// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

func machine(name string, role v1alpha1.MachineRole, change ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TalosMachineSpec{Role: role, Approval: "Approved"},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func controlPlane(name string, change ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	return machine(name, "ControlPlane", change...)
}

func worker(name string, change ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	return machine(name, "Worker", change...)
}

func ordered(label string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Labels = map[string]string{"ichor.maesh.dev/upgrade-order": label} }
}

func holding(note string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		m.Annotations = map[string]string{"ichor.maesh.dev/upgrade-hold": note}
	}
}

// Case B23: the leader of etcd goes last among the control planes.
func TestCaseB23Order(t *testing.T) {
	for name, row := range map[string]struct {
		machines []*v1alpha1.TalosMachine
		leader   string
		want     []string
	}{
		"nobody":                      {want: []string{}},
		"control planes before":       {machines: []*v1alpha1.TalosMachine{worker("a"), controlPlane("z")}, want: []string{"z", "a"}},
		"by name":                     {machines: []*v1alpha1.TalosMachine{worker("b"), worker("a"), worker("c")}, want: []string{"a", "b", "c"}},
		"leader last":                 {machines: []*v1alpha1.TalosMachine{controlPlane("a"), controlPlane("b"), controlPlane("c"), worker("d")}, leader: "a", want: []string{"b", "c", "a", "d"}},
		"leader last beats the label": {machines: []*v1alpha1.TalosMachine{controlPlane("a", ordered("1")), controlPlane("b", ordered("2"))}, leader: "a", want: []string{"b", "a"}},
		"no leader":                   {machines: []*v1alpha1.TalosMachine{controlPlane("b"), controlPlane("a")}, want: []string{"a", "b"}},
		"label, missing last":         {machines: []*v1alpha1.TalosMachine{worker("a"), worker("b", ordered("2")), worker("c", ordered("1"))}, want: []string{"c", "b", "a"}},
		"label is a string":           {machines: []*v1alpha1.TalosMachine{worker("a", ordered("9")), worker("b", ordered("10"))}, want: []string{"b", "a"}},
		"empty label is a label":      {machines: []*v1alpha1.TalosMachine{worker("a"), worker("b", ordered(""))}, want: []string{"b", "a"}},
		"label stays in its tier":     {machines: []*v1alpha1.TalosMachine{worker("a", ordered("0")), controlPlane("b")}, want: []string{"b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := slices.Clone(row.machines)
			g.Expect(Order(row.machines, row.leader)).To(Equal(row.want))
			g.Expect(row.machines).To(Equal(before), "the list that was given stays as it is")
		})
	}
}

// Order is total: whatever the order of the list, the result is the same, complete and without doubles.
func TestOrderIsTotal(t *testing.T) {
	g := NewWithT(t)
	var machines []*v1alpha1.TalosMachine
	for i := range 24 {
		var change []func(*v1alpha1.TalosMachine)
		if i%3 > 0 {
			change = append(change, ordered(fmt.Sprint(i%3)))
		}
		machines = append(machines, machine(fmt.Sprintf("m%02d", i), []v1alpha1.MachineRole{"Worker", "ControlPlane"}[i%2], change...))
	}
	want := Order(machines, "m05")
	g.Expect(want).To(HaveLen(24))
	g.Expect(want[11]).To(Equal("m05"))
	random := rand.New(rand.NewPCG(1, 2)) // The same every time.
	for range 50 {
		random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		g.Expect(Order(machines, "m05")).To(Equal(want))
	}
}

func TestSplitHeld(t *testing.T) {
	g := NewWithT(t)
	taken, held := SplitHeld([]*v1alpha1.TalosMachine{
		worker("c", holding("disk is dying")), worker("a"), worker("b", holding("")),
	})
	g.Expect(held).To(Equal([]string{"b", "c"}), "an empty note holds as well")
	g.Expect(Order(taken, "")).To(Equal([]string{"a"}))
}

func TestControlPlanes(t *testing.T) {
	g := NewWithT(t)
	g.Expect(ControlPlanes(nil)).To(BeZero())
	g.Expect(ControlPlanes([]*v1alpha1.TalosMachine{controlPlane("a"), worker("b"), controlPlane("c")})).To(Equal(2))
}

func TestFacts(t *testing.T) {
	g := NewWithT(t)
	pending := worker("b", func(m *v1alpha1.TalosMachine) { m.Spec.Approval = "Pending" })
	unset := worker("c", func(m *v1alpha1.TalosMachine) { m.Spec.Approval = "" })
	facts := Facts{
		Machines: []v1alpha1.TalosMachine{*worker("a"), *pending, *unset},
		Spec:     v1alpha1.TalosOperationSpec{Overrides: []v1alpha1.GateOverride{{Gate: "TalosVersionPath", Reason: "tried in staging"}}},
	}
	g.Expect(Order(facts.Approved(), "")).To(Equal([]string{"a"}), "what nobody approved is never touched")
	g.Expect(facts.Overridden("TalosVersionPath")).To(BeTrue())
	g.Expect(facts.Overridden("Quorum")).To(BeFalse())
}
