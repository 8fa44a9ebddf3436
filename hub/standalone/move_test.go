// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"io/fs"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/config/crd"
	"ichor.maesh.dev/hub/hub/manifests"
)

// "clusterctl move" takes along the objects of definitions with its label, and forgets all others without a word. It leads from a standalone hub
// to Kubernetes.
func TestTheDefinitionsAreMoved(t *testing.T) {
	g := NewWithT(t)
	for _, files := range []fs.FS{crd.Own, crd.ClusterAPI} {
		definitions, err := manifests.Definitions(files)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(definitions).NotTo(BeEmpty())
		for _, definition := range definitions {
			g.Expect(definition.GetLabels()).To(HaveKeyWithValue("clusterctl.cluster.x-k8s.io", ""), definition.GetName())
		}
	}
}
