// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestPlugin(t *testing.T) {
	for name, want := range map[string]bool{
		"ichor": false, "/usr/bin/ichor": false, "kubectl-ichor": true, "/home/x/.krew/bin/kubectl-ichor": true, "kubectl-ichor.exe": true, "kubectl-ichorx": false,
	} {
		NewWithT(t).Expect(plugin(name)).To(Equal(want), name)
	}
}
