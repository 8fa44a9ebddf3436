// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/talos"
)

func failedAs(class v1alpha1.ErrorClass) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) {
		u.Outcome = &v1alpha1.CallOutcome{Result: "Failed", Class: class, Message: "it broke"}
	}
}

// steps are those that a unit has gone through so far.
func steps(names ...v1alpha1.OperationStep) func(*v1alpha1.UnitStatus) {
	return func(u *v1alpha1.UnitStatus) {
		u.Steps = nil
		for _, name := range names {
			u.Steps = append(u.Steps, v1alpha1.StepRecord{Step: name})
		}
	}
}

// From the installer's start until the machine has proved what it booted, the lock stays with the operation.
func TestUnsafe(t *testing.T) {
	may := "may have a new system installed, which its next reboot starts"
	has := "has a new system installed, which its next reboot starts"
	told := "is told to upgrade, and installs and reboots when it is ready to"
	asked, gone := "is asked to reboot and has not done so yet", "has rebooted and is not known to be back"
	for name, row := range map[string]struct {
		unit kind.Unit
		want string
	}{
		"not begun":                              {unit("Pull", ""), ""},
		"pulling":                                {unit("Pull", "Pulling"), ""},
		"pulling late":                           {unit("Upgrade", "Pulling"), ""},
		"the pull failed":                        {unit("Pull", "Pulling", gaveUp), ""},
		"installing":                             {unit("Upgrade", "Installing"), may},
		"installed":                              {unit("Upgrade", "Installing", succeeded), may},
		"the installer ended with an exit code":  {unit("Upgrade", "Installing", gaveUp), ""},
		"the hub stopped while it installed":     {unit("Upgrade", "Installing", failedAs("Interrupted")), may},
		"no exit code in time":                   {unit("Upgrade", "Installing", failedAs("Timeout")), may},
		"another installation runs":              {unit("Upgrade", "Installing", failedAs("InProgress")), may},
		"forfeiting":                             {unit("Upgrade", "Forfeiting"), has},
		"forfeiting failed":                      {unit("Upgrade", "Forfeiting", gaveUp), has},
		"evacuating":                             {unit("Upgrade", "Evacuating"), has},
		"draining":                               {unit("Upgrade", "Draining"), has},
		"eviction is forbidden (D12)":            {unit("Upgrade", "Draining", gaveUp), has},
		"a budget kept the pods (D1)":            {unit("Upgrade", "Draining", failedAs("Timeout")), has},
		"rebooting":                              {unit("Upgrade", "Rebooting", succeeded), asked},
		"the reboot was refused":                 {unit("Upgrade", "Rebooting", gaveUp), has},
		"the reboot hangs (D9)":                  {unit("Upgrade", "Rebooting", failedAs("Timeout")), asked},
		"coming back":                            {unit("Upgrade", "Verifying"), gone},
		"fell back, or another machine (C2 B10)": {unit("Upgrade", "Verifying", gaveUp), ""},
		"not back in time":                       {unit("Upgrade", "Verifying", failedAs("Timeout")), gone},
		"uncordoning":                            {unit("Upgrade", "Uncordoning"), ""},
		"uncordoning failed":                     {unit("Upgrade", "Uncordoning", gaveUp), ""},
		"told to upgrade":                        {unit("Upgrade", "Upgrading"), told},
		"upgrades":                               {unit("Upgrade", "Upgrading", succeeded), told},
		"the upgrade was refused":                {unit("Upgrade", "Upgrading", gaveUp), ""},
		"it may have been told":                  {unit("Upgrade", "Upgrading", failedAs("Interrupted")), told},
		"no reboot in time (A3)":                 {unit("Upgrade", "Upgrading", failedAs("Timeout")), told},
		"draining before the one call":           {unit("Upgrade", "Draining", steps("Forfeiting", "Draining")), ""},
		"draining again after it was refused":    {unit("Upgrade", "Draining", steps("Draining", "Upgrading", "Draining")), ""},
		"draining again after it fell back":      {unit("Upgrade", "Draining", steps("Upgrading", "Verifying", "Draining")), ""},
		"a drain that was retried for ever":      {unit("Upgrade", "Draining", steps(slices.Repeat([]v1alpha1.OperationStep{"Draining"}, 64)...)), has},
		"refused, then drained again":            {unit("Upgrade", "Draining", steps("Installing", "Draining", "Rebooting", "Draining")), has},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(executor().Unsafe(row.unit)).To(Equal(row.want))
		})
	}
}

// Whatever step a unit is in, and however its call ended: what is not safe to leave is not left, what is safe is not made unsafe, and what has
// failed is asked for nothing any more. The steps are those that the executor declares, so no new one escapes.
func TestSettleAndUnsafeAgree(t *testing.T) {
	ends := map[string]func(*v1alpha1.UnitStatus){
		"claimed": func(*v1alpha1.UnitStatus) {}, "succeeded": succeeded, "refused": failed,
		"interrupted": failedAs("Interrupted"), "retryable": failedAs("Retryable"), "timed out": failedAs("Timeout"), "given up": gaveUp,
	}
	disrupts := []v1alpha1.OperationStep{"Installing", "Upgrading", "Rebooting"}
	for _, declared := range executor().Steps() {
		for name, end := range ends {
			for path, before := range map[string][]v1alpha1.OperationStep{"v1.13.9": {"Installing"}, "v1.12.4": nil} {
				t.Run(fmt.Sprintf("%s %s on %s", declared.Name, name, path), func(t *testing.T) {
					g := NewWithT(t)
					u := unit("Upgrade", declared.Name, resolved("an/image:v1"), end, steps(append(slices.Clone(before), declared.Name)...))
					seen := cordoned(runs(path, schematicA, func(m *talos.Machine) { m.BootID = "old" }))
					target := map[string]string{"v1.13.9": "v1.14.1", "v1.12.4": "v1.13.9"}[path]
					action := executor().Settle(to(target, ""), u, seen)
					unsafe := executor().Unsafe(u)
					switch {
					case name == "given up":
						g.Expect(disrupts).NotTo(ContainElement(action.Step), "what has failed is asked for nothing")
						g.Expect(action.Verdict).To(BeElementOf(kind.Park, kind.Call))
					case unsafe != "":
						g.Expect(action.Verdict).NotTo(Equal(kind.Park), "%s: %s", unsafe, action.Message)
						g.Expect(action.Step).NotTo(BeEquivalentTo("Uncordoning"), unsafe)
					default:
						g.Expect(disrupts).NotTo(ContainElement(action.Step), "it is safe where it is")
					}
				})
			}
		}
	}
}
