// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/config/crd"
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
