// SPDX-License-Identifier: Apache-2.0

// Command talosctl is the client of Talos Linux as its makers publish it,
// built from their module.
//
// The tests of the simulator run it against simulated machines, which keeps
// the simulator honest: what the real client cannot use is not the Talos API.
// It is a module of its own, so that the several hundred modules it needs
// stay out of the product's dependencies.
package main

import (
	"os"

	_ "github.com/siderolabs/talos/cmd/talosctl/acompat"
	"github.com/siderolabs/talos/cmd/talosctl/cmd"
)

func main() {
	if err := cmd.Execute(); err != nil {
		os.Exit(1)
	}
}
