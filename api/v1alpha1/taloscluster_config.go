// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// MachineConfigHash is the hash of what the spec asks of machine configs: SHA-256, in hexadecimal. Without patches it is that of none.
func (c *TalosCluster) MachineConfigHash() string {
	patches := c.Patches()
	if patches == nil {
		patches = []MachineConfigPatch{}
	}
	data, err := json.Marshal(patches)
	if err != nil {
		panic(err) // Strings always encode.
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Patches are the patches of the spec, in order.
func (c *TalosCluster) Patches() []MachineConfigPatch {
	if c.Spec.MachineConfig == nil {
		return nil
	}
	return c.Spec.MachineConfig.Patches
}

// AppliesTo says whether a patch is for a machine.
func (p *MachineConfigPatch) AppliesTo(machine *TalosMachine) bool {
	return (p.Role == "" || p.Role == machine.Spec.Role) && (len(p.Machines) == 0 || slices.Contains(p.Machines, machine.Name))
}
