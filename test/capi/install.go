// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// install puts Cluster API's definitions, its roles and the stand-in provider's kinds into a management API, as clusterctl would: over
// what is there already.
func install(ctx context.Context, config *rest.Config, dir string) error {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			return err
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		return fmt.Errorf("creating client to install Cluster API with: %w", err)
	}
	objects, err := readObjects(dir)
	if err != nil {
		return err
	}
	for _, definition := range append(standIns(), inventory()) {
		objects = append(objects, definition)
	}
	for _, role := range []string{"manager-role", "aggregated-manager-role"} {
		objects = append(objects, binding(role))
	}
	for _, object := range objects {
		if err := apply(ctx, c, object); err != nil {
			return err
		}
	}
	return established(ctx, c)
}

func readObjects(dir string) ([]client.Object, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("finding Cluster API's definitions in %s (run `make build-capi-core`): %w", dir, err)
	}
	var objects []client.Object
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading Cluster API's definitions: %w", err)
		}
		object, err := readObject(content)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func readObject(content []byte) (client.Object, error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(content, &kind); err != nil {
		return nil, err
	}
	if kind.Kind != "CustomResourceDefinition" {
		object := &unstructured.Unstructured{}
		return object, yaml.Unmarshal(content, &object.Object)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(content, definition); err != nil {
		return nil, err
	}
	newestOnly(definition)
	metav1.SetMetaDataLabel(&definition.ObjectMeta, clusterctlLabel, "")
	return definition, nil
}

// newestOnly leaves of a definition the version that is stored: nobody serves the webhook that would convert the others.
func newestOnly(definition *apiextensionsv1.CustomResourceDefinition) {
	definition.Spec.Conversion = nil
	definition.Spec.Versions = slices.DeleteFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Storage })
	definition.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
}

func binding(role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "capi-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: coreUser}},
	}
}

func apply(ctx context.Context, c client.Client, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", object.GetName(), err)
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "status")
	wanted := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	if err := c.Apply(ctx, wanted, client.ForceOwnership, client.FieldOwner("clusterctl")); err != nil {
		return fmt.Errorf("installing %s: %w", object.GetName(), err)
	}
	return nil
}

// established waits until every definition is served.
func established(ctx context.Context, c client.Client) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var list apiextensionsv1.CustomResourceDefinitionList
		if err := c.List(ctx, &list); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(d apiextensionsv1.CustomResourceDefinition) bool {
			return !slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			})
		}), nil
	})
}
