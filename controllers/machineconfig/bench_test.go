// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// BenchmarkCompare is what a machine costs on which something has changed: one that nothing is asked of, and one that a
// patch is asked of, before and after.
func BenchmarkCompare(b *testing.B) {
	config := generated(b, v13, machine.TypeControlPlane)
	patched := input(config, v13, "machine:\n  sysctls: {a: b}\n")
	for name, in := range map[string]Input{"nothing": input(config, v13), "patch": patched, "patch in force": applied(b, patched)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if Compare(in).Trouble != "" {
					b.Fatal("trouble")
				}
			}
		})
	}
}
