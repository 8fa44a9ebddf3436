// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"strconv"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
)

// target is what the operation brings its cluster to: as captured, or as declared while it has not begun.
func (s *scope) target() v1alpha1.OperationTarget {
	if s.op.Status.Target != nil {
		return *s.op.Status.Target
	}
	return s.declared()
}

// declared is what the spec of the target asks for, as far as it concerns the kind.
func (s *scope) declared() v1alpha1.OperationTarget {
	return s.executor.Narrow(targets.DeclaredFor(s.Cluster, s.hub))
}

// declares names the object whose spec says what the operation brings about.
func (s *scope) declares() string {
	if s.hub != nil {
		return fmt.Sprintf("IchorInstallation %s/%s", s.hub.Namespace, s.hub.Name)
	}
	return "TalosCluster " + s.Cluster.Name
}

func describe(t v1alpha1.OperationTarget) string {
	if t.MachineConfigHash != "" {
		return "machine config " + t.MachineConfigHash[:hashShown]
	}
	if t.IchorVersion != "" {
		return "Ichor hub " + t.IchorVersion
	}
	if t.KubernetesVersion != "" {
		return "Kubernetes " + t.KubernetesVersion
	}
	if t.TalosVersion == "" {
		return "no Talos version"
	}
	if t.SchematicID == "" {
		return "Talos " + t.TalosVersion
	}
	return "Talos " + t.TalosVersion + " with schematic " + strconv.Quote(t.SchematicID)
}

// hashShown is how much of a hash people are shown.
const hashShown = 12
