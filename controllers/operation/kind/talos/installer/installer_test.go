// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// Case C10: the schematic is the one in the name, wherever a registry puts it, and nothing that only looks like one.
func TestCaseC10Schematic(t *testing.T) {
	for image, want := range map[string]string{
		"factory.talos.dev/metal-installer/" + schematic + ":v1.14.1":                           schematic,
		"mirror.example:5000/factory/metal-installer-secureboot/" + schematic + ":v1.14.1":      schematic,
		"factory.talos.dev/metal-installer/" + schematic + "@sha256:" + strings.Repeat("a", 64): schematic,
		"ghcr.io/siderolabs/installer:v1.14.1":                                                  "",
		"ghcr.io/siderolabs/installer@sha256:" + strings.Repeat("a", 64):                        "",
		"factory.talos.dev/metal-installer/" + schematic[1:] + ":v1.14.1":                       "",
		"factory.talos.dev/metal-installer/" + strings.ToUpper(schematic) + ":v1.14.1":          "",
		"factory.talos.dev/metal-installer/" + schematic:                                        "",
		"": "",
	} {
		NewWithT(t).Expect(Schematic(image)).To(Equal(want), image)
	}
}

func FuzzSchematic(f *testing.F) {
	for _, seed := range []string{
		"factory.talos.dev/metal-installer/" + schematic + ":v1.14.1", "ghcr.io/siderolabs/installer:v1.14.1",
		"a/" + schematic + "@sha256:" + schematic, "/" + schematic + ":", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, image string) {
		found := Schematic(image)
		if found == "" {
			return
		}
		if len(found) != 64 || strings.Trim(found, "0123456789abcdef") != "" || !strings.Contains(image, "/"+found) {
			t.Fatalf("%q became %q", image, found)
		}
	})
}
