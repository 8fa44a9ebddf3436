// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// bypassed says, for each gate that waits and may be overridden, what is not waited for any more.
var bypassed = map[string]string{
	v1alpha1.ControlPlanesReadyGate:          "control planes are taken away although others are not ready",
	v1alpha1.WorkersAvailableGate:            "workers are taken away although as many as spec.maxUnavailable allows are away already",
	v1alpha1.NodesReadyGate:                  "the upgrade begins although Nodes or pods of the control plane are not ready",
	v1alpha1.ControlPlaneTransitioningReason: "control planes are taken away although a change of their number may be under way",
	v1alpha1.TargetReachableGate:             "a machine goes away without a drain, and need not prove that its Node is back, while the Kubernetes API does not answer",
}

// refusable are the gates that refuse and may be overridden; a plan lists those that it bypasses.
var refusable = map[string]bool{
	v1alpha1.TalosVersionPathGate: true, v1alpha1.KubernetesPairingGate: true, v1alpha1.ClusterRunningGate: true, v1alpha1.CiliumPairingGate: true,
	v1alpha1.RemovedAPIsGate: true,
}

// MayBypassWait says whether a gate that waits may be overridden: what it guards is the room that a cluster has, and never etcd's quorum.
// A cluster whose Kubernetes API is down is for those kinds alone that may bring it back.
func MayBypassWait(gate string, traits Traits) bool {
	_, ok := bypassed[gate]
	return ok && (gate != v1alpha1.TargetReachableGate || traits.RecordOptional)
}

// OverrideWarnings say what the overrides of an operation skip, and which of them skip nothing since nobody may bypass their gate.
func OverrideWarnings(overrides []v1alpha1.GateOverride, traits Traits) []Warning {
	var list []Warning
	for _, override := range overrides {
		switch {
		case MayBypassWait(override.Gate, traits):
			list = append(list, Warning{GateOverriddenWarning, fmt.Sprintf("gate %s is overridden: %s", override.Gate, bypassed[override.Gate])})
		case !refusable[override.Gate]:
			list = append(list, Warning{OverrideUselessWarning, fmt.Sprintf("the override of gate %s skips nothing: nobody may bypass it", override.Gate)})
		}
	}
	return list
}
