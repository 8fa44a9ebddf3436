// SPDX-License-Identifier: Apache-2.0

package assets_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/hack/release/assets"
)

const config = "../../../config"

func write(t *testing.T, version string) map[string]string {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	written, err := assets.Write(assets.Options{Version: version, Image: "registry.example.com/hub", Config: config, Directory: dir})
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for _, path := range written {
		content, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		name, err := filepath.Rel(dir, path)
		g.Expect(err).NotTo(HaveOccurred())
		found[filepath.ToSlash(name)] = string(content)
	}
	return found
}

func TestARelease(t *testing.T) {
	g := NewWithT(t)
	files := write(t, "v0.1.2")
	g.Expect(files).To(HaveLen(8))
	for _, name := range []string{"addon-ichor/v0.1.2/addon-components.yaml", "ichor-hub.yaml"} {
		g.Expect(files[name]).To(And(ContainSubstring("image: registry.example.com/hub:v0.1.2\n"), Not(ContainSubstring(assets.Image+":"))), name)
	}
	g.Expect(files).To(And(HaveKey("addon-ichor/v0.1.2/metadata.yaml"), HaveKey("ichor-hub-0.1.2.tgz"), HaveKey("ichor-hub-dashboard.json")))
	g.Expect(write(t, "v0.1.2")).To(Equal(files), "the same sources give the same files")
}

func TestVersionsThatAreNone(t *testing.T) {
	for version, says := range map[string]string{
		"": `version ""`, "0.1.0": `version "0.1.0"`, "v0.1": `version "v0.1"`, "4f9a5d7-dirty": "want one such as v0.1.0", "v0.9.0": "releaseSeries has no 0.9",
	} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			_, err := assets.Write(assets.Options{Version: version, Image: "x", Config: config, Directory: dir})
			g.Expect(err).To(MatchError(ContainSubstring(says)))
			g.Expect(os.ReadDir(dir)).To(BeEmpty())
		})
	}
}
