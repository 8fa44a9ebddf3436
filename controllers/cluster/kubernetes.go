// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/controllers/versions"
)

// kubernetesInSync compares the API server and kubelets with what is declared; nil if nothing is.
func kubernetesInSync(facts targets.Facts) *inSync {
	cluster, desired := facts.Cluster, facts.Cluster.Spec.KubernetesVersion
	switch running := kubernetesVersionsOf(facts); {
	case desired == "":
		return nil
	case len(running) == 0:
		return &inSync{metav1.ConditionUnknown, v1alpha1.NotYetObservedReason, "nobody has told which Kubernetes runs"}
	case len(running) == 1 && running[0] == desired:
		return &inSync{metav1.ConditionTrue, v1alpha1.SpecInSyncReason, ""}
	default:
		return &inSync{metav1.ConditionFalse, v1alpha1.SpecOutOfSyncReason, fmt.Sprintf(
			"Kubernetes %s runs and the spec asks for %s; bring the cluster there with: ichor upgrade kubernetes %[2]s --cluster %s",
			strings.Join(running, ", "), desired, cluster.Name)}
	}
}

// kubernetesVersionsOf are the different versions that the API server and the kubelets tell, lowest first.
func kubernetesVersionsOf(facts targets.Facts) []string {
	running := []string{facts.Cluster.Status.KubernetesVersion}
	for _, machine := range facts.Approved() {
		running = append(running, machine.Status.KubeletVersion)
	}
	running = slices.DeleteFunc(running, func(version string) bool { return version == "" })
	slices.SortFunc(running, versions.Compare)
	return slices.Compact(running)
}
