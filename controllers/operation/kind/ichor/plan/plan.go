// SPDX-License-Identifier: Apache-2.0

// Package plan plans upgrades of the hub itself. It is a leaf: it links no client of a target.
package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/versions"
)

// InstallStage has the new version install itself. It is the only one.
const InstallStage = "Install"

// HubRestartsWarning says what becomes of the hub meanwhile.
const HubRestartsWarning = "HubRestarts"

// Planner plans upgrades of the hub.
type Planner struct{}

// Traits implements plan.Planner. Nothing is done on the target of the operation, which lends its lock.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	return plan.Traits{Repeatable: true, RecordOptional: true, Windows: plan.WindowsNever, StartVerb: spec.StartSubresource()}
}

// AtTarget implements plan.Planner: no machine is concerned.
func (Planner) AtTarget(*v1alpha1.TalosMachine, v1alpha1.OperationTarget) bool { return false }

// Narrow implements plan.Planner.
func (Planner) Narrow(t v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{IchorVersion: t.IchorVersion}
}

// Plan implements plan.Planner.
func (p Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	made := plan.Plan{
		Target: facts.Target, Effect: plan.EffectNone, Stages: []plan.Stage{{Name: InstallStage, Whole: true}},
		Warnings: append([]plan.Warning{{Code: HubRestartsWarning, Message: fmt.Sprintf(
			"the hub is replaced, one replica after the other: operations on other clusters go on under the next leader; cluster %s lends its lock, and nothing is done on it",
			facts.Spec.ClusterName)}}, plan.OverrideWarnings(facts.Spec.Overrides, p.Traits(facts.Spec))...),
	}
	for _, ask := range []func(plan.Facts) *plan.Refusal{
		known,      // Where nobody has written down what the hub is, nothing can be said of it.
		upgradable, // What cannot be done need not be judged.
		declared,
		path,
	} {
		if refusal := ask(facts); refusal != nil {
			return made, []plan.Refusal{*refusal}
		}
	}
	return made, nil
}

func known(facts plan.Facts) *plan.Refusal {
	if facts.Installation != nil {
		return nil
	}
	return &plan.Refusal{
		Gate: v1alpha1.HubUpgradableGate, Message: "there is no IchorInstallation: no hub has written down what it is",
		Help: "see that the hub runs: kubectl get ichorinstallations --all-namespaces",
	}
}

func upgradable(facts plan.Facts) *plan.Refusal {
	condition := meta.FindStatusCondition(facts.Installation.Status.Conditions, v1alpha1.UpgradableCondition)
	switch {
	case condition == nil || facts.Installation.Status.Version == "":
		return &plan.Refusal{
			Gate: v1alpha1.HubUpgradableGate, Passing: true,
			Message: fmt.Sprintf("%s: the hub has not written down yet what it is", nameOf(facts.Installation)),
		}
	case condition.Status != metav1.ConditionTrue:
		return &plan.Refusal{Gate: v1alpha1.HubUpgradableGate, Message: condition.Message, Help: "see " + nameOf(facts.Installation)}
	}
	return nil
}

func declared(facts plan.Facts) *plan.Refusal {
	if facts.Target.IchorVersion != "" {
		return nil
	}
	return &plan.Refusal{
		Gate:    v1alpha1.TargetDeclaredGate,
		Message: fmt.Sprintf("spec.version of %s is not set: there is no version to go to", nameOf(facts.Installation)),
		Help:    "ichor upgrade ichor VERSION --cluster " + facts.Spec.ClusterName,
	}
}

func path(facts plan.Facts) *plan.Refusal {
	objection, err := versions.HubUpgrade(facts.Installation.Status.Version, facts.Target.IchorVersion)
	switch {
	case err != nil:
		return &plan.Refusal{Gate: v1alpha1.HubVersionPathGate, Message: fmt.Sprintf("spec.version of %s: %s", nameOf(facts.Installation), err)}
	case objection != nil:
		return &plan.Refusal{Gate: v1alpha1.HubVersionPathGate, Message: objection.Message, Help: objection.Help}
	}
	return nil
}

func nameOf(installation *v1alpha1.IchorInstallation) string {
	return fmt.Sprintf("IchorInstallation %s/%s", installation.Namespace, installation.Name)
}
