// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// removeStages are those of a removal. It crosses even numbers of control planes as a reset does. They depend on nothing but the order: in the
// last one the machine has no TalosMachine any more.
func removeStages(o order) []plan.Stage {
	remove := takesAway(RemoveStage)(o)[0]
	remove.Leaves = true
	remove.Gates = []string{
		v1alpha1.MachinesDiscoveredGate, v1alpha1.TargetReachableGate, v1alpha1.EtcdHealthyGate, v1alpha1.ControlPlanesReadyGate,
		v1alpha1.WorkersAvailableGate, v1alpha1.MachineSettledGate,
	}
	forget := plan.Stage{Name: ForgetStage, Whole: true}
	if !o.node.Dead() {
		return []plan.Stage{remove, forget}
	}
	confirm := leavesThere(ConfirmDeadStage)(o)[0]
	remove.Sick, remove.Gates = true, remove.Gates[:4] // A worker that is dead takes no room away.
	return []plan.Stage{confirm, remove, forget}
}

func refuseRemove(o order) *plan.Refusal {
	if refusal := noRemoval(o); refusal != nil {
		return refusal
	}
	if refusal := last(o, "the cluster ends with it", "to give the cluster up, wipe its machines with: talosctl reset"); refusal != nil {
		return refusal
	}
	if o.node.Dead() && o.isControlPlane() && o.controlPlanes == 2 {
		return &plan.Refusal{
			Gate: v1alpha1.QuorumGate, Message: "two control planes: without either of them etcd has no quorum, and nobody can remove its member",
			Help: "bring the machine back, or restore a snapshot: ichor cluster restore " + o.Spec.ClusterName,
		}
	}
	return nil
}

// noRemoval says why a machine is not the hub's to remove, or not so.
func noRemoval(o order) *plan.Refusal {
	name, namespace := o.machine.Name, cmp.Or(o.machine.Namespace, "NAMESPACE")
	known := func(help, format string, args ...any) *plan.Refusal {
		return &plan.Refusal{Gate: v1alpha1.MachineKnownGate, Message: fmt.Sprintf(format, args...), Help: help}
	}
	switch owner := o.machine.Status.MachineName; {
	case owner != "":
		return known(fmt.Sprintf("scale its control plane or its MachineDeployment down, or: kubectl delete machine -n %s %s", namespace, owner),
			"TalosMachine %s is Machine %s of Cluster API, whose providers remove it", name, owner)
	case managed(o.CAPICluster):
		return known("scale its control plane or its MachineDeployment down", "the machines of cluster %s are made by Cluster API's providers", o.Spec.ClusterName)
	case o.machine.Joining():
		return known(fmt.Sprintf("kubectl delete talosmachine -n %s %s; if it has its machine config already, wipe it: talosctl reset", namespace, name),
			"TalosMachine %s has not joined: it is none of the cluster's machines", name)
	case o.machine.Spec.Approval != v1alpha1.Approved:
		return known(fmt.Sprintf("wipe it with talosctl reset, then: kubectl delete talosmachine -n %s %s; or: ichor machine approve %[2]s", namespace, name),
			"TalosMachine %s is not approved: the hub does not touch it", name)
	case o.machine.Spec.Removal == nil:
		return known(fmt.Sprintf("ichor machine remove %s --reason REASON", name), "TalosMachine %s does not ask to be removed (spec.removal)", name)
	case o.node.Dead() && len(o.Units) == 0 && answers(o.machine): // Whether it does now is asked when it begins.
		return known("remove it without --dead; if it has died since, that is known within a minute", "%s answered when it was last looked at: it is not dead", name)
	}
	return nil
}

// answers says whether a machine answered when it was last looked at. One that nobody has looked at may well do.
func answers(machine *v1alpha1.TalosMachine) bool {
	ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.MachineReadyCondition)
	return ready == nil || ready.Reason != v1alpha1.MachineNotReachableReason
}

func warnRemove(o order) []plan.Warning {
	var warnings []plan.Warning
	if o.node.Dead() {
		warnings = append(warnings, plan.Warning{Code: plan.NotGracefulWarning, Message: fmt.Sprintf(
			"%s is asked for nothing, and not wiped: if it comes back it belongs to nothing, waits for an approval that it must not get, and has to be wiped", o.machine.Name)})
	}
	if !o.isControlPlane() {
		return warnings
	}
	left := o.controlPlanes - 1
	message := fmt.Sprintf("etcd goes on with %d members and can lose %d of them", left, (left-1)/2)
	if left%2 == 0 {
		message += ": operations on control planes wait until another one joins or leaves"
	}
	return append(warnings, plan.Warning{Code: plan.EtcdRoomWarning, Message: message})
}

// loseByRemoval says what is gone for good afterwards.
func loseByRemoval(o order) []string {
	if !o.node.Dead() {
		return loseByReset(o)
	}
	losses := []string{o.machine.Name + ": what pods and volumes had there alone"}
	if o.isControlPlane() {
		losses = append(losses, memberLost(o))
	}
	return losses
}
