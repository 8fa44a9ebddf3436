// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hub/manifests"
)

func TestReadNamesTheDamagedManifest(t *testing.T) {
	g := NewWithT(t)
	_, err := manifests.Read(fstest.MapFS{"role.yaml": {Data: []byte("{")}})
	g.Expect(err).To(MatchError(ContainSubstring("role.yaml")))
}

func TestFilesOfSeveralObjects(t *testing.T) {
	g := NewWithT(t)
	objects, err := manifests.Read(fstest.MapFS{"a.yaml": {Data: []byte("# A comment.\n---\nkind: A\n---\n# Nothing.\n---\nkind: B\n")}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveExactElements(HaveField("Object", HaveKeyWithValue("kind", "A")), HaveField("Object", HaveKeyWithValue("kind", "B"))))
}
