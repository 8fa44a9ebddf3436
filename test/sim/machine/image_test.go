// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/sim/machine"
)

func TestResolveImage(t *testing.T) {
	const schematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	for _, tt := range []struct {
		ref    string
		system machine.Slot
		err    error
	}{
		{ref: "factory.talos.dev/metal-installer/" + schematic + ":v1.13.9", system: machine.Slot{Version: "v1.13.9", Schematic: schematic}},
		{ref: "factory.talos.dev/aws-installer-secureboot/" + schematic + ":v1.14.1", system: machine.Slot{Version: "v1.14.1", Schematic: schematic}},
		{ref: "factory.talos.dev/installer/" + schematic + ":v1.13.9", system: machine.Slot{Version: "v1.13.9", Schematic: schematic}},
		{ref: "factory.talos.dev/metal-installer/beef:v1.13.9", err: machine.ErrNoSuchImage},
		{ref: "factory.talos.dev/metal-installer/" + schematic + ":latest", err: machine.ErrNoSuchImage},
		{ref: "ghcr.io/siderolabs/installer:v1.13.9", system: machine.Slot{Version: "v1.13.9", Schematic: machine.VanillaSchematic}},
		{ref: "ghcr.io/siderolabs/installer:v1.14.0", err: machine.ErrNoSuchImage},
		{ref: "registry.k8s.io/kube-apiserver:v1.36.1"},
		{ref: "example.org/anything:v1", err: machine.ErrNoSuchImage},
		{ref: "Not A Reference", err: machine.ErrInvalidReference},
	} {
		t.Run(tt.ref, func(t *testing.T) {
			g := NewWithT(t)
			image, err := machine.ResolveImage(tt.ref)
			if tt.err != nil {
				g.Expect(err).To(MatchError(tt.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(image.System).To(Equal(tt.system))
			g.Expect(image.Resolved).To(HavePrefix(image.Name + "@sha256:"))
			again, err := machine.ResolveImage(image.Resolved)
			g.Expect(err).NotTo(HaveOccurred(), "the resolved name can be resolved")
			g.Expect(again.System).To(Equal(tt.system))
		})
	}
}

func TestAtLeast(t *testing.T) {
	g := NewWithT(t)
	g.Expect(machine.Slot{Version: "v1.14.0-rc.1"}.AtLeast(14)).To(BeTrue())
	g.Expect(machine.Slot{Version: "v1.13.9"}.AtLeast(14)).To(BeFalse())
	g.Expect(machine.Slot{Version: "nonsense"}.AtLeast(0)).To(BeFalse())
}
