// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/textdiff"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/tracked"
)

// ManifestAction is what is done to an object when manifests are synced.
type ManifestAction string

const (
	// ManifestCreated is not there yet.
	ManifestCreated ManifestAction = "Created"

	// ManifestConfigured is there, and becomes another.
	ManifestConfigured ManifestAction = "Configured"

	// ManifestUnchanged is as it shall be.
	ManifestUnchanged ManifestAction = "Unchanged"

	// ManifestPruned was made from a manifest that is there no more, and goes.
	ManifestPruned ManifestAction = "Pruned"

	// ManifestSkipped belongs to somebody else, and is left as it is.
	ManifestSkipped ManifestAction = "Skipped"
)

// ManifestChange is what becomes of one object.
type ManifestChange struct {
	// Object names it, as "DaemonSet kube-system/kube-proxy".
	Object string

	Action ManifestAction

	// Owner is whose it is, where it is skipped for that.
	Owner string

	// Diff is how it changes, as a unified diff of YAML. What Secrets hold is masked.
	Diff string
}

// DiffManifests asks the API server what a sync would do. It changes nothing.
func (c *connection) DiffManifests(ctx context.Context, manifests []map[string]any, inventory bool) ([]ManifestChange, error) {
	s := &manifestSync{connection: c, dry: true, keeps: inventory}
	return s.run(ctx, manifests)
}

// ApplyManifests applies manifests as Talos itself does: server-side, under its name and by force.
func (c *connection) ApplyManifests(ctx context.Context, manifests []map[string]any, inventory bool) ([]ManifestChange, error) {
	s := &manifestSync{connection: c, keeps: inventory}
	return s.run(guard.With(ctx, c.guard), manifests)
}

// manifestSync brings a cluster to its bootstrap manifests.
type manifestSync struct {
	*connection

	// dry asks what would be done.
	dry bool

	// keeps says whether an inventory tells what was applied, so that what has no manifest any more can go. Talos has one from 1.13 on.
	keeps bool

	// kinds are the resources that the API server serves, by group and version.
	kinds map[schema.GroupVersion][]metav1.APIResource
}

func (s *manifestSync) run(ctx context.Context, manifests []map[string]any) ([]ManifestChange, error) {
	s.kinds = map[schema.GroupVersion][]metav1.APIResource{}
	inventory, err := s.inventory(ctx)
	if err != nil {
		return nil, err
	}
	var changes []ManifestChange
	rendered := map[objectKey]bool{}
	for _, object := range inOrder(manifests) {
		rendered[keyOf(object)] = true
		change, err := s.bring(ctx, object)
		if err != nil {
			return changes, err
		}
		if changes = append(changes, change); change.Action != ManifestSkipped {
			inventory.add(keyOf(object))
		}
	}
	if err := s.write(ctx, inventory); err != nil {
		return changes, err
	}
	pruned, err := s.prune(ctx, inventory, rendered)
	return append(changes, pruned...), err
}

// stages are what has to be there before what comes after it: other objects live in it, are of its kind, or are read by those.
var stages = map[string]int{"Namespace": 0, "CustomResourceDefinition": 0, "ClusterRole": 0, "Role": 0, "ConfigMap": 1, "Secret": 1}

// inOrder are copies of manifests in the order in which they are applied.
func inOrder(manifests []map[string]any) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, 0, len(manifests))
	for _, manifest := range manifests {
		objects = append(objects, (&unstructured.Unstructured{Object: manifest}).DeepCopy())
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(stageOf(a), stageOf(b)) })
	return objects
}

func stageOf(object *unstructured.Unstructured) int {
	if stage, ok := stages[object.GetKind()]; ok {
		return stage
	}
	return len(stages)
}

// bring makes one object what its manifest says.
func (s *manifestSync) bring(ctx context.Context, object *unstructured.Unstructured) (ManifestChange, error) {
	change := ManifestChange{Object: describe(object)}
	path, err := s.path(ctx, object)
	switch {
	case apierrors.IsNotFound(err) && s.dry:
		change.Action = ManifestCreated // Its kind comes with it.
		return change, nil
	case err != nil:
		return change, fmt.Errorf("applying %s: %w", change.Object, err)
	}
	live, err := s.get(ctx, path)
	if err != nil {
		return change, fmt.Errorf("reading %s: %w", change.Object, err)
	}
	if change.Owner = owner(live); change.Owner != "" {
		change.Action = ManifestSkipped
		return change, nil
	}
	if s.keeps || inInventory(live) { // What is in one stays there, whoever keeps that.
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[inventoryAnnotation] = constants.KubernetesBootstrapManifestsInventoryName
		object.SetAnnotations(annotations)
	}
	applied, err := s.apply(ctx, path, object)
	switch {
	case apierrors.IsNotFound(err) && s.dry: // Its namespace comes with it.
		change.Action = ManifestCreated
		return change, nil
	case err != nil:
		return change, fmt.Errorf("applying %s: %w", change.Object, err)
	}
	change.Diff, err = diff(live, applied)
	switch {
	case live == nil:
		change.Action = ManifestCreated
	case change.Diff == "":
		change.Action = ManifestUnchanged
	default:
		change.Action = ManifestConfigured
	}
	return change, err
}

func inInventory(object *unstructured.Unstructured) bool {
	return object != nil && object.GetAnnotations()[inventoryAnnotation] == constants.KubernetesBootstrapManifestsInventoryName
}

// path is where the API server has an object.
func (s *manifestSync) path(ctx context.Context, object *unstructured.Unstructured) (string, error) {
	kind := object.GroupVersionKind()
	served, ok := s.kinds[kind.GroupVersion()]
	if !ok {
		var err error
		if served, err = s.served(ctx, kind.GroupVersion()); err != nil {
			return "", err
		}
		s.kinds[kind.GroupVersion()] = served
	}
	i := slices.IndexFunc(served, func(r metav1.APIResource) bool { return r.Kind == kind.Kind })
	if i < 0 {
		delete(s.kinds, kind.GroupVersion()) // It may come.
		return "", apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, object.GetName())
	}
	return objectPath(kind.GroupVersion(), served[i], object), nil
}

func objectPath(gv schema.GroupVersion, resource metav1.APIResource, object *unstructured.Unstructured) string {
	path := apiPath(gv.Group, gv.Version)
	if resource.Namespaced {
		path += "/namespaces/" + cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)
	}
	return path + "/" + resource.Name + "/" + object.GetName()
}

// served are the resources of a group and version, without their subresources. The discovery client would not heed ctx.
func (s *manifestSync) served(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	data, err := raw(s.clients.Discovery().RESTClient().Get().AbsPath(apiPath(gv.Group, gv.Version)).SetHeader("Accept", jsonType).Do(ctx))
	if err != nil {
		return nil, err
	}
	list := &metav1.APIResourceList{}
	if err := json.Unmarshal(data, list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return slices.Contains([]byte(r.Name), '/') }), nil
}

const jsonType = "application/json"

// get reads an object; nil means that there is none.
func (s *manifestSync) get(ctx context.Context, path string) (*unstructured.Unstructured, error) {
	data, err := raw(s.clients.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", jsonType).Do(ctx))
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return decoded(data)
}

func (s *manifestSync) apply(ctx context.Context, path string, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	body, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	request := s.clients.Discovery().RESTClient().Patch(types.ApplyPatchType).AbsPath(path).SetHeader("Accept", jsonType).
		Param("fieldManager", constants.KubernetesFieldManagerName).Param("force", "true").Body(body)
	if s.dry {
		request = request.Param(dryRunParam, metav1.DryRunAll)
	}
	data, err := raw(request.Do(ctx))
	if err != nil {
		return nil, err
	}
	return decoded(data)
}

// raw is the answer to a request, or the error in the server's own words, which Raw has not.
func raw(result interface {
	Error() error
	Raw() ([]byte, error)
},
) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

func decoded(data []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(data)
}

// owner names who else keeps an object; empty if nobody does, or there is none.
func owner(object *unstructured.Unstructured) string {
	if object == nil {
		return ""
	}
	return ownerOf(object, object.GetKind())
}

func ownerOf(object metav1.Object, kind string) string {
	if who := cmp.Or(tracked.ByGit(object, kind), tracked.ByHelm(object)); who != "" {
		return who
	}
	if inventory := object.GetAnnotations()[inventoryAnnotation]; inventory != "" && inventory != constants.KubernetesBootstrapManifestsInventoryName {
		return fmt.Sprintf("inventory %q", inventory)
	}
	return ""
}

func describe(object *unstructured.Unstructured) string {
	name := object.GetName()
	if object.GetNamespace() != "" {
		name = object.GetNamespace() + "/" + name
	}
	return object.GetKind() + " " + name
}

// diff is how an object changes; it is empty if it does not.
func diff(before, after *unstructured.Unstructured) (string, error) {
	was, err := plain(before, nil)
	if err != nil {
		return "", err
	}
	is, err := plain(after, before)
	if err != nil {
		return "", err
	}
	return textdiff.Diff(was, is)
}

// generationAnnotation is what the API server counts changes of a DaemonSet by.
const generationAnnotation = "deprecated.daemonset.template.generation"

// plain is an object as YAML, without what the API server keeps there for itself. What a Secret holds is masked, and said to be another
// where it is not what it was before.
func plain(object, before *unstructured.Unstructured) (string, error) {
	if object == nil {
		return "", nil
	}
	shown := object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(shown.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(shown.Object, "metadata", "annotations", generationAnnotation)
	unstructured.RemoveNestedField(shown.Object, "status")
	if object.GetKind() == "Secret" {
		mask(shown, before)
	}
	data, err := yaml.Marshal(shown.Object)
	return string(data), err
}

func mask(secret, before *unstructured.Unstructured) {
	for _, field := range []string{"data", "stringData"} {
		values, _, _ := unstructured.NestedStringMap(secret.Object, field)
		for key, value := range values {
			masked := "(masked)"
			if before != nil {
				if was, _, _ := unstructured.NestedString(before.Object, field, key); was != value {
					masked = "(masked, another)"
				}
			}
			values[key] = masked
		}
		if len(values) > 0 {
			_ = unstructured.SetNestedStringMap(secret.Object, values, field) // The field was such a map.
		}
	}
}
