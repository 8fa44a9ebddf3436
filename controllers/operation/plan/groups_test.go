// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

func some(names ...string) []*v1alpha1.TalosMachine {
	var machines []*v1alpha1.TalosMachine
	for _, name := range names {
		machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{Role: v1alpha1.WorkerRole}}
		if name[0] == 'c' {
			machine.Spec.Role = v1alpha1.ControlPlaneRole
		}
		machines = append(machines, machine)
	}
	return machines
}

func TestMaxUnavailable(t *testing.T) {
	three := some("cp-1", "w-1", "w-2", "w-3")
	for name, row := range map[string]struct {
		budget   *intstr.IntOrString
		machines []*v1alpha1.TalosMachine
		want     int
	}{
		"nothing":                         {nil, three, 1},
		"a number":                        {ptr.To(intstr.FromInt32(2)), three, 2},
		"more than there are":             {ptr.To(intstr.FromInt32(9)), three, 9},
		"a percentage of workers":         {ptr.To(intstr.FromString("67%")), three, 2},
		"a percentage rounds down":        {ptr.To(intstr.FromString("66%")), three, 1},
		"a percentage that is not one":    {ptr.To(intstr.FromString("10%")), three, 1},
		"a percentage of no worker":       {ptr.To(intstr.FromString("100%")), some("cp-1"), 1},
		"all":                             {ptr.To(intstr.FromString("100%")), three, 3},
		"what the CRD lets nobody write":  {ptr.To(intstr.FromString("many")), three, 1},
		"none, which it lets nobody, too": {ptr.To(intstr.FromInt32(0)), three, 1},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(MaxUnavailable(row.budget, row.machines)).To(Equal(row.want))
		})
	}
}

func TestGroups(t *testing.T) {
	machines := some("cp-1", "cp-2", "w-1", "w-2", "w-3")
	order := []string{"cp-2", "cp-1", "w-3", "w-1", "w-2"}
	for name, row := range map[string]struct {
		stage  Stage
		budget int
		want   [][]string
	}{
		"one worker at a time":     {Stage{Machines: order, Batch: Batch{Tiered: true}}, 1, [][]string{{"cp-2"}, {"cp-1"}, {"w-3"}, {"w-1"}, {"w-2"}}},
		"two workers at a time":    {Stage{Machines: order, Batch: Batch{Tiered: true}}, 2, [][]string{{"cp-2"}, {"cp-1"}, {"w-3", "w-1"}, {"w-2"}}},
		"all workers at once":      {Stage{Machines: order, Batch: Batch{Tiered: true}}, 9, [][]string{{"cp-2"}, {"cp-1"}, {"w-3", "w-1", "w-2"}}},
		"no control plane":         {Stage{Machines: order[2:], Batch: Batch{Tiered: true}}, 2, [][]string{{"w-3", "w-1"}, {"w-2"}}},
		"parallel":                 {Stage{Machines: order, Batch: Batch{Parallel: 3}}, 1, [][]string{{"cp-2", "cp-1", "w-3"}, {"w-1", "w-2"}}},
		"parallel, nothing said":   {Stage{Machines: order[:2]}, 1, [][]string{{"cp-2"}, {"cp-1"}}},
		"a stage without machines": {Stage{Whole: true}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(row.stage.Groups(machines, row.budget)).To(Equal(row.want))
		})
	}
}

func TestLiveGates(t *testing.T) {
	machines := some("cp-1", "w-1")
	windows := &v1alpha1.TalosCluster{Spec: v1alpha1.TalosClusterSpec{MaintenanceWindows: []v1alpha1.MaintenanceWindow{{Schedule: "0 1 * * *"}}}}
	for name, row := range map[string]struct {
		cluster *v1alpha1.TalosCluster
		stage   Stage
		want    []string
	}{
		"nothing disruptive": {windows, Stage{Machines: []string{"cp-1"}}, nil},
		"a worker": {
			&v1alpha1.TalosCluster{}, Stage{Machines: []string{"w-1"}, Disruptive: true},
			[]string{"TargetOwned", "MachinesDiscovered", "TargetReachable", "WorkersAvailable", "MachineSettled"},
		},
		"who leaves etcd alone": {
			&v1alpha1.TalosCluster{}, Stage{Machines: []string{"cp-1"}, Disruptive: true, KeepsEtcd: true},
			[]string{"TargetOwned", "MachinesDiscovered", "TargetReachable", "EtcdHealthy", "ControlPlanesReady", "MachineSettled"},
		},
		"all, in a window": {
			windows, Stage{Machines: []string{"cp-1", "w-1"}, Disruptive: true},
			[]string{
				"WaitingForWindow", "ControlPlaneTransitioning", "TargetOwned", "MachinesDiscovered", "TargetReachable", "EtcdHealthy", "ControlPlanesReady",
				"WorkersAvailable", "MachineSettled",
			},
		},
		"some of them only": {
			windows, Stage{Machines: []string{"cp-1", "w-1"}, Disruptive: true, Gates: []string{"MachinesDiscovered"}},
			[]string{"WaitingForWindow", "TargetOwned", "MachinesDiscovered"},
		},
		"what a stage asks by itself": {windows, Stage{Whole: true, Gates: []string{"EtcdHealthy"}}, []string{"EtcdHealthy"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Plan{Stages: []Stage{row.stage}}.LiveGates(row.cluster, machines)).To(Equal(row.want))
		})
	}
}
