// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ichor.maesh.dev/hub/config/crd"
	"ichor.maesh.dev/hub/config/manager"
	"ichor.maesh.dev/hub/config/policies"
	"ichor.maesh.dev/hub/config/rbac"
)

// installerRole is the name of the roles of the installer, which go first: what they let it do, the rest may need.
const installerRole = "ichor-installer"

// namespaced are the kinds of a release that are in the hub's namespace.
var namespaced = []string{"ServiceAccount", "Role", "RoleBinding", "Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"}

// order is the order in which kinds are installed: what others need comes before them, and the hub last of all.
var order = []string{
	"ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "CustomResourceDefinition",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	"Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment",
}

// Release is what this build installs in a namespace, in order: what config/default has, without the namespace itself and its certificate, and
// the policies that write, which are installed on their own.
func Release(namespace string) ([]*unstructured.Unstructured, error) {
	definitions, err := Definitions(crd.Own)
	if err != nil {
		return nil, err
	}
	objects := definitions
	for _, files := range []fs.FS{rbac.Manifests, policies.Manifests, manager.Manifests} {
		read, err := Read(files)
		if err != nil {
			return nil, err
		}
		objects = append(objects, read...)
	}
	for _, object := range objects {
		label(object, "app.kubernetes.io/part-of", "ichor-hub")
		if slices.Contains(namespaced, object.GetKind()) {
			object.SetNamespace(namespace)
		}
		inNamespace(object, namespace)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return place(a) - place(b) })
	return objects, nil
}

func place(object *unstructured.Unstructured) int {
	at := 2 * slices.Index(order, object.GetKind())
	if object.GetName() != installerRole {
		at++
	}
	return at
}

// inNamespace makes bindings name the ServiceAccounts of a namespace.
func inNamespace(object *unstructured.Unstructured, namespace string) {
	subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects")
	for _, subject := range subjects {
		if fields, ok := subject.(map[string]any); ok && fields["namespace"] != nil {
			fields["namespace"] = namespace
		}
	}
	if len(subjects) > 0 {
		_ = unstructured.SetNestedSlice(object.Object, subjects, "subjects") // It was read from there.
	}
}
