// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/kube"
)

// standsStill says whether no machine is made or approved: the objects may be moving to another management cluster, or going.
func standsStill(facts *targets.Facts) bool {
	if facts.CAPICluster == nil { // With an owner that is gone, the TalosCluster goes too.
		return slices.ContainsFunc(facts.Cluster.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == clusterv1.ClusterKind })
	}
	return !facts.CAPICluster.DeletionTimestamp.IsZero() || capi.Paused(facts.CAPICluster) || capi.OptedOut(facts.CAPICluster)
}

// loadMembers reads the Machines of a cluster that Cluster API's providers manage, and sees to it that changes of them are noticed.
func (r *Reconciler) loadMembers(ctx context.Context, facts *targets.Facts) error {
	if !facts.Adopted() {
		return nil
	}
	if err := r.begin(); err != nil {
		return err
	}
	var err error
	facts.Members, err = capi.Machines{Client: r.Client, Live: r.APIReader}.Of(ctx, client.ObjectKeyFromObject(facts.Cluster))
	return err
}

// memberFound is the Machine that a machine which was found is, or nil.
func memberFound(facts targets.Facts, seen probe, machine found) *clusterv1.Machine {
	return capi.Find(facts.Members, marks(seen, machine.facts.UUID, machine.facts.NodeName, machine.address))
}

// marks are all that a probe tells of a machine that a Machine can be found by.
func marks(seen probe, uuid, nodeName, address string) capi.Identity {
	known := capi.Identity{UUID: uuid, NodeName: nodeName, Addresses: []string{address}}
	if node := nodeNamed(seen.nodes, nodeName); node != nil {
		known.ProviderID = node.ProviderID
		known.Addresses = append(known.Addresses, node.Addresses...)
	}
	return known
}

// ownedByMember makes a TalosMachine go with its Machine, and move with it.
func ownedByMember(member *clusterv1.Machine) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: member.Name, UID: member.UID}
}

// describeMember writes down which Machine a machine is.
func describeMember(machine *v1alpha1.TalosMachine, facts targets.Facts, seen probe) {
	machine.Status.MachineName = ""
	if member := capi.Find(facts.Members, marks(seen, machine.Spec.UUID, machine.Status.NodeName, machine.Spec.Address)); member != nil {
		machine.Status.MachineName = member.Name
	}
}

// strangeNode says whether a Node of a cluster that Cluster API's providers manage is no Machine of theirs.
func strangeNode(facts targets.Facts, node kube.Node) bool {
	known := capi.Identity{UUID: node.UUID, ProviderID: node.ProviderID, NodeName: node.Name, Addresses: node.Addresses}
	return facts.Adopted() && capi.Find(facts.Members, known) == nil
}

// strangers says which members of a target are no Machines of Cluster API's providers, where these manage it. Nothing means none.
func strangers(facts targets.Facts, seen probe) string {
	if !facts.Adopted() {
		return ""
	}
	first, others := "", 0
	for _, machine := range inOrder(seen.machines) {
		switch {
		case machine.trouble != "" || memberFound(facts, seen, machine) != nil:
		case first == "":
			first = fmt.Sprintf("the machine at %s (Node %q) is no Machine of Cluster %q", machine.address, machine.facts.NodeName, facts.Cluster.Name)
		default:
			others++
		}
	}
	switch {
	case first == "":
		return ""
	case others > 0:
		first += fmt.Sprintf(", and %d more are none", others)
	}
	return first + "; the hub touches only what Cluster API knows"
}
