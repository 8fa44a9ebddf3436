// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// selection selects messages: every part of it must hold. A message is given as what the parts look at.
type selection[M any] []func(M) bool

func (s selection[M]) selects(message M) bool {
	for _, holds := range s {
		if !holds(message) {
			return false
		}
	}
	return true
}

// selectOperations reads a filter of operations.
func selectOperations(filter *pb.OperationFilter) (selection[*pb.Operation], error) {
	var parts selection[*pb.Operation]
	if err := checkEnums("filter.kinds", filter.GetKinds(), pb.OperationKind_name); err != nil {
		return nil, err
	}
	if err := checkEnums("filter.phases", filter.GetPhases(), pb.OperationPhase_name); err != nil {
		return nil, err
	}
	if err := checkAttention(filter.GetMinAttention()); err != nil {
		return nil, err
	}
	selector, err := selectorOf("filter.label_selector", filter.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	if namespaces := filter.GetNamespaces(); len(namespaces) > 0 {
		parts = append(parts, func(op *pb.Operation) bool { return slices.Contains(namespaces, op.GetRef().GetNamespace()) })
	}
	if clusters := filter.GetClusters(); len(clusters) > 0 {
		parts = append(parts, func(op *pb.Operation) bool { return refers(clusters, op.GetCluster()) })
	}
	if names := filter.GetNames(); len(names) > 0 {
		parts = append(parts, func(op *pb.Operation) bool { return refers(names, op.GetRef()) })
	}
	if kinds := filter.GetKinds(); len(kinds) > 0 {
		parts = append(parts, func(op *pb.Operation) bool { return slices.Contains(kinds, op.GetKind()) })
	}
	if phases := filter.GetPhases(); len(phases) > 0 {
		parts = append(parts, func(op *pb.Operation) bool { return slices.Contains(phases, op.GetPhase()) })
	}
	if !selector.Empty() {
		parts = append(parts, func(op *pb.Operation) bool { return selector.Matches(labels.Set(op.GetLabels())) })
	}
	if least := filter.GetMinAttention(); least > pb.Attention_ATTENTION_NONE {
		parts = append(parts, func(op *pb.Operation) bool { return op.GetAttention() >= least })
	}
	if text := strings.ToLower(filter.GetText()); text != "" {
		parts = append(parts, func(op *pb.Operation) bool {
			return says(text, op.GetRef().GetName(), op.GetCluster().GetName(), op.GetCreatedBy(), op.GetAnswer().GetWhy())
		})
	}
	return parts, nil
}

// selectClusters reads a filter of clusters.
func selectClusters(filter *pb.ClusterFilter) (selection[*pb.Cluster], error) {
	var parts selection[*pb.Cluster]
	if err := checkAttention(filter.GetMinAttention()); err != nil {
		return nil, err
	}
	selector, err := selectorOf("filter.label_selector", filter.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	if namespaces := filter.GetNamespaces(); len(namespaces) > 0 {
		parts = append(parts, func(c *pb.Cluster) bool { return slices.Contains(namespaces, c.GetRef().GetNamespace()) })
	}
	if names := filter.GetNames(); len(names) > 0 {
		parts = append(parts, func(c *pb.Cluster) bool { return refers(names, c.GetRef()) })
	}
	if !selector.Empty() {
		parts = append(parts, func(c *pb.Cluster) bool { return selector.Matches(labels.Set(c.GetLabels())) })
	}
	if least := filter.GetMinAttention(); least > pb.Attention_ATTENTION_NONE {
		parts = append(parts, func(c *pb.Cluster) bool { return c.GetAttention() >= least })
	}
	if text := strings.ToLower(filter.GetText()); text != "" {
		parts = append(parts, func(c *pb.Cluster) bool {
			talos, kubernetes := c.GetTalosVersions(), c.GetKubernetesVersions()
			return says(text, c.GetRef().GetName(), talos.GetLowest(), talos.GetHighest(), kubernetes.GetLowest(), kubernetes.GetHighest(), c.GetAttentionReason())
		})
	}
	return parts, nil
}

// selectMachines reads what a request says about machines.
func selectMachines(request *pb.ListMachinesRequest) (selection[*pb.Machine], error) {
	var parts selection[*pb.Machine]
	selector, err := selectorOf("label_selector", request.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	if namespaces := request.GetNamespaces(); len(namespaces) > 0 {
		parts = append(parts, func(m *pb.Machine) bool { return slices.Contains(namespaces, m.GetRef().GetNamespace()) })
	}
	if clusters := request.GetClusters(); len(clusters) > 0 {
		parts = append(parts, func(m *pb.Machine) bool { return refers(clusters, m.GetCluster()) })
	}
	if !selector.Empty() {
		parts = append(parts, func(m *pb.Machine) bool { return selector.Matches(labels.Set(m.GetLabels())) })
	}
	if text := strings.ToLower(request.GetText()); text != "" {
		parts = append(parts, func(m *pb.Machine) bool {
			return says(text, m.GetRef().GetName(), m.GetNode(), m.GetCluster().GetName(), m.GetAddress(), m.GetTalosVersion(), m.GetKubernetesVersion())
		})
	}
	return parts, nil
}

// refers says whether one of the references is to an object, or to its namespace.
func refers(references []*pb.Reference, to *pb.Reference) bool {
	return slices.ContainsFunc(references, func(ref *pb.Reference) bool {
		return ref.GetNamespace() == to.GetNamespace() && (ref.GetName() == "" || ref.GetName() == to.GetName())
	})
}

// says says whether a text, in lower case, is in one of several.
func says(text string, in ...string) bool {
	return slices.ContainsFunc(in, func(one string) bool { return strings.Contains(strings.ToLower(one), text) })
}

func selectorOf(field, text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, invalidField(field, text, fmt.Sprintf("a label selector, such as team=a,env!=test (%s)", err))
	}
	return selector, nil
}

// checkEnums checks that each value is one that the protocol knows.
func checkEnums[E ~int32](field string, values []E, names map[int32]string) error {
	for _, value := range values {
		if names[int32(value)] == "" || value == 0 {
			return invalidField(field, fmt.Sprint(value), "one of "+enumNames(names))
		}
	}
	return nil
}

func checkAttention(least pb.Attention) error {
	if least == pb.Attention_ATTENTION_UNSPECIFIED {
		return nil
	}
	return checkEnums("filter.min_attention", []pb.Attention{least}, pb.Attention_name)
}

func enumNames(names map[int32]string) string {
	var known []string
	for number := int32(1); names[number] != ""; number++ {
		known = append(known, names[number])
	}
	return strings.Join(known, ", ")
}
