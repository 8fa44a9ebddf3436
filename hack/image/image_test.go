// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/gomega"
)

const lock = "../../ui/package-lock.json"

var platform = runtime.GOOS + "/" + runtime.GOARCH

// self is a binary of Go that is there in any case: this test.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return path
}

// make builds an image of this test, and returns what run has printed.
func makeImage(t *testing.T, dir string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run([]string{"--version", "v0.1.0", "--out", dir, "--lock", lock, "--created", "1700000000", platform + "=" + self(t)}, &out)
	return out.String(), err
}

// images are the image and its bill of materials in a layout.
func images(g *WithT, dir string) (image, attached v1.Image, digest v1.Hash) {
	path, err := layout.FromPath(dir)
	g.Expect(err).NotTo(HaveOccurred())
	top, err := path.ImageIndex()
	g.Expect(err).NotTo(HaveOccurred())
	manifest, err := top.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Manifests).To(HaveLen(1))
	g.Expect(manifest.Manifests[0].Annotations).To(HaveKeyWithValue("org.opencontainers.image.ref.name", "v0.1.0"))
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	g.Expect(err).NotTo(HaveOccurred())
	parts, err := index.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parts.Manifests).To(HaveLen(2))
	g.Expect(parts.Manifests[0].Platform.String()).To(Equal(platform))
	image, err = index.Image(parts.Manifests[0].Digest)
	g.Expect(err).NotTo(HaveOccurred())
	attached, err = index.Image(parts.Manifests[1].Digest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(validate.Image(image)).To(Succeed())
	return image, attached, parts.Manifests[0].Digest
}

func layersOf(g *WithT, image v1.Image) []v1.Layer {
	layers, err := image.Layers()
	g.Expect(err).NotTo(HaveOccurred())
	return layers
}

// content are the files of an image, by name.
func content(g *WithT, image v1.Image) map[string]*tar.Header {
	found := map[string]*tar.Header{}
	for _, l := range layersOf(g, image) {
		reader, err := l.Uncompressed()
		g.Expect(err).NotTo(HaveOccurred())
		archive := tar.NewReader(reader)
		for {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			g.Expect(err).NotTo(HaveOccurred())
			found[header.Name] = header
		}
		g.Expect(reader.Close()).To(Succeed())
	}
	return found
}

func TestImage(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "image")
	out, err := makeImage(t, dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(ContainSubstring(dir + " sha256:"))
	image, attached, digest := images(g, dir)

	config, err := image.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Config.Entrypoint).To(Equal([]string{"/usr/bin/ichor-hub"}))
	g.Expect(config.Config.User).To(Equal("65532:65532"))
	g.Expect(config.OS + "/" + config.Architecture).To(Equal(platform))
	files := content(g, image)
	g.Expect(files).To(HaveLen(9))
	for name, header := range files {
		g.Expect(header.Uid).To(BeZero(), "the user owns nothing: %s", name)
		g.Expect(header.Mode&0o022).To(BeZero(), name)
	}
	g.Expect(files["usr/bin/ichor-hub"].Mode).To(BeEquivalentTo(0o755))

	manifest, err := attached.Manifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Subject.Digest).To(Equal(digest))
	bills, err := filepath.Glob(dir + "-*.spdx.json")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bills).To(HaveLen(1))
}

func TestTheSameSourcesGiveTheSameImage(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "image")
	first, err := makeImage(t, dir)
	g.Expect(err).NotTo(HaveOccurred())
	second, err := makeImage(t, dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(Equal(first))
}

func TestRootsAreTrusted(t *testing.T) {
	g := NewWithT(t)
	pool := x509.NewCertPool()
	g.Expect(pool.AppendCertsFromPEM(roots())).To(BeTrue())
	g.Expect(bytes.Count(roots(), []byte("BEGIN CERTIFICATE"))).To(BeNumerically(">", 80))
}

func TestBillOfMaterials(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "image")
	_, err := makeImage(t, dir)
	g.Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(dir + "-" + strings.ReplaceAll(platform, "/", "-") + ".spdx.json")
	g.Expect(err).NotTo(HaveOccurred())
	var d document
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	g.Expect(decoder.Decode(&d)).To(Succeed())
	g.Expect(d.SPDXVersion).To(Equal("SPDX-2.3"))
	ids := map[string]bool{documentID: true}
	purls := map[string]bool{}
	for _, p := range d.Packages {
		g.Expect(ids).NotTo(HaveKey(p.SPDXID), "an ID of its own for each")
		g.Expect(p.SPDXID).To(MatchRegexp(`^SPDXRef-[A-Za-z0-9.-]+$`))
		g.Expect(p.ExternalRefs).To(HaveLen(1))
		ids[p.SPDXID] = true
		purls[p.ExternalRefs[0].Locator] = true
	}
	for _, r := range d.Relationships {
		g.Expect(ids).To(And(HaveKey(r.Element), HaveKey(r.Related)))
	}
	g.Expect(d.Relationships).To(HaveLen(len(d.Packages)))
	g.Expect(purls).To(And(
		HaveKey("pkg:golang/github.com/google/go-containerregistry@v0.21.7"), HaveKey(MatchRegexp(`^pkg:npm/react@`)), HaveKey(MatchRegexp(`^pkg:npm/%40connectrpc/connect@`)),
		HaveKey(MatchRegexp(`^pkg:golang/stdlib@1\.`)), Not(HaveKey(MatchRegexp(`^pkg:npm/(vitest|vite|typescript)@`))),
	))
}

func TestWhatCannotBe(t *testing.T) {
	full := t.TempDir()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(full, "mine"), nil, 0o600)).To(Succeed())
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"nothing":              {nil, "usage: "},
		"no platform":          {[]string{"--version", "v1", "--out", "x", "bin/ichor-hub"}, "want PLATFORM=BINARY"},
		"another platform":     {[]string{"--version", "v1", "--out", "x", "plan9/mips=" + self(t)}, "the binary is for " + platform},
		"no binary":            {[]string{"--version", "v1", "--out", "x", "linux/amd64=" + lock}, "linux/amd64"},
		"somebody's directory": {[]string{"--version", "v1", "--out", full, platform + "=" + self(t)}, regexp.QuoteMeta(full) + " is no OCI layout, and is not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			NewWithT(t).Expect(run(row.args, io.Discard)).To(MatchError(MatchRegexp(row.says)))
		})
	}
}
