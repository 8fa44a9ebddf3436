// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/config/crd"
	"ichor.maesh.dev/hub/config/policies"
	"ichor.maesh.dev/hub/config/rbac"
	"ichor.maesh.dev/hub/hub/manifests"
	"ichor.maesh.dev/hub/hub/standalone/pki"
)

// fieldManager owns what is installed here.
const fieldManager = "ichor-hub-standalone"

var (
	crdResource     = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	roleResource    = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	bindingResource = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
)

// policyResources are the resources of the kinds in config/policies.
var policyResources = map[string]schema.GroupVersionResource{
	"ValidatingAdmissionPolicy":        admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"),
	"ValidatingAdmissionPolicyBinding": admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"),
	"MutatingAdmissionPolicy":          admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"),
	"MutatingAdmissionPolicyBinding":   admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"),
}

// installer puts the hub's definitions, roles and policies into the API.
type installer struct {
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
}

// install returns when everything is in place and served.
func install(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // A few dozen requests, once.
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating client to install with: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("creating discovery client to install with: %w", err)
	}
	i := installer{client: client, discovery: disco}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return i.installDefinitions(ctx) })
	group.Go(func() error { return i.installRoles(ctx) })
	group.Go(func() error { return i.installPolicies(ctx) })
	return group.Wait()
}

func (i installer) installDefinitions(ctx context.Context) error {
	own, err := manifests.Definitions(crd.Own)
	if err != nil {
		return err
	}
	clusterAPI, err := manifests.Definitions(crd.ClusterAPI)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, definition := range own {
		group.Go(func() error { return i.apply(groupCtx, crdResource, definition) })
	}
	served := slices.Concat(own, clusterAPI)
	for index, definition := range clusterAPI {
		group.Go(func() (err error) {
			served[len(own)+index], err = i.createOnce(groupCtx, crdResource, definition)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return i.waitServed(ctx, served)
}

func (i installer) installRoles(ctx context.Context) error {
	roles, err := manifests.Read(rbac.Manifests)
	if err != nil {
		return err
	}
	bindings, err := bindings()
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, manifest := range roles {
		if manifest.GetKind() == "ClusterRole" { // Service accounts and their bindings are for a hub that runs in pods.
			group.Go(func() error { return i.apply(groupCtx, roleResource, manifest) })
		}
	}
	for _, binding := range bindings {
		group.Go(func() error { return i.apply(groupCtx, bindingResource, binding) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return i.waitAggregated(ctx, roles)
}

// waitAggregated returns when the roles that are put together from others are: who signs in first finds their rights.
func (i installer) waitAggregated(ctx context.Context, roles []*unstructured.Unstructured) error {
	for _, role := range roles {
		want := aggregated(role, roles)
		if want == 0 {
			continue
		}
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			there, err := i.client.Resource(roleResource).Get(ctx, role.GetName(), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			rules, _ := there.Object["rules"].([]any) // Until there are any, it is null.
			return len(rules) >= want, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the rules of ClusterRole %s: %w", role.GetName(), err)
		}
	}
	return nil
}

// aggregated is how many rules of the roles a role is put together from; zero if it is not.
func aggregated(role *unstructured.Unstructured, from []*unstructured.Unstructured) int {
	count := 0
	selectors, _, _ := unstructured.NestedSlice(role.Object, "aggregationRule", "clusterRoleSelectors")
	for _, selector := range selectors {
		fields, _ := selector.(map[string]any)
		wanted, _, _ := unstructured.NestedStringMap(fields, "matchLabels")
		for _, other := range from {
			if labels.SelectorFromSet(wanted).Matches(labels.Set(other.GetLabels())) {
				rules, _, _ := unstructured.NestedSlice(other.Object, "rules")
				count += len(rules)
			}
		}
	}
	return count
}

// installPolicies installs the admission policies. A policy is in force a second or so after it was written.
func (i installer) installPolicies(ctx context.Context) error {
	all, err := manifests.Read(policies.Manifests)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, manifest := range all {
		group.Go(func() error { return i.apply(ctx, policyResources[manifest.GetKind()], manifest) })
	}
	return group.Wait()
}

// bindings give the hub's user the hub's role, and the groups of standalone mode theirs.
func bindings() ([]*unstructured.Unstructured, error) {
	hub, err := binding("ichor-hub-standalone", rbac.HubRole, rbacv1.UserKind, pki.HubUser)
	if err != nil {
		return nil, err
	}
	all := []*unstructured.Unstructured{hub}
	for group, role := range rbac.Groups {
		object, err := binding(role+"-standalone", role, rbacv1.GroupKind, group)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, nil
}

// binding gives a user or a group a role everywhere.
func binding(name, role, kind, subject string) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: kind, Name: subject}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding role binding %s: %w", name, err)
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}, nil
}

// apply makes an object what it should be, whatever it was.
func (i installer) apply(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured) error {
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := i.client.Resource(resource).Apply(ctx, object.GetName(), object, options); err != nil {
		return fmt.Errorf("installing %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// createOnce creates an object where there is none of its name, and returns the one that is there: it may belong to somebody else.
func (i installer) createOnce(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	client := i.client.Resource(resource)
	there, err := client.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		there, err = client.Get(ctx, object.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return there, nil
}

// waitServed returns when discovery knows every resource of the definitions, so that clients that map kinds to
// resources find them at their first look.
func (i installer) waitServed(ctx context.Context, definitions []*unstructured.Unstructured) error {
	var missing sets.Set[schema.GroupVersionResource]
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		served, err := i.served()
		if err != nil {
			return false, nil //nolint:nilerr // Discovery is incomplete while definitions come in.
		}
		missing = resources(definitions).Difference(served)
		return missing.Len() == 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %v to be served: %w", missing.UnsortedList(), err)
	}
	return nil
}

func (i installer) served() (sets.Set[schema.GroupVersionResource], error) {
	_, lists, err := i.discovery.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	known, err := discovery.GroupVersionResources(lists)
	return sets.KeySet(known), err
}

// resources are those that definitions define, in every version that they serve.
func resources(definitions []*unstructured.Unstructured) sets.Set[schema.GroupVersionResource] {
	found := sets.New[schema.GroupVersionResource]()
	for _, definition := range definitions {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		for _, version := range versions {
			fields, _ := version.(map[string]any)
			if served, _, _ := unstructured.NestedBool(fields, "served"); served {
				name, _, _ := unstructured.NestedString(fields, "name")
				found.Insert(schema.GroupVersionResource{Group: group, Version: name, Resource: plural})
			}
		}
	}
	return found
}
