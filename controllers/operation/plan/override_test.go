// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Case D15: whoever reads a plan learns what its overrides skip, and that some skip nothing.
func TestCaseD15OverrideWarnings(t *testing.T) {
	texts := func(overrides []v1alpha1.GateOverride, traits Traits) []string {
		var list []string
		for _, warning := range OverrideWarnings(overrides, traits) {
			list = append(list, warning.Code+": "+warning.Message)
		}
		return list
	}
	for gate, want := range map[string][]string{
		"ControlPlanesReady":        {"GateOverridden: gate ControlPlanesReady is overridden: control planes are taken away although others are not ready"},
		"WorkersAvailable":          {"GateOverridden: gate WorkersAvailable is overridden: workers are taken away although as many as spec.maxUnavailable allows are away already"},
		"ControlPlaneTransitioning": {"GateOverridden: gate ControlPlaneTransitioning is overridden: control planes are taken away although a change of their number may be under way"},
		"KubernetesPairing":         nil,
		"TalosVersionPath":          nil,
		"EtcdHealthy":               {"OverrideUseless: the override of gate EtcdHealthy skips nothing: nobody may bypass it"},
		"TargetReachable":           {"OverrideUseless: the override of gate TargetReachable skips nothing: nobody may bypass it"},
		"Quorum":                    {"OverrideUseless: the override of gate Quorum skips nothing: nobody may bypass it"},
		"Unknown":                   {"OverrideUseless: the override of gate Unknown skips nothing: nobody may bypass it"},
	} {
		NewWithT(t).Expect(texts([]v1alpha1.GateOverride{{Gate: gate, Reason: "x"}}, Traits{})).To(Equal(want), gate)
	}
	NewWithT(t).Expect(OverrideWarnings(nil, Traits{})).To(BeEmpty())
	NewWithT(t).Expect(texts([]v1alpha1.GateOverride{{Gate: "TargetReachable", Reason: "x"}}, Traits{RecordOptional: true})).To(
		ConsistOf(ContainSubstring("without a drain")))
}

// etcd's quorum is nothing that anybody may put at risk.
func TestMayBypassWait(t *testing.T) {
	for gate, want := range map[string]bool{
		"ControlPlanesReady": true, "WorkersAvailable": true, "ControlPlaneTransitioning": true,
		"EtcdHealthy": false, "TargetReachable": false, "MachinesDiscovered": false, "MachineSettled": false, "KubernetesPairing": false,
	} {
		NewWithT(t).Expect(MayBypassWait(gate, Traits{})).To(Equal(want), gate)
		NewWithT(t).Expect(MayBypassWait(gate, Traits{RecordOptional: true})).To(Equal(want || gate == "TargetReachable"), gate)
	}
}
