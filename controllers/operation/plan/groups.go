// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// MaxUnavailable is how many workers may be away at once, of a cluster with these approved machines: at least one, and a percentage of the
// workers rounds down.
func MaxUnavailable(budget *intstr.IntOrString, approved []*v1alpha1.TalosMachine) int {
	if budget == nil {
		return 1
	}
	count, err := intstr.GetScaledValueFromIntOrPercent(budget, len(approved)-ControlPlanes(approved), false)
	if err != nil {
		return 1 // The CRD lets nothing through that could not be read.
	}
	return max(count, 1)
}

// Groups parts the machines of a stage into those that go at once, in order. A place is taken again as soon as it is free, so a group is
// how many there are at most, and who is first.
func (s Stage) Groups(machines []*v1alpha1.TalosMachine, maxUnavailable int) [][]string {
	if !s.Batch.Tiered {
		return slices.Collect(slices.Chunk(s.Machines, max(s.Batch.Parallel, 1)))
	}
	isControlPlane := map[string]bool{}
	for _, machine := range machines {
		isControlPlane[machine.Name] = machine.Spec.Role == v1alpha1.ControlPlaneRole
	}
	var groups [][]string
	var workers []string
	for _, name := range s.Machines {
		if isControlPlane[name] {
			groups = append(groups, []string{name})
		} else {
			workers = append(workers, name)
		}
	}
	return slices.AppendSeq(groups, slices.Chunk(workers, max(maxUnavailable, 1)))
}

// LiveGates are the gates that are judged when an operation of the plan starts, since they need a look at the target, in the order in which
// they are asked.
func (p Plan) LiveGates(cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) []string {
	controlPlanes, workers := p.disrupted(machines, v1alpha1.ControlPlaneRole), p.disrupted(machines, v1alpha1.WorkerRole)
	if len(controlPlanes)+len(workers) == 0 {
		return nil
	}
	var gates []string
	for _, gate := range []struct {
		name   string
		judged bool
	}{
		{v1alpha1.WaitingForWindowReason, len(cluster.Spec.MaintenanceWindows) > 0},
		{v1alpha1.ControlPlaneTransitioningReason, len(controlPlanes) > 0 && !p.KeepsEtcd()},
		{v1alpha1.TargetOwnedGate, true},
		{v1alpha1.MachinesDiscoveredGate, true},
		{v1alpha1.TargetReachableGate, true},
		{v1alpha1.EtcdHealthyGate, len(controlPlanes) > 0},
		{v1alpha1.ControlPlanesReadyGate, len(controlPlanes) > 0},
		{v1alpha1.WorkersAvailableGate, len(workers) > 0},
		{v1alpha1.MachineSettledGate, true},
	} {
		if gate.judged {
			gates = append(gates, gate.name)
		}
	}
	return gates
}
