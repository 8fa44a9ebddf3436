// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Cases F5 and F6: with and without v, and a guess where it cannot be meant as it is written.
func TestCaseF5F6Normalize(t *testing.T) {
	for name, row := range map[string]struct {
		of      Product
		in, out string
		err     string
	}{
		"Talos with v":                    {of: Talos, in: "v1.14.1", out: "v1.14.1"},
		"Talos without v":                 {of: Talos, in: "1.14.1", out: "v1.14.1"},
		"Kubernetes with v":               {of: Kubernetes, in: "v1.36.3", out: "v1.36.3"},
		"Kubernetes without v":            {of: Kubernetes, in: " 1.36.3\n", out: "v1.36.3"},
		"Cilium without v":                {of: Cilium, in: "1.20.2", out: "v1.20.2"},
		"a pre-release":                   {of: Talos, in: "v1.14.0-rc.1", out: "v1.14.0-rc.1"},
		"newer than this hub":             {of: Kubernetes, in: "v1.99.0", out: "v1.99.0"},
		"no patch level":                  {of: Kubernetes, in: "1.36", err: `version "1.36" has no patch level: did you mean 1.36.0?`},
		"no patch level, v":               {of: Talos, in: "v1.14", err: `version "v1.14" has no patch level: did you mean v1.14.0?`},
		"no patch level, and newer":       {of: Cilium, in: "1.21", err: `version "1.21" has no patch level: did you mean 1.21.0?`},
		"1.30.1 without its zero":         {of: Kubernetes, in: "1.3.1", err: `version "1.3.1" is older than any Kubernetes that this hub knows (v1.29 to v1.37): did you mean v1.30.1 or v1.31.0?`},
		"1.30.0 without its zero":         {of: Kubernetes, in: "v1.3.0", err: `version "v1.3.0" is older than any Kubernetes that this hub knows (v1.29 to v1.37): did you mean v1.30.0?`},
		"1.30 without its zero":           {of: Kubernetes, in: "v1.3", err: `version "v1.3" is older than any Kubernetes that this hub knows (v1.29 to v1.37): did you mean v1.30.0?`},
		"1.36.0 with a dot too many":      {of: Kubernetes, in: "1.3.6", err: `version "1.3.6" is older than any Kubernetes that this hub knows (v1.29 to v1.37): did you mean v1.30.6 or v1.36.0?`},
		"1.14.0 with a dot too many":      {of: Talos, in: "1.1.4", err: `version "1.1.4" is older than any Talos that this hub knows (v1.11 to v1.14): did you mean v1.14.0?`},
		"1.20.3 without its zero":         {of: Cilium, in: "1.2.3", err: `version "1.2.3" is older than any Cilium that this hub knows (v1.16 to v1.20): did you mean v1.20.3?`},
		"old, and nothing like it":        {of: Kubernetes, in: "v1.28.4", err: `version "v1.28.4" is older than any Kubernetes that this hub knows (v1.29 to v1.37)`},
		"old, without patch level":        {of: Kubernetes, in: "1.28", err: `version "1.28" is older than any Kubernetes that this hub knows (v1.29 to v1.37)`},
		"a build of k3s":                  {of: Kubernetes, in: "v1.36.2+k3s1", err: `version "v1.36.2+k3s1" is somebody's build, and no release of Kubernetes: did you mean v1.36.2?`},
		"a build of a pre-release":        {of: Kubernetes, in: "v1.36.2-rc.1+rke2r1", err: `version "v1.36.2-rc.1+rke2r1" is somebody's build, and no release of Kubernetes: did you mean v1.36.2?`},
		"a word":                          {of: Kubernetes, in: "stable", err: `version "stable" is not of the form v1.2.3`},
		"a leading zero":                  {of: Kubernetes, in: "1.036", err: `version "1.036" is not of the form v1.2.3`},
		"more than fits":                  {of: Talos, in: "v1.14.1-" + strings.Repeat("a", 57), err: `version "v1.14.1-` + strings.Repeat("a", 56) + `" is longer than 64 characters`},
		"as much as fits":                 {of: Talos, in: "1.14.1-" + strings.Repeat("a", 56), out: "v1.14.1-" + strings.Repeat("a", 56)},
		"nothing":                         {of: Talos, in: "", err: `version "" is not of the form v1.2.3`},
		"a long text, of which part goes": {of: Talos, in: "v1.14.1-" + string(make([]byte, 100)), err: `version "v1.14.1-` + zeros(56) + `" is not of the form v1.2.3`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, err := row.of.Normalize(row.in)
			if row.err != "" {
				g.Expect(err).To(MatchError(row.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(row.out))
		})
	}
}

// zeros are bytes of zero as an error quotes them.
func zeros(count int) string {
	var quoted string
	for range count {
		quoted += `\x00`
	}
	return quoted
}

// What is written once is written the same again, for each product.
func FuzzNormalize(f *testing.F) {
	for _, seed := range []string{"v1.14.1", "1.36", "1.3", "1.3.1", "v1.36.3+k3s1", "0.0.0", "1.1844674407370955161.9", "18446744073709551615.1.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, product := range []Product{Talos, Kubernetes, Cilium} {
			normal, err := product.Normalize(text)
			if err != nil {
				continue
			}
			if twice, err := product.Normalize(normal); err != nil || twice != normal {
				t.Fatalf("%q became %q, and that %q: %v", text, normal, twice, err)
			}
			if version := mustParse(t, normal); minorOf(version).compare(product.known().From) < 0 || len(version.Build) > 0 {
				t.Fatalf("%q became %q of %s", text, normal, product)
			}
		}
	})
}
