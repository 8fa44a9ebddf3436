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
)

func TestResourcesAreThoseOfServedVersions(t *testing.T) {
	g := NewWithT(t)
	definitions, err := read(fstest.MapFS{"bases/x.yaml": {Data: []byte(`
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

func TestReadNamesTheDamagedManifest(t *testing.T) {
	g := NewWithT(t)
	_, err := read(fstest.MapFS{"role.yaml": {Data: []byte("{")}})
	g.Expect(err).To(MatchError(ContainSubstring("role.yaml")))
}

func TestTheClusterDefinitionIsForClusterAPI(t *testing.T) {
	g := NewWithT(t)
	definitions, err := read(crd.ClusterAPI)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(definitions).To(HaveLen(1))
	g.Expect(definitions[0].GetName()).To(Equal("clusters.cluster.x-k8s.io"))
	g.Expect(definitions[0].GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "v1beta2"))
	g.Expect(resources(definitions).UnsortedList()).To(ConsistOf(
		schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}))
}

func TestAggregatedRolesAreComplete(t *testing.T) {
	g := NewWithT(t)
	roles, err := read(rbac.Manifests)
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

func TestFilesOfSeveralObjects(t *testing.T) {
	g := NewWithT(t)
	objects, err := decode([]byte("# A comment.\n---\nkind: A\n---\n# Nothing.\n---\nkind: B\n"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveExactElements(HaveField("Object", HaveKeyWithValue("kind", "A")), HaveField("Object", HaveKeyWithValue("kind", "B"))))
	for kind := range policyResources {
		g.Expect(policyKinds(g)).To(ContainElement(kind))
	}
	g.Expect(policyKinds(g)).To(HaveEach(BeKeyOf(policyResources)))
}

// policyKinds are the kinds of all policies that are installed.
func policyKinds(g *WithT) []string {
	manifests, err := read(policies.Manifests)
	g.Expect(err).NotTo(HaveOccurred())
	var kinds []string
	for _, manifest := range manifests {
		kinds = append(kinds, manifest.GetKind())
	}
	return kinds
}
