// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Only a stage that takes control planes away concerns who counts them.
func TestDisruptedControlPlanes(t *testing.T) {
	named := func(name string, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
		return &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{Role: role}}
	}
	machines := []*v1alpha1.TalosMachine{named("cp-1", "ControlPlane"), named("cp-2", "ControlPlane"), named("w-1", "Worker")}
	all := []string{"cp-2", "cp-1", "w-1"}
	for name, row := range map[string]struct {
		stages []Stage
		want   []string
	}{
		"no stage":                 {nil, nil},
		"pulls only":               {[]Stage{{Machines: all}}, nil},
		"workers only":             {[]Stage{{Machines: all}, {Machines: []string{"w-1"}, Disruptive: true}}, nil},
		"all":                      {[]Stage{{Machines: all}, {Machines: all, Disruptive: true}}, []string{"cp-2", "cp-1"}},
		"twice":                    {[]Stage{{Machines: all, Disruptive: true}, {Machines: all, Disruptive: true}}, []string{"cp-2", "cp-1"}},
		"a machine nobody knows":   {[]Stage{{Machines: []string{"cp-9"}, Disruptive: true}}, nil},
		"a stage without machines": {[]Stage{{Whole: true, Disruptive: true}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Plan{Stages: row.stages}.DisruptedControlPlanes(machines)).To(Equal(row.want))
		})
	}
}
