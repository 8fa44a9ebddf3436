// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// resetStages are those of a reset. One that wipes the system removes a machine from its cluster, and so crosses even numbers of control
// planes on its way: whether etcd is well, and can do without the member, is asked anyway.
func resetStages(o order) []plan.Stage {
	stages := takesAway(ResetStage)(o)
	if o.node.Wipes(v1alpha1.WipeSystem) {
		stages[0].Gates = []string{
			v1alpha1.MachinesDiscoveredGate, v1alpha1.TargetReachableGate, v1alpha1.EtcdHealthyGate, v1alpha1.ControlPlanesReadyGate,
			v1alpha1.WorkersAvailableGate, v1alpha1.MachineSettledGate,
		}
	}
	return stages
}

// refuseReset keeps the last control plane, and a quorum. One that keeps its system comes back as from a reboot.
func refuseReset(o order) *plan.Refusal {
	switch {
	case o.node.Wipes(v1alpha1.WipeSystem):
		if refusal := last(o, "the cluster ends with it", "to give the cluster up, wipe its machines with: talosctl reset"); refusal != nil {
			return refusal
		}
		return quorum(o, "without either of them")
	case o.node.PowersOff():
		return refuseStop(o)
	}
	return refuseReboot(o)
}

func warnReset(o order) []plan.Warning {
	var warnings []plan.Warning
	if o.node.Forced() {
		warnings = append(warnings, plan.Warning{
			Code: plan.NotGracefulWarning, Message: "manner Forced: no pod is evicted, no replica moved, and the etcd member does not leave but is removed",
		})
	}
	switch {
	case o.node.Wipes(v1alpha1.WipeSystem):
		return append(append(warnings, oneMemberLess(o)...), remains(o))
	case o.node.PowersOff():
		return append(append(warnings, staysOff(o)...), lessRoom(o)...)
	case o.isControlPlane() && o.controlPlanes == 1:
		return append(warnings, plan.Outage)
	}
	return warnings
}

// oneMemberLess says what etcd goes on with.
func oneMemberLess(o order) []plan.Warning {
	if !o.isControlPlane() {
		return nil
	}
	left := o.controlPlanes - 1
	return []plan.Warning{{
		Code: plan.EtcdRoomWarning,
		Message: fmt.Sprintf("etcd goes on with %d members and can lose %d of them: operations on control planes wait until TalosMachine %s is deleted or joins anew",
			left, (left-1)/2, o.machine.Name),
	}}
}

// remains says what a reset leaves behind, and how it goes: to remove a machine from its cluster is more than to wipe it.
func remains(o order) plan.Warning {
	name, node := o.machine.Name, o.machine.Status.NodeName
	message := fmt.Sprintf("TalosMachine %s stays, and nothing answers for it; if the machine is not to come back: kubectl delete talosmachine -n %s %s",
		name, cmp.Or(o.machine.Namespace, "NAMESPACE"), name)
	if node != "" {
		message += "; on its cluster: kubectl delete node " + node
	}
	return plan.Warning{Code: plan.RemainsWarning, Message: message}
}

// loseByReset says what is gone for good afterwards. Which partitions and disks that are is told by the machine itself, when it is begun with.
func loseByReset(o order) []string {
	var losses []string
	if o.node.Wipes(v1alpha1.WipeSystem) {
		losses = append(losses, fmt.Sprintf(
			"%s: its machine config, its container images and logs, and what pods keep there in emptyDir, hostPath and local volumes (volumes STATE, "+
				"EPHEMERAL, and those of ETCD, CRI, KUBELET and LOG that have a partition of their own)", o.machine.Name))
	}
	if o.node.Wipes(v1alpha1.WipeSystem) && o.isControlPlane() {
		losses = append(losses, memberLost(o))
	}
	if o.node.Wipes(v1alpha1.WipeUserVolumes) {
		losses = append(losses, fmt.Sprintf(
			"%s: its user volumes, with the disks that they lie on as a whole, and on the system disk their partitions", o.machine.Name))
	}
	return losses
}

func memberLost(o order) string {
	return fmt.Sprintf("%s: its etcd member %s", o.machine.Name, cmp.Or(o.machine.Status.EtcdMemberID, "(ID not known)"))
}
