// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// concern is something about a cluster that somebody may have to look at.
type concern struct {
	attention pb.Attention
	why       string

	// passes says that it is what an operation that takes steps brings about, and mends again; or what a planned shutdown does.
	passes bool
}

// clusterAttention is the most urgent concern about a cluster; of several, the first.
func clusterAttention(of Facts, drift []*pb.Drift) (attention pb.Attention, why string) {
	worst := concern{attention: pb.Attention_ATTENTION_NONE}
	moving := slices.ContainsFunc(of.Operations, moves)
	for _, found := range [][]concern{
		aboutOperations(of.Operations),
		aboutPower(of.Cluster),
		aboutConditions(of.Cluster),
		aboutMachines(of),
		aboutDrift(of, drift),
	} {
		for _, c := range found {
			if c.passes && (moving || of.Cluster.Power() != v1alpha1.ClusterRuns) {
				c.attention = min(c.attention, pb.Attention_ATTENTION_WAITING)
			}
			if c.attention > worst.attention {
				worst = c
			}
		}
	}
	return worst.attention, shorten(worst.why)
}

func aboutOperations(operations []*pb.Operation) []concern {
	var found []concern
	for _, op := range operations {
		if op.GetAttention() > pb.Attention_ATTENTION_NONE {
			found = append(found, concern{attention: op.GetAttention(), why: fmt.Sprintf("operation %s: %s", op.GetRef().GetName(), op.GetAnswer().GetWhy())})
		}
	}
	return found
}

// aboutPower says that a cluster is off on purpose, in the place of all that this makes of it.
func aboutPower(cluster *v1alpha1.TalosCluster) []concern {
	words := map[v1alpha1.ClusterPower]string{
		v1alpha1.ClusterStopping:  fmt.Sprintf("is being stopped on purpose by TalosOperation %q", cluster.StoppedBy()),
		v1alpha1.ClusterIsStopped: plan.StoppedWords(cluster) + "; power its machines on, then: ichor cluster start " + cluster.Name,
		v1alpha1.ClusterStarting:  plan.StoppedWords(cluster) + ", and is being started",
	}[cluster.Power()]
	if words == "" {
		return nil
	}
	return []concern{{attention: pb.Attention_ATTENTION_WAITING, why: "the cluster " + words}}
}

// conditionConcerns are states of conditions that somebody may have to look at. An empty reason is any reason.
var conditionConcerns = []struct {
	kind   string
	status metav1.ConditionStatus
	reason string
	concern
}{
	{v1alpha1.CredentialsValidCondition, metav1.ConditionFalse, "", concern{attention: pb.Attention_ATTENTION_PERSON}},
	{v1alpha1.OwnedCondition, metav1.ConditionFalse, "", concern{attention: pb.Attention_ATTENTION_PERSON}},
	{v1alpha1.MachinesDiscoveredCondition, metav1.ConditionFalse, v1alpha1.MachinesDuplicateReason, concern{attention: pb.Attention_ATTENTION_PERSON}},
	{v1alpha1.KubernetesReachableCondition, metav1.ConditionFalse, "", concern{attention: pb.Attention_ATTENTION_PERSON, passes: true}},
	{v1alpha1.TalosReachableCondition, metav1.ConditionFalse, v1alpha1.TalosNotReachableReason, concern{attention: pb.Attention_ATTENTION_PERSON, passes: true}},
	{v1alpha1.EtcdHealthyCondition, metav1.ConditionFalse, "", concern{attention: pb.Attention_ATTENTION_PERSON, passes: true}},
	{v1alpha1.EtcdBackedUpCondition, metav1.ConditionFalse, "", concern{attention: pb.Attention_ATTENTION_SOON}},
	{v1alpha1.CredentialsValidCondition, metav1.ConditionTrue, v1alpha1.CredentialsExpiringReason, concern{attention: pb.Attention_ATTENTION_SOON}},
	{v1alpha1.TalosReachableCondition, metav1.ConditionFalse, "", concern{attention: pb.Attention_ATTENTION_SOON, passes: true}},
	{v1alpha1.MachinesDiscoveredCondition, metav1.ConditionFalse, "", concern{attention: pb.Attention_ATTENTION_SOON, passes: true}},
	{v1alpha1.AvailableCondition, metav1.ConditionUnknown, "", concern{attention: pb.Attention_ATTENTION_WAITING}},
	{v1alpha1.AvailableCondition, metav1.ConditionFalse, "", concern{attention: pb.Attention_ATTENTION_WAITING}}, // Whatever it is, it is not above.
}

func aboutConditions(cluster *v1alpha1.TalosCluster) []concern {
	conditions := cluster.Status.Conditions
	var found []concern
	if meta.IsStatusConditionFalse(conditions, v1alpha1.MachinesDiscoveredCondition) && cluster.Annotations[v1alpha1.MembersApprovedAtAnnotation] == "" {
		// Until every member is known once, the hub works on none.
		found = append(found, concern{attention: pb.Attention_ATTENTION_PERSON, why: told(v1alpha1.MachinesDiscoveredCondition, messageOf(conditions, v1alpha1.MachinesDiscoveredCondition))})
	}
	for _, row := range conditionConcerns {
		c := meta.FindStatusCondition(conditions, row.kind)
		if c != nil && c.Status == row.status && (row.reason == "" || row.reason == c.Reason) {
			row.why = told(row.kind, cmp.Or(c.Message, c.Reason))
			found = append(found, row.concern)
		}
	}
	if meta.FindStatusCondition(conditions, v1alpha1.AvailableCondition) == nil {
		found = append(found, concern{attention: pb.Attention_ATTENTION_WAITING, why: "the hub has not looked at the cluster yet"})
	}
	return found
}

func told(condition, message string) string { return condition + ": " + message }

func aboutMachines(of Facts) []concern {
	var strangers, pending, unready []string
	for _, machine := range of.Machines {
		switch machineAttention(machine, Work{}) { //nolint:exhaustive // The others are of machines that an operation works on, or of no concern.
		case pb.Attention_ATTENTION_SOON:
			unready = append(unready, machine.Name)
		case pb.Attention_ATTENTION_PERSON:
			if machine.Spec.Approval != v1alpha1.Approved {
				pending = append(pending, machine.Name)
			} else {
				strangers = append(strangers, machine.Name)
			}
		}
	}
	return slices.Concat(
		about(strangers, concern{attention: pb.Attention_ATTENTION_PERSON, why: "another machine answers at the address of"}),
		about(pending, concern{attention: pb.Attention_ATTENTION_PERSON, why: "waiting for an approval:"}),
		about(unready, concern{attention: pb.Attention_ATTENTION_SOON, why: "not ready:", passes: true}),
	)
}

// about is a concern about machines, if there are any.
func about(machines []string, c concern) []concern {
	if len(machines) == 0 {
		return nil
	}
	slices.Sort(machines)
	c.why += " " + strings.Join(machines, ", ")
	return []concern{c}
}

// aboutDrift is of no concern while an operation is there that changes versions: what keeps it from that is a concern of its own.
func aboutDrift(of Facts, drift []*pb.Drift) []concern {
	if len(drift) == 0 || slices.ContainsFunc(of.Operations, func(op *pb.Operation) bool { return changesVersions[op.GetKind()] }) {
		return nil
	}
	if meta.IsStatusConditionFalse(of.Cluster.Status.Conditions, v1alpha1.SpecInSyncCondition) {
		return []concern{{attention: pb.Attention_ATTENTION_SOON, why: told(v1alpha1.SpecInSyncCondition, messageOf(of.Cluster.Status.Conditions, v1alpha1.SpecInSyncCondition))}}
	}
	first := drift[0]
	return []concern{{attention: pb.Attention_ATTENTION_SOON, why: fmt.Sprintf("%s: %s runs, and the spec asks for %s", first.GetField(), first.GetObserved(), first.GetDesired())}}
}

var changesVersions = map[pb.OperationKind]bool{
	pb.OperationKind_OPERATION_KIND_TALOS: true, pb.OperationKind_OPERATION_KIND_KUBERNETES: true,
}
