// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"fmt"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/talos"
)

// powerOn waits until every machine answers, for as long as it takes: only people can power machines on. Control planes come first, since
// the others are asked by way of them.
func powerOn(scope kind.Scope, seen View) kind.Action {
	var controlPlanes, workers, strangers, unclear []string
	for _, machine := range scope.Approved {
		told := seen.Machines[machine.Name]
		switch {
		case told.Trouble == "" && told.UUID != "" && told.UUID != machine.Spec.UUID:
			strangers = append(strangers, machine.Name)
		case told.Trouble == "":
		case !told.Silent:
			unclear = append(unclear, machine.Name+": "+told.Trouble)
		case machine.Spec.Role == v1alpha1.ControlPlaneRole:
			controlPlanes = append(controlPlanes, machine.Name)
		default:
			workers = append(workers, machine.Name)
		}
	}
	wait := kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachinesPoweredOnGate}
	switch {
	case len(strangers) > 0:
		wait.Message = "another machine answers at the address of " + some(strangers)
	case len(unclear) > 0:
		wait.Message = "not known to be on: " + some(unclear)
	case len(controlPlanes) > 0 && len(workers) > 0:
		wait.Message = fmt.Sprintf("power on the control planes %s, then the workers %s", some(controlPlanes), some(workers))
	case len(controlPlanes) > 0:
		wait.Message = "power on the control planes " + some(controlPlanes)
	case len(workers) > 0:
		wait.Message = "power on the workers " + some(workers)
	default:
		return kind.Action{Verdict: kind.Done}
	}
	return wait
}

// verify waits until the cluster is well again.
func verify(scope kind.Scope, unit kind.Unit, seen View) kind.Action {
	if unit.FailedForGood() {
		return kind.FailStep(unit, "")
	}
	if missing := notWell(scope, seen); missing != "" {
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: missing}
	}
	return kind.Action{Verdict: kind.Done}
}

// notWell says what a cluster lacks to be well; nothing means that it is.
func notWell(scope kind.Scope, seen View) string {
	for _, machine := range scope.Approved {
		if missing := seen.Machines[machine.Name].notUp(); missing != "" {
			return fmt.Sprintf("machine %s %s", machine.Name, missing)
		}
	}
	if trouble := gate.EtcdTrouble(scope.Approved, seen.Target.Etcd); trouble != "" {
		return trouble
	}
	if seen.Target.NodesTrouble != "" {
		return "the Kubernetes API of the cluster cannot be read: " + seen.Target.NodesTrouble
	}
	for _, machine := range scope.Approved {
		told := seen.Machines[machine.Name]
		node, there := seen.Target.Nodes[nodeName(machine, told)]
		switch {
		case !there:
			return fmt.Sprintf("the Node of machine %s is not there", machine.Name)
		case !node.Ready || node.BootID != told.BootID:
			return fmt.Sprintf("Node %s is not Ready", node.Name)
		}
	}
	return ""
}

// notUp says what a machine lacks by its own account.
func (m Machine) notUp() string {
	switch {
	case m.Trouble != "":
		return "does not answer: " + m.Trouble
	case m.Stage != talos.StageRunning:
		return fmt.Sprintf("is in stage %q", m.Stage)
	case !m.Ready:
		return "is not ready: " + strings.Join(m.Unmet, ", ")
	}
	return ""
}

// nodeName is the Node of a machine: as it says itself, else as it is recorded.
func nodeName(machine *v1alpha1.TalosMachine, told Machine) string {
	if told.NodeName != "" {
		return told.NodeName
	}
	return machine.Status.NodeName
}

// uncordon gives back exactly the Nodes that name the operation which has stopped the cluster. What somebody had cordoned before stays so.
func uncordon(scope kind.Scope, unit kind.Unit, seen View) kind.Action {
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Done}
	case seen.Target.NodesTrouble != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: "the Kubernetes API of the cluster cannot be read: " + seen.Target.NodesTrouble}
	case cordonedBy(seen.Target.Nodes, scope.StoppedBy):
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.UncordoningStep}
	}
	return kind.Action{Verdict: kind.Done}
}
