// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/config/crd"
	"ichor.maesh.dev/hub/config/policies"
	"ichor.maesh.dev/hub/config/rbac"
	"ichor.maesh.dev/hub/hub/manifests"
)

func TestResourcesAreThoseOfServedVersions(t *testing.T) {
	g := NewWithT(t)
	definitions, err := manifests.Read(fstest.MapFS{"bases/x.yaml": {Data: []byte(`
spec:
  group: example.test
  names: {plural: things}
  versions:
  - {name: v1, served: true}
  - {name: v0, served: false}
`)}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resources(definitions).UnsortedList()).To(ConsistOf(
		schema.GroupVersionResource{Group: "example.test", Version: "v1", Resource: "things"}))
}

func TestTheClusterDefinitionIsForClusterAPI(t *testing.T) {
	g := NewWithT(t)
	definitions, err := manifests.Read(crd.ClusterAPI)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(definitions).To(HaveLen(1))
	g.Expect(definitions[0].GetName()).To(Equal("clusters.cluster.x-k8s.io"))
	g.Expect(definitions[0].GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "v1beta2"))
	g.Expect(resources(definitions).UnsortedList()).To(ConsistOf(
		schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}))
}

func TestAggregatedRolesAreComplete(t *testing.T) {
	g := NewWithT(t)
	roles, err := manifests.Read(rbac.Manifests)
	g.Expect(err).NotTo(HaveOccurred())
	counts := map[string]int{}
	for _, role := range roles {
		counts[role.GetName()] = aggregated(role, roles)
	}
	g.Expect(counts[rbac.ViewerRole]).To(BeNumerically(">", 0))
	g.Expect(counts[rbac.OperatorRole]).To(BeNumerically(">", counts[rbac.ViewerRole]))
	g.Expect(counts[rbac.AdminRole]).To(BeNumerically(">", counts[rbac.OperatorRole]))
	g.Expect(counts[rbac.HubRole]).To(BeZero(), "it has rules of its own")
}

func TestEveryKindOfPolicyIsKnown(t *testing.T) {
	g := NewWithT(t)
	for kind := range policyResources {
		g.Expect(policyKinds(g)).To(ContainElement(kind))
	}
	g.Expect(policyKinds(g)).To(HaveEach(BeKeyOf(policyResources)))
}

// policyKinds are the kinds of all policies that are installed.
func policyKinds(g *WithT) []string {
	all, err := manifests.Read(policies.Manifests)
	g.Expect(err).NotTo(HaveOccurred())
	var kinds []string
	for _, manifest := range all {
		kinds = append(kinds, manifest.GetKind())
	}
	return kinds
}
