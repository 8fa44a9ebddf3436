// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// members are the control planes whose etcd members an order defragments, in order. Who leads when it is their turn comes last.
func (o order) members() []string {
	if o.node.Machine != "" {
		return []string{o.node.Machine}
	}
	var machines []*v1alpha1.TalosMachine
	for _, machine := range o.Approved() {
		if machine.Spec.Role == v1alpha1.ControlPlaneRole {
			machines = append(machines, machine)
		}
	}
	return plan.Order(machines, o.leader())
}

// leader is who led etcd when it was last looked at.
func (o order) leader() string {
	if o.Cluster == nil {
		return ""
	}
	return o.Cluster.Status.EtcdLeader
}

// etcdGates are those that are not about Nodes: an API server whose etcd is full calls them not ready, and they stay where they are.
var etcdGates = []string{v1alpha1.ControlPlaneTransitioningReason, v1alpha1.MachinesDiscoveredGate, v1alpha1.EtcdHealthyGate}

// defragStages take one member away after the other, and the alarm back after the last one.
func defragStages(o order) []plan.Stage {
	members := o.members()
	stages := []plan.Stage{{Name: DefragStage, Machines: members, Batch: plan.Batch{Tiered: true}, Disruptive: true, EtcdOnly: true, Gates: etcdGates}}
	if o.node.Alarms == v1alpha1.EtcdAlarmsDisarm && len(members) > 0 {
		stages = append(stages, plan.Stage{Name: DisarmStage, Machines: members[:1], Batch: plan.Batch{Parallel: 1}})
	}
	return stages
}

func refuseDefrag(o order) *plan.Refusal {
	switch {
	case o.controlPlanes == 0:
		return &plan.Refusal{
			Gate: v1alpha1.MachineKnownGate, Message: fmt.Sprintf("cluster %s has no approved control plane", o.Spec.ClusterName),
			Help: fmt.Sprintf("ichor machine list --cluster %s", o.Spec.ClusterName),
		}
	case o.machine != nil && !o.isControlPlane():
		return noMember(o)
	case o.controlPlanes == 2:
		return &plan.Refusal{
			Gate: v1alpha1.QuorumGate, Message: "two control planes: etcd has no quorum while either of its members is defragmented", Help: moreControlPlanes,
		}
	case o.machine != nil && o.controlPlanes > 1 && o.node.Alarms == v1alpha1.EtcdAlarmsDisarm:
		return &plan.Refusal{
			Gate:    v1alpha1.EtcdMemberGate,
			Message: fmt.Sprintf("alarms are disarmed once all %d members are defragmented, and not after %s alone", o.controlPlanes, o.machine.Name),
			Help:    "leave out the machine, or the alarms",
		}
	}
	return nil
}

func noMember(o order) *plan.Refusal {
	return &plan.Refusal{
		Gate: v1alpha1.EtcdMemberGate, Message: fmt.Sprintf("%s is a worker: it has no etcd member", o.machine.Name),
		Help: "name a control plane; see: ichor machine list --cluster " + o.Spec.ClusterName,
	}
}

func warnDefrag(o order) []plan.Warning {
	if o.controlPlanes > 1 {
		return nil
	}
	return []plan.Warning{{
		Code:    plan.SingleControlPlaneWarning,
		Message: "the only etcd member answers nothing while it is defragmented: the Kubernetes API of the cluster pauses meanwhile",
	}}
}

func refuseForfeit(o order) *plan.Refusal {
	switch {
	case !o.isControlPlane():
		return noMember(o)
	case o.controlPlanes == 1:
		return &plan.Refusal{
			Gate: v1alpha1.EtcdMemberGate, Message: fmt.Sprintf("%s has the only etcd member: no other one can lead", o.machine.Name),
			Help: "there is nothing to do with one member",
		}
	}
	return nil
}

func warnForfeit(o order) []plan.Warning {
	if leader := o.leader(); leader != "" && leader != o.machine.Name {
		return []plan.Warning{{
			Code: plan.NothingToDoWarning, Message: fmt.Sprintf("%s led etcd when it was last looked at: unless that has changed, there is nothing to do", leader),
		}}
	}
	return nil
}
