// SPDX-License-Identifier: Apache-2.0

// Package plan plans rotations of certificate authorities. It is a leaf: it links no client of a target.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// Codes of warnings.
const (
	// NotRotatedWarning says which authorities stay.
	NotRotatedWarning = "NotRotated"

	// CredentialsChangeWarning says what becomes of the credentials that people keep.
	CredentialsChangeWarning = "CredentialsChange"

	// ComponentsRestartWarning says what restarts, and how often.
	ComponentsRestartWarning = "ComponentsRestart"

	// ProviderSecretsWarning says which Secrets of a provider of Cluster API are written.
	ProviderSecretsWarning = "ProviderSecrets"
)

// Planner plans rotations of certificate authorities.
type Planner struct{}

var _ plan.TurnsBack = Planner{}

// Traits implements plan.Planner. What has become of credentials, no machine tells: a rotation whose status was lost is looked at by a person.
// One that has begun is better finished than left between two authorities.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	traits := plan.Traits{Windows: plan.WindowsToBegin, StartVerb: spec.StartSubresource()}
	if spec.CARotation == nil {
		return traits
	}
	for _, of := range spec.CARotation.Authorities {
		traits.Confirmable = append(traits.Confirmable, StageName(of, AwaitCredentials))
	}
	return traits
}

// Narrow implements plan.Planner: a rotation changes nothing that the spec of a cluster asks for.
func (Planner) Narrow(v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{}
}

// AtTarget implements plan.Planner: no machine has an authority that is not made yet.
func (Planner) AtTarget(*v1alpha1.TalosMachine, v1alpha1.OperationTarget) bool { return false }

// Plan implements plan.Planner.
func (p Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	made := plan.Plan{Target: facts.Target, Effect: plan.EffectCARotation, Stages: stagesOf(facts), Warnings: warnings(facts)}
	made.Losses = []string{fmt.Sprintf("credentials that the old %s has signed are refused in the end, whoever keeps them", words(facts.Spec.CARotation.Authorities))}
	if facts.TurnBack {
		p.turnBack(facts, &made)
	}
	return made, refusals(facts)
}

// turnBack plans the way back, as far as there is one.
func (Planner) turnBack(facts plan.Facts, made *plan.Plan) {
	all := facts.Spec.CARotation.Authorities
	made.Stages, made.TurnsBack = backwards(facts), true
	if last := all[len(all)-1]; past(facts, last) {
		made.TurnsBack, made.NoWayBack = false, noWayBack(last)
	}
}

func noWayBack(of v1alpha1.CAAuthority) string {
	return fmt.Sprintf("machines have begun to drop the old %s authority: there is no way back, and the rotation goes on to its end", of)
}

// NoWayBack implements plan.TurnsBack.
func (Planner) NoWayBack(op *v1alpha1.TalosOperation) string {
	if op.Spec.CARotation == nil {
		return ""
	}
	facts := plan.Facts{Spec: op.Spec, Units: op.Status.Machines, Whole: op.Status.Units, CompletedStages: op.Status.CompletedStages}
	for _, of := range op.Spec.CARotation.Authorities {
		if past(facts, of) && (isLast(op, of) || !isOver(facts, StageName(of, Drop))) {
			return noWayBack(of)
		}
	}
	return ""
}

func isLast(op *v1alpha1.TalosOperation, of v1alpha1.CAAuthority) bool {
	all := op.Spec.CARotation.Authorities
	return all[len(all)-1] == of
}

// words are authorities for people.
func words(of []v1alpha1.CAAuthority) string {
	names := make([]string, len(of))
	for i, authority := range of {
		names[i] = string(authority)
	}
	if len(names) == 1 {
		return names[0] + " authority"
	}
	return strings.Join(names, " and ") + " authorities"
}

func rotates(facts plan.Facts, of v1alpha1.CAAuthority) bool {
	return slices.Contains(facts.Spec.CARotation.Authorities, of)
}

func warnings(facts plan.Facts) []plan.Warning {
	cluster := facts.Spec.ClusterName
	list := []plan.Warning{
		{Code: NotRotatedWarning, Message: "not rotated: the authorities of etcd and of the API aggregator, of which Talos accepts no second one" + notAsked(facts)},
		{Code: CredentialsChangeWarning, Message: fmt.Sprintf(
			"who trusts the old authority alone cannot tell servers from others after the swap: copy the Secrets of %s again once the first pass is over, and once more when the operation asks for it", cluster)},
	}
	if rotates(facts, v1alpha1.KubernetesCA) {
		list = append(list, plan.Warning{Code: ComponentsRestartWarning, Message: "the API server of each control plane, one at a time, and every kubelet restart in each of three passes; pods stay"})
	}
	if rotates(facts, v1alpha1.KubernetesCA) && plan.ControlPlanes(facts.Approved()) == 1 {
		list = append(list, plan.Warning{Code: plan.SingleControlPlaneWarning, Message: "the only control plane restarts its API server: the Kubernetes API of the cluster is away for a moment in each pass"})
	}
	if facts.CAPICluster != nil && facts.CAPICluster.Spec.ControlPlaneRef.IsDefined() {
		list = append(list, plan.Warning{Code: ProviderSecretsWarning, Message: fmt.Sprintf(
			"Secrets that %s and its bootstrap provider keep are written: %s-talosconfig, %[2]s-kubeconfig, %[2]s-talos and %[2]s-ca", facts.CAPICluster.Spec.ControlPlaneRef.Kind, cluster)})
	}
	return append(list, plan.OverrideWarnings(facts.Spec.Overrides, Planner{}.Traits(facts.Spec))...)
}

// notAsked names the authority that could be rotated as well.
func notAsked(facts plan.Facts) string {
	for _, of := range authorities {
		if !rotates(facts, of) {
			return fmt.Sprintf(", and that of the %s API, which nobody has asked for", of)
		}
	}
	return ""
}

func refusals(facts plan.Facts) []plan.Refusal {
	cluster := facts.Spec.ClusterName
	var list []plan.Refusal
	approved := facts.Approved()
	if plan.ControlPlanes(approved) == 0 {
		list = append(list, plan.Refusal{
			Gate: v1alpha1.MachineKnownGate, Message: fmt.Sprintf("no control plane of cluster %s is known: its authorities are there", cluster),
			Help: "ichor cluster get " + cluster,
		})
	}
	for i := range facts.Machines {
		if m := &facts.Machines[i]; m.Stranger() {
			list = append(list, plan.Refusal{
				Gate:    v1alpha1.MachineKnownGate,
				Message: fmt.Sprintf("machine %s is not approved, and so not touched: it would be locked out", m.Name),
				Help:    fmt.Sprintf("ichor machine approve %s --cluster %s; or remove it", m.Name, cluster),
			})
			break
		}
	}
	if refusal := plan.HalfJoined(facts, "", "it would be locked out"); refusal != nil {
		list = append(list, *refusal)
	}
	for _, m := range approved {
		if m.Held() {
			list = append(list, plan.Refusal{
				Gate: v1alpha1.MachineHeldGate, Message: fmt.Sprintf("machine %s is held: a rotation leaves no machine out, which would be locked out", m.Name),
				Help: fmt.Sprintf("ichor machine unhold %s --cluster %s", m.Name, cluster),
			})
			break
		}
	}
	return list
}
