// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ichor.maesh.dev/hub/hack/kustomize"
	"ichor.maesh.dev/hub/hub/manifests"
)

// theSite are the kinds of config/default that an upgrade leaves to whoever has installed the hub.
var theSite = []string{"Namespace", "Issuer", "Certificate"}

func nameOf(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
}

func named(g *WithT, objects []*unstructured.Unstructured) map[string]string {
	all := map[string]string{}
	for _, object := range objects {
		content, err := object.MarshalJSON()
		g.Expect(err).NotTo(HaveOccurred())
		all[nameOf(object)] = strings.Join(strings.Fields(strings.ReplaceAll(string(content), `\n`, " ")), " ") // kustomize folds lines in its own way.
	}
	return all
}

func TestTheReleaseIsWhatIsInConfig(t *testing.T) {
	g := NewWithT(t)
	rendered, err := kustomize.Objects("../../config/default")
	g.Expect(err).NotTo(HaveOccurred())
	mutating, err := kustomize.Objects("../../config/policies/mutating")
	g.Expect(err).NotTo(HaveOccurred())
	release, err := manifests.Release("ichor-system")
	g.Expect(err).NotTo(HaveOccurred())
	brought := named(g, release)
	for name, want := range named(g, rendered) {
		if kind, _, _ := strings.Cut(name, " "); slices.Contains(theSite, kind) {
			g.Expect(brought).NotTo(HaveKey(name))
			continue
		}
		g.Expect(brought[name]).To(MatchJSON(want), name)
		delete(brought, name)
	}
	g.Expect(brought).To(HaveLen(len(mutating)), "the policies that write are installed on their own")
	for name := range named(g, mutating) {
		g.Expect(brought).To(HaveKey(name))
	}
}

func TestAnotherNamespaceIsSaidEverywhere(t *testing.T) {
	g := NewWithT(t)
	release, err := manifests.Release("elsewhere")
	g.Expect(err).NotTo(HaveOccurred())
	for name, content := range named(g, release) {
		g.Expect(content).NotTo(ContainSubstring("ichor-system"), name)
	}
}

func TestTheInstallerMayBeforeAnythingElseIs(t *testing.T) {
	g := NewWithT(t)
	release, err := manifests.Release("ichor-system")
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, object := range release {
		names = append(names, nameOf(object))
	}
	g.Expect(names[:4]).To(Equal([]string{
		"ServiceAccount ichor-system/ichor-installer", "ServiceAccount ichor-system/ichor-hub", "ClusterRole /ichor-installer", names[3],
	}))
	g.Expect(names[len(names)-1]).To(Equal("Deployment ichor-system/ichor-hub"))
}

// The installer's roles name each object of the release and no other: what it cannot name it cannot break.
func TestTheInstallerMayWriteTheReleaseAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	release, err := manifests.Release("ichor-system")
	g.Expect(err).NotTo(HaveOccurred())
	may := map[string]bool{}
	for _, object := range release {
		if object.GetName() != "ichor-installer" || !strings.HasSuffix(object.GetKind(), "Role") {
			continue
		}
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		g.Expect(err).NotTo(HaveOccurred())
		for _, rule := range rules {
			fields := rule.(map[string]any)
			if !slices.Contains(fields["verbs"].([]any), any("patch")) {
				continue
			}
			g.Expect(fields["resourceNames"]).NotTo(BeEmpty(), "%v", fields)
			for _, resource := range fields["resources"].([]any) {
				for _, name := range fields["resourceNames"].([]any) {
					may[fmt.Sprintf("%s %s", resource, name)] = true
				}
			}
		}
	}
	for _, object := range release {
		key := fmt.Sprintf("%s %s", plural(object.GetKind()), object.GetName())
		g.Expect(may).To(HaveKey(key))
		delete(may, key)
	}
	g.Expect(may).To(BeEmpty())
}

func plural(kind string) string {
	lower := strings.ToLower(kind)
	if strings.HasSuffix(lower, "y") {
		return strings.TrimSuffix(lower, "y") + "ies"
	}
	return lower + "s"
}
