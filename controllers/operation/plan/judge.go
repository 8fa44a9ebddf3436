// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// Judge plans, and adds what speaks against an operation of any kind.
func Judge(planner Planner, facts Facts) (Plan, []Refusal) {
	made, refusals := planner.Plan(facts)
	if planner.Traits(facts.Spec).Power == PowerOn || facts.Cluster.Power() != v1alpha1.ClusterIsStopped {
		return made, refusals
	}
	if stopped := isStopped(facts.Cluster); facts.Overridden(stopped.Gate) {
		made.Overridden = append(made.Overridden, stopped)
	} else {
		refusals = append([]Refusal{stopped}, refusals...)
	}
	return made, refusals
}

// isStopped refuses a cluster that was stopped on purpose: what would be done there could not be, and nobody would wait for it. Who mends a
// cluster that does not start any more may know better.
func isStopped(cluster *v1alpha1.TalosCluster) Refusal {
	return Refusal{
		Gate:    v1alpha1.ClusterRunningGate,
		Message: fmt.Sprintf("cluster %s %s", cluster.Name, StoppedWords(cluster)),
		Help:    "power its machines on, then: ichor cluster start " + cluster.Name, Overridable: true,
	}
}

// StoppedWords say who has stopped a cluster, and when.
func StoppedWords(cluster *v1alpha1.TalosCluster) string {
	words := fmt.Sprintf("was stopped on purpose by TalosOperation %q", cluster.StoppedBy())
	if at := cluster.StoppedAt(); !at.IsZero() {
		words += " at " + at.UTC().Format(time.RFC3339)
	}
	return words
}
