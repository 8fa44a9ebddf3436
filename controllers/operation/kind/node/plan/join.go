// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/cluster/identity"
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
	return nameTaken(o, known)
}

// nameTaken refuses the name of another machine. A Node, or a member of etcd, that is no machine is met before anything is given away.
func nameTaken(o order, known func(message, help string) *plan.Refusal) *plan.Refusal {
	if !o.machine.Joining() {
		return nil
	}
	other := Named(o.Machines, o.machine.Name, o.machine.Spec.Join.Hostname)
	if other == nil {
		return nil
	}
	return known(fmt.Sprintf("TalosMachine %s asks for hostname %q (spec.join.hostname), and TalosMachine %s is called so: Talos would put it in the place of that one",
		o.machine.Name, o.machine.Spec.Join.Hostname, other.Name), "ichor machine join --cluster "+o.Spec.ClusterName+" with another --hostname")
}

// modelledOn says what the machine config is made from, as far as somebody should know.
func modelledOn(o order) string {
	of, models := "a worker", 0
	for _, machine := range o.Approved() {
		if machine.Name != o.machine.Name && machine.Spec.Role == o.machine.Spec.Role {
			models++
		}
	}
	vip := ""
	if o.isControlPlane() {
		of, vip = "a control plane", ", nor a virtual IP"
	}
	switch {
	case models == 0 && o.isControlPlane():
		return "no other control plane is known, so nothing tells its machine config"
	case models == 0:
		return "it is the first worker: made from the secrets of the cluster, and from registries, certificates, time servers, proxies, discovery and KubeSpan of a control plane; patches for workers add the rest"
	case models == 1:
		return fmt.Sprintf("its machine config is that of the only other machine of its role, without the network%s and disks of that; labels, annotations, taints and arguments count as the role's", vip)
	}
	return fmt.Sprintf("its machine config is that of %s as it is now, without the network%s and disks of that: a patch for the new machine adds its own", of, vip)
}

// Named is the machine that is called by a name, or will be once it has joined, if there is one other than that of an object's name.
func Named(machines []v1alpha1.TalosMachine, except, name string) *v1alpha1.TalosMachine {
	for i := range machines {
		if machines[i].Name != except && Called(&machines[i], name) {
			return &machines[i]
		}
	}
	return nil
}

// Called says whether a machine is called by a name, or will be once it has joined.
func Called(machine *v1alpha1.TalosMachine, name string) bool {
	return identity.SameHost(machine.Status.NodeName, name) || machine.Joining() && identity.SameHost(machine.Spec.Join.Hostname, name)
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
	if o.machine.Spec.Join.Hostname == "" {
		warnings = append(warnings, plan.Warning{
			Code:    plan.NameNotGivenWarning,
			Message: "nobody has given the machine a name: Talos takes that of a patch, of its platform or of DHCP, or makes one (--hostname)",
		})
	}
	warnings = append(warnings, plan.Warning{Code: plan.ModelWarning, Message: modelledOn(o)})
	if !o.isControlPlane() {
		return warnings
	}
	members := o.controlPlanes + 1
	return append(warnings, plan.Warning{
		Code:    plan.EtcdRoomWarning,
		Message: fmt.Sprintf("etcd goes on with %d members and can lose %d of them", members, (members-1)/2),
	})
}
