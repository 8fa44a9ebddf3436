// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/kube"
)

func machine(name, nodeName, uuid, address string, approval v1alpha1.Approval) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{}
	m.Name, m.Status.NodeName = name, nodeName
	m.Spec.UUID, m.Spec.Address, m.Spec.Approval = uuid, address, approval
	return m
}

// A Node belongs to a machine by any of what they are known by, whether the hub may touch the machine or not.
func TestStrangersAreNodesWithoutMachine(t *testing.T) {
	scope := kind.Scope{Known: []*v1alpha1.TalosMachine{
		machine("c-cp-1", "cp-1", "", "", v1alpha1.Approved),
		machine("c-w-1", "", "AB-1", "", v1alpha1.Approved),
		machine("c-w-2", "", "", "10.0.0.7", ""),
	}}
	const talos = "Talos (v1.14.1)"
	nodes := []kube.Node{
		{Name: "w-9", OSImage: talos},
		{Name: "CP-1", OSImage: talos},
		{Name: "renamed", UUID: "ab-1", OSImage: talos},
		{Name: "unapproved", Addresses: []string{"10.0.0.7"}, OSImage: talos},
		{Name: "virtual", OSImage: "Virtual"},
		{Name: "a-1", OSImage: talos},
	}
	NewWithT(t).Expect(scope.Strangers(slices.Values(nodes))).To(Equal([]string{"a-1", "w-9"}))
	NewWithT(t).Expect(scope.Unapproved()).To(Equal([]string{"c-w-2"}))
}

// A machine that may have the secrets of the cluster, and does not count as one of it, is in nobody's plans.
func TestHalfJoined(t *testing.T) {
	blank, half, joined := machine("c-w-1", "", "", "", v1alpha1.Approved), machine("c-w-2", "", "", "", v1alpha1.Approved), machine("c-w-3", "", "", "", v1alpha1.Approved)
	for _, m := range []*v1alpha1.TalosMachine{blank, half, joined} {
		m.Spec.Join = &v1alpha1.JoinSpec{}
	}
	half.Annotations = map[string]string{v1alpha1.ProvisionedAtAnnotation: "2026-01-01T00:00:00Z"}
	joined.Annotations = map[string]string{v1alpha1.ProvisionedAtAnnotation: "2026-01-01T00:00:00Z", v1alpha1.JoinedAtAnnotation: "2026-01-01T00:00:00Z"}
	NewWithT(t).Expect(kind.Scope{Known: []*v1alpha1.TalosMachine{blank, half, joined}}.HalfJoined()).To(Equal([]string{"c-w-2"}))
}
