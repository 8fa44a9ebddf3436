// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Tests without their binary are left out, and not without a word; where the binary is required they fail.
func TestMayRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talosctl")
	t.Setenv("ICHOR_TALOSCTL_BINARY", path)
	for _, row := range []struct {
		required    string
		there, runs bool
		says        string
	}{
		{"", false, true, "the tests with it are left out: finding talosctl (run `make build-talosctl`"},
		{"1", false, false, "ICHOR_REQUIRE_BINARIES=1 asks for it: finding talosctl (run `make build-talosctl`"},
		{"1", true, true, ""},
	} {
		g := NewWithT(t)
		if row.there {
			g.Expect(os.WriteFile(path, nil, 0o600)).To(Succeed())
		}
		t.Setenv(RequireVariable, row.required)
		out := &strings.Builder{}
		g.Expect(MayRun(out, "talosctl")).To(Equal(row.runs))
		g.Expect(out.String()).To(HavePrefix(row.says))
		g.Expect(out.String()).To(Or(Not(BeEmpty()), Equal(row.says)))
	}
}
