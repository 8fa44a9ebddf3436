// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"slices"
	"testing"

	"github.com/blang/semver/v4"
	. "github.com/onsi/gomega"
)

func TestParse(t *testing.T) {
	for name, row := range map[string]struct{ in, out, err string }{
		"with v":            {in: "v1.14.1", out: "1.14.1"},
		"without v":         {in: "1.14.1", out: "1.14.1"},
		"spaces around":     {in: " v1.14.1\n", out: "1.14.1"},
		"pre-release":       {in: "v1.14.0-rc.1", out: "1.14.0-rc.1"},
		"a build":           {in: "v1.36.2+k3s1", out: "1.36.2+k3s1"},
		"no patch level":    {in: "1.32", err: `version "1.32" has no patch level: did you mean 1.32.0?`},
		"no patch level, v": {in: "v1.32", err: `version "v1.32" has no patch level: did you mean v1.32.0?`},
		"leading zero":      {in: "1.03.1", err: `version "1.03.1" is not of the form v1.2.3`},
		"empty":             {in: "", err: `version "" is not of the form v1.2.3`},
		"a word":            {in: "latest", err: `version "latest" is not of the form v1.2.3`},
		"two v":             {in: "vv1.14.1", err: `version "vv1.14.1" is not of the form v1.2.3`},
		"four parts":        {in: "1.2.3.4", err: `version "1.2.3.4" is not of the form v1.2.3`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			version, err := Parse(row.in)
			if row.err != "" {
				g.Expect(err).To(MatchError(row.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(version.String()).To(Equal(row.out))
		})
	}
}

func TestCompareOrdersVersionsAndOtherTexts(t *testing.T) {
	sorted := []string{"", "none", "v1.9.10", "1.10.0-alpha.2", "v1.10.0", "v2.0.0"}
	NewWithT(t).Expect(slices.IsSortedFunc(sorted[2:], Compare)).To(BeTrue())
	NewWithT(t).Expect(slices.IsSortedFunc(sorted[:2], Compare)).To(BeTrue())
	NewWithT(t).Expect(Compare("v1.10.0", "1.10.0")).To(BeZero())
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"v1.14.1", "1.14", " v1.13.0-rc.1 ", "v1.36.3+k3s1", "1.3.1", "vv1.2.3", "v1.2.3-", "18446744073709551616.0.0", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		version, err := Parse(text)
		if err != nil {
			if len(err.Error()) > 1024 { // Each of at most 64 characters may be quoted as ten.
				t.Fatalf("%q is refused with %d bytes", text, len(err.Error()))
			}
			return
		}
		if again, err := Parse("v" + version.String()); err != nil || !again.EQ(version) {
			t.Fatalf("%q is another version when it is written: %v", text, err)
		}
	})
}

func mustParse(t *testing.T, text string) semver.Version {
	t.Helper()
	version, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return version
}
