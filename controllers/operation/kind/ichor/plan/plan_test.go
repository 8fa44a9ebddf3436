// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

func hub(version string, upgradable metav1.ConditionStatus, message string) *v1alpha1.IchorInstallation {
	i := &v1alpha1.IchorInstallation{ObjectMeta: metav1.ObjectMeta{Namespace: "ichor-system", Name: "ichor-hub"}}
	i.Status.Version = version
	if upgradable != "" {
		i.Status.Conditions = []metav1.Condition{{Type: v1alpha1.UpgradableCondition, Status: upgradable, Message: message}}
	}
	return i
}

func TestPlan(t *testing.T) {
	for name, row := range map[string]struct {
		installation       *v1alpha1.IchorInstallation
		target             string
		gate, message, why string
		passing            bool
	}{
		"the next minor":           {installation: hub("v0.1.0", "True", ""), target: "v0.2.0"},
		"the same":                 {installation: hub("v0.1.0", "True", ""), target: "v0.1.0"},
		"no hub":                   {target: "v0.2.0", gate: "HubUpgradable", message: "there is no IchorInstallation"},
		"a hub that has not begun": {installation: hub("", "", ""), target: "v0.2.0", gate: "HubUpgradable", message: "not written down yet", passing: true},
		"one that nobody upgrades": {
			installation: hub("v0.1.0", "False", "the hub runs standalone: replace the binary"), target: "v0.2.0",
			gate: "HubUpgradable", message: "the hub runs standalone: replace the binary",
		},
		"no version":      {installation: hub("v0.1.0", "True", ""), gate: "TargetDeclared", message: "spec.version of IchorInstallation ichor-system/ichor-hub is not set"},
		"a minor too far": {installation: hub("v0.1.0", "True", ""), target: "v0.3.0", gate: "HubVersionPath", message: "skips v0.2"},
		"an older one":    {installation: hub("v0.2.0", "True", ""), target: "v0.1.9", gate: "HubVersionPath", message: "older than the running v0.2.0"},
		"from no version": {installation: hub("dev", "True", ""), target: "v0.1.9", gate: "HubVersionPath", message: "a build without a version"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			made, refusals := Planner{}.Plan(plan.Facts{
				Spec: v1alpha1.TalosOperationSpec{ClusterName: "c", Kind: v1alpha1.IchorKind}, Installation: row.installation,
				Target: v1alpha1.OperationTarget{IchorVersion: row.target},
			})
			g.Expect(made.Stages).To(Equal([]plan.Stage{{Name: "Install", Whole: true}}))
			if row.gate == "" {
				g.Expect(refusals).To(BeEmpty())
				return
			}
			g.Expect(refusals).To(ConsistOf(And(HaveField("Gate", row.gate), HaveField("Message", ContainSubstring(row.message)), HaveField("Passing", row.passing))))
		})
	}
}

func TestOnlyTheVersionOfTheHubIsBrought(t *testing.T) {
	g := NewWithT(t)
	all := v1alpha1.OperationTarget{TalosVersion: "v1.14.1", KubernetesVersion: "v1.36.2", IchorVersion: "v0.2.0"}
	g.Expect(Planner{}.Narrow(all)).To(Equal(v1alpha1.OperationTarget{IchorVersion: "v0.2.0"}))
}
