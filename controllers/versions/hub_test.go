// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestHubUpgrade(t *testing.T) {
	for _, row := range []struct{ from, to, objection string }{
		{"v0.1.0", "v0.1.0", ""},
		{"v0.1.0", "v0.1.7", ""},
		{"v0.1.7", "v0.2.0", ""},
		{"v0.2.0-rc.1", "v0.2.0", ""},
		{"v0.9.3", "v1.0.2", ""},
		{"v0.1.0", "v0.3.0", "skips v0.2"},
		{"v0.9.3", "v1.1.0", "skips v0.10"},
		{"v0.9.3", "v2.0.0", "skips v0.10"},
		{"v0.2.0", "v0.1.9", "older than the running v0.2.0"},
		{"v0.1.0", "v0.2.0-rc.1", "not a final version"},
		{"dev", "v0.2.0", `a build without a version ("dev")`},
	} {
		t.Run(row.from+" to "+row.to, func(t *testing.T) {
			g := NewWithT(t)
			objection, err := HubUpgrade(row.from, row.to)
			g.Expect(err).NotTo(HaveOccurred())
			if row.objection == "" {
				g.Expect(objection).To(BeNil())
				return
			}
			g.Expect(objection).To(HaveField("Message", ContainSubstring(row.objection)))
			g.Expect(objection.Overridable).To(BeFalse())
		})
	}
}

func TestNormalizeHub(t *testing.T) {
	g := NewWithT(t)
	version, err := NormalizeHub("0.2.0")
	g.Expect(version, err).To(Equal("v0.2.0"))
	for text, want := range map[string]string{
		"0.2": `did you mean 0.2.0`, "v0.2.0-rc.1": "not a final version, such as v0.2.0", "v0.2.0+x": "not a final version", "latest": "not of the form v1.2.3",
	} {
		_, err := NormalizeHub(text)
		g.Expect(err).To(MatchError(ContainSubstring(want)), text)
	}
}
