// SPDX-License-Identifier: Apache-2.0

package image

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var digest = "sha256:" + strings.Repeat("0123456789abcdef", 4)

// Cases F3 and F5: what an image tells, in every form in which people write it.
func TestCaseF3F5Parse(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		want Reference
	}{
		"with v":               {"ghcr.io/siderolabs/kubelet:v1.31.4", Reference{Name: "ghcr.io/siderolabs/kubelet", Tag: "v1.31.4", Version: "v1.31.4", prefix: "v"}},
		"without v":            {"example.org/kubelet:1.31.4", Reference{Name: "example.org/kubelet", Tag: "1.31.4", Version: "v1.31.4"}},
		"no registry":          {"kubelet:v1.31.4", Reference{Name: "kubelet", Tag: "v1.31.4", Version: "v1.31.4", prefix: "v"}},
		"fat":                  {"ghcr.io/siderolabs/kubelet:v1.31.4-fat", Reference{Name: "ghcr.io/siderolabs/kubelet", Tag: "v1.31.4-fat", Version: "v1.31.4", Suffix: "-fat", prefix: "v"}},
		"slim pre-release":     {"ghcr.io/siderolabs/kubelet:v1.36.0-rc.1-slim", Reference{Name: "ghcr.io/siderolabs/kubelet", Tag: "v1.36.0-rc.1-slim", Version: "v1.36.0-rc.1", Suffix: "-slim", prefix: "v"}},
		"pinned":               {"ghcr.io/siderolabs/kubelet:v1.31.4@" + digest, Reference{Name: "ghcr.io/siderolabs/kubelet", Tag: "v1.31.4", Version: "v1.31.4", Digest: digest, prefix: "v"}},
		"digest only":          {"ghcr.io/siderolabs/kubelet@" + digest, Reference{Name: "ghcr.io/siderolabs/kubelet", Digest: digest}},
		"port, and no tag":     {"mirror.example.org:5000/k8s/kubelet", Reference{Name: "mirror.example.org:5000/k8s/kubelet"}},
		"port and path":        {"mirror.example.org:5000/a/b/kubelet:v1.31.4", Reference{Name: "mirror.example.org:5000/a/b/kubelet", Tag: "v1.31.4", Version: "v1.31.4", prefix: "v"}},
		"an address":           {"[fd00::1]:5000/kubelet:v1.31.4-fat@" + digest, Reference{Name: "[fd00::1]:5000/kubelet", Tag: "v1.31.4-fat", Version: "v1.31.4", Suffix: "-fat", Digest: digest, prefix: "v"}},
		"a word":               {"kubelet:latest", Reference{Name: "kubelet", Tag: "latest"}},
		"no patch level":       {"kubelet:v1.31", Reference{Name: "kubelet", Tag: "v1.31"}},
		"four parts":           {"kubelet:v1.31.4.1", Reference{Name: "kubelet", Tag: "v1.31.4.1"}},
		"what is no version":   {"kubelet:v1.031.4", Reference{Name: "kubelet", Tag: "v1.031.4"}},
		"a build in an image":  {"kubelet:v1.31.4_vendor.2", Reference{Name: "kubelet", Tag: "v1.31.4_vendor.2", Version: "v1.31.4", Suffix: "_vendor.2", prefix: "v"}},
		"a version in a name":  {"example.org/v1.2.3/kubelet", Reference{Name: "example.org/v1.2.3/kubelet"}},
		"a port like a tag":    {"example.org:1/kubelet", Reference{Name: "example.org:1/kubelet"}},
		"a digest of 512 bits": {"kubelet@sha512:" + strings.Repeat("ab", 64), Reference{Name: "kubelet", Digest: "sha512:" + strings.Repeat("ab", 64)}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			parsed, err := Parse(row.text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parsed).To(Equal(row.want))
			g.Expect(parsed.String()).To(Equal(row.text), "nothing is added")
		})
	}
}

func TestParseOfWhatIsNoReference(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a space": "kube let:v1", "capitals": "ghcr.io/Siderolabs/kubelet:v1.31.4", "a short digest": "kubelet@sha256:abc",
		"a digest of nothing": "@" + digest, "a scheme": "https://ghcr.io/siderolabs/kubelet:v1.31.4", "no name": ":v1.31.4",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(text)
			NewWithT(t).Expect(err).To(MatchError(HavePrefix("image \"")))
		})
	}
}

// Cases F3 and F5: all that somebody chose stays but the version, and what cannot stay is said.
func TestCaseF3F5WithVersion(t *testing.T) {
	for name, row := range map[string]struct{ from, version, to, note string }{
		"plain":               {from: "ghcr.io/siderolabs/kubelet:v1.35.4", version: "v1.36.0", to: "ghcr.io/siderolabs/kubelet:v1.36.0"},
		"asked without v":     {from: "ghcr.io/siderolabs/kubelet:v1.35.4", version: "1.36.0", to: "ghcr.io/siderolabs/kubelet:v1.36.0"},
		"tagged without v":    {from: "example.org/kubelet:1.35.4-slim", version: "v1.36.0", to: "example.org/kubelet:1.36.0-slim"},
		"fat":                 {from: "ghcr.io/siderolabs/kubelet:v1.35.4-fat", version: "v1.36.0", to: "ghcr.io/siderolabs/kubelet:v1.36.0-fat"},
		"mirror":              {from: "mirror.example.org:5000/k8s/kube-apiserver:v1.35.4", version: "v1.36.0", to: "mirror.example.org:5000/k8s/kube-apiserver:v1.36.0"},
		"from a pre-release":  {from: "kubelet:v1.36.0-rc.1-slim", version: "v1.36.0", to: "kubelet:v1.36.0-slim"},
		"the same":            {from: "kubelet:v1.36.0-slim", version: "1.36.0", to: "kubelet:v1.36.0-slim"},
		"the same, pinned":    {from: "kubelet:v1.36.0@" + digest, version: "v1.36.0", to: "kubelet:v1.36.0@" + digest},
		"an earlier one, too": {from: "kubelet:v1.36.0", version: "v1.35.4", to: "kubelet:v1.35.4"},
		"pinned": {
			from: "mirror.example.org:5000/k8s/kubelet:v1.35.4-fat@" + digest, version: "v1.36.0", to: "mirror.example.org:5000/k8s/kubelet:v1.36.0-fat",
			note: "image kubelet is pinned to sha256:0123456789ab…, which is no v1.36.0: the digest is left out",
		},
		"digest only": {
			from: "ghcr.io/siderolabs/kubelet@" + digest, version: "v1.36.0", to: "ghcr.io/siderolabs/kubelet:v1.36.0",
			note: "image kubelet is pinned to sha256:0123456789ab…, which is no v1.36.0: the digest is left out, and with it what nobody can tell from it, such as -fat or -slim",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			parsed, err := Parse(row.from)
			g.Expect(err).NotTo(HaveOccurred())
			changed, note, err := parsed.WithVersion(row.version)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changed.String()).To(Equal(row.to))
			g.Expect(note).To(Equal(row.note))
			g.Expect(len(note)).To(BeNumerically("<=", 256))
		})
	}
}

func TestWithVersionOfWhatHasNone(t *testing.T) {
	for name, row := range map[string]struct{ from, version, err string }{
		"a word":             {"kubelet:latest", "v1.36.0", `image "kubelet:latest" tells no version to change: give it a tag such as v1.36.0`},
		"a word, pinned":     {"kubelet:latest@" + digest, "v1.36.0", "tells no version to change"},
		"no tag":             {"example.org:5000/kubelet", "v1.36.0", "tells no version to change"},
		"half a version":     {"kubelet:v1.35.1", "1.36", "did you mean 1.36.0?"},
		"no tag can hold it": {"kubelet:v1.35.1", "v1.36.0+k3s1", "invalid reference format"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			parsed, err := Parse(row.from)
			g.Expect(err).NotTo(HaveOccurred())
			_, _, err = parsed.WithVersion(row.version)
			g.Expect(err).To(MatchError(ContainSubstring(row.err)))
		})
	}
}

// What somebody wrote is written the same, and another version changes nothing but the version.
func FuzzImage(f *testing.F) {
	for _, seed := range []string{
		"ghcr.io/siderolabs/kubelet:v1.31.4-fat@" + digest, "mirror.example.org:5000/a/kubelet@" + digest, "[fd00::1]:5000/kubelet:1.31.4", "kubelet:v1.36.0-rc.1-slim", "a:1.2.3_-.x", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := Parse(text)
		if err != nil {
			return
		}
		g := NewWithT(t)
		g.Expect(parsed.String()).To(Equal(text))
		changed, note, err := parsed.WithVersion("v1.36.3")
		if err != nil {
			g.Expect(parsed.Version == "" || len(parsed.Tag) > 120).To(BeTrue(), "%s: %v", text, err)
			return
		}
		g.Expect(changed.Version).To(Equal("v1.36.3"))
		g.Expect([]string{changed.Name, changed.Suffix}).To(Equal([]string{parsed.Name, parsed.Suffix}))
		if parsed.Version != "v1.36.3" {
			g.Expect(changed.Digest).To(BeEmpty())
			lost := note != ""
			g.Expect(lost).To(Equal(parsed.Digest != ""), note)
		}
		again, note, err := changed.WithVersion("1.36.3")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again).To(Equal(changed))
		g.Expect(note).To(BeEmpty())
	})
}
