// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"net/netip"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestAddress(t *testing.T) {
	for text, want := range map[string]struct {
		canonical string
		usable    bool
	}{
		"10.0.0.1":         {"10.0.0.1", true},
		"127.90.1.11":      {"127.90.1.11", true}, // A simulated node.
		"FD00:0:0::1":      {"fd00::1", true},
		"::ffff:10.0.0.1":  {"10.0.0.1", true},
		"127.0.0.1":        {"127.0.0.1", false},
		"::ffff:127.0.0.1": {"127.0.0.1", false},
		"::1":              {"::1", false},
		"0.0.0.0":          {"0.0.0.0", false},
		"169.254.116.108":  {"169.254.116.108", false},
		"fe80::1":          {"fe80::1", false},
		"fd00::1%eth0":     {"fd00::1%eth0", false},
		"ff02::1":          {"ff02::1", false},
		"api.example.org":  {"", false},
		"[fd00::1]":        {"", false},
		"10.0.0.1:50000":   {"", false},
		"":                 {"", false},
	} {
		t.Run(text, func(t *testing.T) {
			canonical, usable := Address(text)
			NewWithT(t).Expect(canonical).To(Equal(want.canonical))
			NewWithT(t).Expect(usable).To(Equal(want.usable))
		})
	}
	NewWithT(t).Expect(Addresses([]string{"127.0.0.1", "FD00::2", "x", "10.0.0.1"})).To(Equal([]string{"fd00::2", "10.0.0.1"}), "the order is the machine's")
}

// Cases B5 and B7: capitals, full and short names.
func TestCaseB5B7SameHost(t *testing.T) {
	for name, row := range map[string]struct {
		a, b string
		same bool
	}{
		"equal":                      {"cp-1", "cp-1", true},
		"capitals":                   {"CP-A", "cp-a", true},
		"short and full":             {"cp-1", "CP-1.example.org", true},
		"full, with a dot":           {"cp-1.example.org.", "cp-1.example.org", true},
		"equal short, other domains": {"cp-1.a.example", "cp-1.b.example", false},
		"a longer name":              {"cp-1", "cp-10", false},
		"part of a name":             {"cp-1.example", "cp-1.example.org", false},
		"none":                       {"", "", false},
		"none and one":               {"", "cp-1", false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(SameHost(row.a, row.b)).To(Equal(row.same))
			NewWithT(t).Expect(SameHost(row.b, row.a)).To(Equal(row.same))
		})
	}
}

func TestLabel(t *testing.T) {
	for name, want := range map[string]string{
		"w-1": "w-1", "W-1.Example": "w-1-example", "a_b": "a-b", ".x.": "x", "": "", "···": "", strings.Repeat("a", 179) + ".b": strings.Repeat("a", 179),
	} {
		NewWithT(t).Expect(Label(name)).To(Equal(want))
	}
}

func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"10.0.0.1", "fd00::1", "::ffff:127.0.0.1", "fe80::1%eth0", "[::1]", "127.0.0.1", "0.0.0.0", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		canonical, usable := Address(text)
		if !usable {
			return
		}
		addr, err := netip.ParseAddr(canonical)
		if err != nil || addr.Is4In6() || addr.String() != canonical || addr.IsUnspecified() || canonical == "127.0.0.1" || canonical == "::1" {
			t.Fatalf("%q became %q: %v", text, canonical, err)
		}
	})
}

func FuzzSameHost(f *testing.F) {
	f.Add("CP-A", "cp-a")
	f.Add("cp-1", "cp-1.example.org")
	f.Add("cp-1.a.example", "cp-1.b.example")
	f.Add("", ".")
	f.Fuzz(func(t *testing.T, a, b string) {
		if SameHost(a, b) != SameHost(b, a) {
			t.Fatalf("%q and %q: it matters who is asked", a, b)
		}
		if a == b && normal(a) != "" && !SameHost(a, b) {
			t.Fatalf("%q is not itself", a)
		}
	})
}

func FuzzLabel(f *testing.F) {
	for _, seed := range []string{"w-1", "W-1.Example", "a_b", "-", "ß", "x\x00y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		label := Label(name)
		if problems := validation.IsDNS1123Subdomain(label); label != "" && len(problems) > 0 {
			t.Fatalf("%q became %q: %s", name, label, problems)
		}
		if Label(label) != label {
			t.Fatalf("%q became %q, and that %q", name, label, Label(label))
		}
	})
}
