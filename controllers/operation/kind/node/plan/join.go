// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// joinStages are the one stage of a join. A machine that joins etcd has to have it well, with all its members voting; an even number of
// control planes is what two joins of three go through.
func joinStages(o order) []plan.Stage {
	stage := plan.Stage{
		Name: JoinStage, Machines: []string{o.node.Machine}, Batch: plan.Batch{Tiered: true}, Disruptive: true, Joins: true,
		Gates: []string{v1alpha1.MachinesDiscoveredGate, v1alpha1.TargetReachableGate},
	}
	if o.isControlPlane() {
		stage.Name = JoinControlPlaneStage
		stage.Gates = append(stage.Gates, v1alpha1.EtcdHealthyGate, v1alpha1.ControlPlanesReadyGate)
	}
	return []plan.Stage{stage}
}

// mostControlPlanes is how many members etcd's own documents advise at most.
const mostControlPlanes = 7

// JoinsEtcd says whether a stage is one in which a machine joins etcd.
func JoinsEtcd(stage string) bool { return stage == JoinControlPlaneStage }

func refuseJoin(o order) *plan.Refusal {
	name := o.machine.Name
	known := func(message, help string) *plan.Refusal {
		return &plan.Refusal{Gate: v1alpha1.MachineKnownGate, Message: message, Help: help}
	}
	switch {
	case managed(o.CAPICluster):
		return known(fmt.Sprintf("the machines of cluster %s are made by Cluster API's providers", o.Spec.ClusterName), "scale its control plane or its MachineDeployment")
	case o.machine.Spec.Join == nil:
		return known(fmt.Sprintf("TalosMachine %s does not ask to join (spec.join)", name), "ichor machine join --cluster "+o.Spec.ClusterName)
	case !o.machine.Joining() && len(o.Units) == 0: // One that has joined under this operation's hands has.
		return known(fmt.Sprintf("TalosMachine %s has joined at %s", name, o.machine.Annotations[v1alpha1.JoinedAtAnnotation]), "nothing is left to do")
	case o.machine.Spec.Address == "" || o.machine.Spec.UUID == "":
		return known(fmt.Sprintf("TalosMachine %s does not say where the machine is and which one (spec.address, spec.uuid)", name), "ichor machine join --cluster "+o.Spec.ClusterName)
	case o.machine.Spec.Approval != v1alpha1.Approved:
		return known(fmt.Sprintf("TalosMachine %s is not approved", name), "ichor machine approve "+name) // Who waits for a person keeps nobody in the queue.
	case o.isControlPlane() && o.machine.Joining() && o.controlPlanes >= mostControlPlanes:
		return &plan.Refusal{
			Gate: v1alpha1.QuorumGate, Message: fmt.Sprintf("cluster %s has %d control planes: with more, etcd is slower and no safer", o.Spec.ClusterName, o.controlPlanes),
			Help: "let it join as a worker, or remove a control plane first: ichor machine remove",
		}
	}
	return nil
}

// managed says whether Cluster API's providers make the machines of a cluster.
func managed(cluster *clusterv1.Cluster) bool {
	return cluster != nil && (cluster.Spec.Topology.IsDefined() || cluster.Spec.ControlPlaneRef.IsDefined())
}

func warnJoin(o order) []plan.Warning {
	warnings := []plan.Warning{{
		Code: plan.GivesSecretsWarning,
		Message: fmt.Sprintf("the machine at %s, and none with another certificate than %s, is given the secrets of cluster %s; its disk is overwritten",
			o.machine.Spec.Address, o.machine.Spec.Join.Fingerprint, o.Spec.ClusterName),
	}}
	if !o.isControlPlane() {
		return warnings
	}
	members := o.controlPlanes + 1
	return append(warnings, plan.Warning{
		Code:    plan.EtcdRoomWarning,
		Message: fmt.Sprintf("etcd goes on with %d members and can lose %d of them", members, (members-1)/2),
	})
}
