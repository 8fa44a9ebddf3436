// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// inventoryAnnotation names, on an object, the inventory that it is in.
const inventoryAnnotation = "config.k8s.io/owning-inventory"

// objectKey is an object as an inventory has it.
type objectKey struct {
	schema.GroupKind

	Namespace, Name string
}

func keyOf(object *unstructured.Unstructured) objectKey {
	return objectKey{GroupKind: object.GroupVersionKind().GroupKind(), Namespace: object.GetNamespace(), Name: object.GetName()}
}

// rbacGroup has names with colons, which no key of a ConfigMap can have.
const rbacGroup, colon, noColon = "rbac.authorization.k8s.io", ":", "__"

// String is the object's key in the ConfigMap: namespace_name_group_kind.
func (k objectKey) String() string {
	name := k.Name
	if k.Group == rbacGroup {
		name = strings.ReplaceAll(name, colon, noColon)
	}
	return strings.Join([]string{k.Namespace, name, k.Group, k.Kind}, "_")
}

// parseKey reads a key. Only names may have an underscore in them.
func parseKey(text string) (objectKey, bool) {
	parts := strings.Split(text, "_")
	if len(parts) < 4 {
		return objectKey{}, false
	}
	last := len(parts) - 1
	name := strings.Join(parts[1:last-1], "_")
	return objectKey{
		GroupKind: schema.GroupKind{Group: parts[last-1], Kind: parts[last]}, Namespace: parts[0], Name: strings.ReplaceAll(name, noColon, colon),
	}, true
}

// inventory tells what was applied from bootstrap manifests: a ConfigMap whose keys are the objects. Talos and the hub share it.
type inventory struct {
	object *corev1.ConfigMap
	keys   map[string]bool
}

func (i *inventory) add(key objectKey) { i.keys[key.String()] = true }

// inventory reads the inventory. Where none is kept, or there, it is empty.
func (s *manifestSync) inventory(ctx context.Context) (*inventory, error) {
	found := &inventory{keys: map[string]bool{}}
	if !s.keeps {
		return found, nil
	}
	object, err := s.clients.CoreV1().ConfigMaps(constants.KubernetesInventoryNamespace).
		Get(ctx, constants.KubernetesBootstrapManifestsInventoryName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return found, nil
	case err != nil:
		return nil, fmt.Errorf("reading the inventory of the bootstrap manifests: %w", err)
	}
	found.object = object
	for key := range object.Data {
		found.keys[key] = true
	}
	return found, nil
}

// write writes the inventory, if it is another one by now.
func (s *manifestSync) write(ctx context.Context, i *inventory) error {
	if s.dry || !s.keeps {
		return nil
	}
	data := map[string]string{}
	for key := range i.keys {
		data[key] = ""
	}
	maps := s.clients.CoreV1().ConfigMaps(constants.KubernetesInventoryNamespace)
	var err error
	switch {
	case i.object == nil:
		i.object, err = maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: constants.KubernetesInventoryNamespace, Name: constants.KubernetesBootstrapManifestsInventoryName},
			Data:       data,
		}, metav1.CreateOptions{})
	case !sameKeys(i.object.Data, data):
		i.object = i.object.DeepCopy()
		i.object.Data = data
		i.object, err = maps.Update(ctx, i.object, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the inventory of the bootstrap manifests: %w", err)
	}
	return nil
}

func sameKeys(a, b map[string]string) bool {
	return maps.EqualFunc(a, b, func(string, string) bool { return true })
}

// prune deletes what is in the inventory and has no manifest any more, unless it is somebody else's by now.
func (s *manifestSync) prune(ctx context.Context, i *inventory, rendered map[objectKey]bool) ([]ManifestChange, error) {
	var changes []ManifestChange
	var failed error
	for _, text := range slices.Sorted(maps.Keys(i.keys)) {
		key, ok := parseKey(text)
		if !ok || isRendered(rendered, key) {
			continue
		}
		change, err := s.pruneOne(ctx, key)
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("pruning %s %s: %w", key.Kind, key.Name, err))
			continue
		case change != nil:
			changes = append(changes, *change)
		}
		delete(i.keys, text)
	}
	return changes, errors.Join(failed, s.write(ctx, i))
}

// isRendered says whether an object has a manifest. A manifest may name a namespace for what has none.
func isRendered(rendered map[objectKey]bool, key objectKey) bool {
	if rendered[key] {
		return true
	}
	for other := range rendered {
		if key.Namespace == "" && other.GroupKind == key.GroupKind && other.Name == key.Name {
			return true
		}
	}
	return false
}

// pruneOne deletes an object; nil means that there is none.
func (s *manifestSync) pruneOne(ctx context.Context, key objectKey) (*ManifestChange, error) {
	version, err := s.preferred(ctx, key.Group)
	if err != nil || version == "" {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(key.WithVersion(version))
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	path, err := s.path(ctx, object)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	live, err := s.get(ctx, path)
	if live == nil || err != nil {
		return nil, err
	}
	change := &ManifestChange{Object: describe(live), Action: ManifestPruned, Owner: owner(live)}
	switch {
	case change.Owner != "" || live.GetAnnotations()[inventoryAnnotation] == "": // Somebody has taken it over.
		change.Action = ManifestSkipped
		return change, nil
	case s.dry:
		change.Diff, err = diff(live, nil)
		return change, err
	}
	return change, ignoreAbsent(s.delete(ctx, path, live))
}

// delete deletes what was looked at, and nothing that has taken its place meanwhile.
func (s *manifestSync) delete(ctx context.Context, path string, live *unstructured.Unstructured) error {
	options := metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(live.GetUID()))}
	options.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("DeleteOptions"))
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	return s.clients.Discovery().RESTClient().Delete().AbsPath(path).SetHeader("Content-Type", jsonType).Body(body).Do(ctx).Error()
}

var background = metav1.DeletePropagationBackground

// preferred is the version in which an API server would have a group; empty if it has none of it.
func (s *manifestSync) preferred(ctx context.Context, group string) (string, error) {
	if group == "" {
		return corev1.SchemeGroupVersion.Version, nil
	}
	data, err := raw(s.clients.Discovery().RESTClient().Get().AbsPath("/apis/"+group).SetHeader("Accept", jsonType).Do(ctx))
	if err != nil {
		return "", ignoreAbsent(err)
	}
	found := &metav1.APIGroup{}
	if err := json.Unmarshal(data, found); err != nil {
		return "", err
	}
	return found.PreferredVersion.Version, nil
}

func ignoreAbsent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// absent is an error of reading something, unless it is that this is not there.
func absent(err error, what string, args ...any) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("reading %s: %w", fmt.Sprintf(what, args...), err)
}
