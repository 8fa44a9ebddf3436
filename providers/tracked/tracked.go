// SPDX-License-Identifier: Apache-2.0

// Package tracked says which tool keeps an object as it is described elsewhere, and would undo a change that somebody else makes.
package tracked

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Marks of tools that keep objects as they are in Git. They belong to those tools.
const (
	argoTrackingAnnotation = "argocd.argoproj.io/tracking-id"
	argoInstanceLabel      = "argocd.argoproj.io/instance"
	commonInstanceLabel    = "app.kubernetes.io/instance"
	commonManagedByLabel   = "app.kubernetes.io/managed-by"

	fluxKustomizeLabel = "kustomize.toolkit.fluxcd.io/"
	fluxHelmLabel      = "helm.toolkit.fluxcd.io/"
	fluxReconcile      = "kustomize.toolkit.fluxcd.io/reconcile"
	fluxDisabled       = "disabled"

	clusterctlProviderLabel = "cluster.x-k8s.io/provider"
	clusterctlLabel         = "clusterctl.cluster.x-k8s.io"

	helmReleaseAnnotation   = "meta.helm.sh/release-name"
	helmNamespaceAnnotation = "meta.helm.sh/release-namespace"
	helmManager             = "Helm"
)

// ByHelm names the release of Helm that an object belongs to; nothing if it belongs to none.
func ByHelm(object metav1.Object) string {
	annotations := object.GetAnnotations()
	switch release := annotations[helmReleaseAnnotation]; {
	case release != "":
		return fmt.Sprintf("release %q of Helm", strings.TrimPrefix(annotations[helmNamespaceAnnotation]+"/"+release, "/"))
	case object.GetLabels()[commonManagedByLabel] == helmManager:
		return "a release of Helm"
	}
	return ""
}

// ByClusterctl names the provider of clusterctl that an object is part of; nothing if it is none. clusterctl marks what it has installed, and
// keeps what it has installed in which version by itself.
func ByClusterctl(object metav1.Object) string {
	labels := object.GetLabels()
	provider := labels[clusterctlProviderLabel]
	if _, installed := labels[clusterctlLabel]; provider == "" || !installed {
		return ""
	}
	return fmt.Sprintf("provider %q of clusterctl", provider)
}

// ByGit names what keeps an object as it is in Git, and would undo a change; nothing if nobody does. kind is the object's.
func ByGit(object metav1.Object, kind string) string {
	for _, ask := range []func(metav1.Object, string) string{
		argoByAnnotation, // Argo CD marks what it applies, and not what was copied from it.
		argoByLabel,      // It used to mark by a label that Helm sets as well.
		fluxKustomization,
		fluxHelmRelease,
	} {
		if who := ask(object, kind); who != "" {
			return who
		}
	}
	return ""
}

// argoByAnnotation reads "application:group/kind:namespace/name".
func argoByAnnotation(object metav1.Object, kind string) string {
	application, rest, ok := strings.Cut(object.GetAnnotations()[argoTrackingAnnotation], ":")
	if !ok || application == "" {
		return ""
	}
	_, of, _ := strings.Cut(rest, "/")
	if of != fmt.Sprintf("%s:%s/%s", kind, object.GetNamespace(), object.GetName()) {
		return "" // Copied with another object.
	}
	return fmt.Sprintf("Application %q of Argo CD", application)
}

func argoByLabel(object metav1.Object, _ string) string {
	labels := object.GetLabels()
	if application := labels[argoInstanceLabel]; application != "" {
		return fmt.Sprintf("Application %q of Argo CD", application)
	}
	if application := labels[commonInstanceLabel]; application != "" && managedByArgo(object) {
		return fmt.Sprintf("Application %q of Argo CD", application)
	}
	return ""
}

// managedByArgo says whether Argo CD, and not only Helm, put the label there.
func managedByArgo(object metav1.Object) bool {
	isArgo := func(name string) bool { return strings.HasPrefix(strings.ToLower(name), "argocd") }
	return isArgo(object.GetLabels()[commonManagedByLabel]) ||
		slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return isArgo(f.Manager) })
}

func fluxKustomization(object metav1.Object, _ string) string {
	if object.GetAnnotations()[fluxReconcile] == fluxDisabled || object.GetLabels()[fluxReconcile] == fluxDisabled {
		return "" // Flux was told to leave it alone.
	}
	return flux(object, "Kustomization", fluxKustomizeLabel)
}

func fluxHelmRelease(object metav1.Object, _ string) string {
	return flux(object, "HelmRelease", fluxHelmLabel)
}

func flux(object metav1.Object, kind, prefix string) string {
	labels := object.GetLabels()
	if labels[prefix+"name"] == "" {
		return ""
	}
	return fmt.Sprintf("%s %q of Flux", kind, strings.TrimPrefix(labels[prefix+"namespace"]+"/"+labels[prefix+"name"], "/"))
}
