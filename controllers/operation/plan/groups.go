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
	takes := func(gate string, roles ...v1alpha1.MachineRole) bool {
		return slices.ContainsFunc(roles, func(role v1alpha1.MachineRole) bool { return len(p.disrupted(machines, role, gate)) > 0 })
	}
	controlPlane, worker := v1alpha1.ControlPlaneRole, v1alpha1.WorkerRole
	disruptive := takes("", controlPlane, worker)
	var gates []string
	for _, gate := range []struct {
		name   string
		judged bool
	}{
		{v1alpha1.WaitingForWindowReason, disruptive && len(cluster.Spec.MaintenanceWindows) > 0},
		{v1alpha1.ControlPlaneTransitioningReason, takes(v1alpha1.ControlPlaneTransitioningReason, controlPlane) && !p.KeepsEtcd()},
		{v1alpha1.TargetOwnedGate, disruptive},
		{v1alpha1.MachinesDiscoveredGate, takes(v1alpha1.MachinesDiscoveredGate, controlPlane, worker)},
		{v1alpha1.TargetReachableGate, takes(v1alpha1.TargetReachableGate, controlPlane, worker)},
		{v1alpha1.EtcdHealthyGate, takes(v1alpha1.EtcdHealthyGate, controlPlane)},
		{v1alpha1.ControlPlanesReadyGate, takes(v1alpha1.ControlPlanesReadyGate, controlPlane)},
		{v1alpha1.WorkersAvailableGate, takes(v1alpha1.WorkersAvailableGate, worker)},
		{v1alpha1.MachineSettledGate, takes(v1alpha1.MachineSettledGate, controlPlane, worker)},
		{v1alpha1.MachinesPoweredOnGate, false},
	} {
		if gate.judged || p.asksItself(gate.name) {
			gates = append(gates, gate.name)
		}
	}
	return gates
}

// asksItself says whether a stage that takes nothing away asks a gate by itself.
func (p Plan) asksItself(gate string) bool {
	return slices.ContainsFunc(p.Stages, func(stage Stage) bool { return !stage.Disruptive && slices.Contains(stage.Gates, gate) })
}
