// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/machine"
)

// owningInventory is the annotation by which an object belongs to an inventory.
const owningInventory = "config.k8s.io/owning-inventory"

// stamp tells one boot and config of a control plane from another.
type stamp struct {
	set    *component.Set
	bootID string
}

// syncManifests does what a control plane does with its bootstrap manifests when it boots and when they change: it makes the objects
// that are missing, and changes none that are there.
func (c *Controller) syncManifests() {
	for _, m := range c.Machines {
		state := m.State()
		if !m.ControlPlane || !state.EtcdUp {
			continue
		}
		if now := (stamp{set: m.Components().Set, bootID: state.BootID}); now != c.stamps[m.Name] {
			c.stamps[m.Name] = now
			c.applyManifests(now.set, state.Running)
		}
	}
}

// applyManifests keeps an inventory of what was made from Talos 1.13 on: what is in it is not made again. Older versions just create.
func (c *Controller) applyManifests(set *component.Set, running machine.Slot) {
	kept := running.AtLeast(13)
	var inventory map[string]string
	if kept {
		inventory = c.inventory()
	}
	for _, m := range set.Manifests() {
		for _, content := range m.Objects {
			obj := &unstructured.Unstructured{Object: content}
			resource, key := kubeapi.ResourceOf(obj.GroupVersionKind()), inventoryKey(obj)
			if _, known := inventory[key]; known || resource == nil {
				continue
			}
			if _, err := c.Store.Get(resource, obj.GetNamespace(), obj.GetName()); err != nil {
				c.makeObject(resource, obj, kept)
			}
			if kept {
				inventory[key] = ""
			}
		}
	}
	if kept {
		c.writeInventory(inventory)
	}
}

// makeObject makes one object with Talos as the manager of its fields, with the annotation of the inventory if there is one.
func (c *Controller) makeObject(resource *kubeapi.Resource, obj *unstructured.Unstructured, kept bool) {
	obj = obj.DeepCopy()
	if kept {
		annotations := maps.Clone(obj.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[owningInventory] = constants.KubernetesBootstrapManifestsInventoryName
		obj.SetAnnotations(annotations)
		_, _, _ = c.Store.Apply(resource, obj.Object, constants.KubernetesFieldManagerName, false, false)
		return
	}
	_, _ = c.Store.CreateAs(resource, obj.Object, constants.KubernetesFieldManagerName)
}

// inventory is what the inventory holds; it is made if need be.
func (c *Controller) inventory() map[string]string {
	c.create(kubeapi.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: constants.KubernetesInventoryNamespace, Name: constants.KubernetesBootstrapManifestsInventoryName,
	}})
	content := map[string]string{}
	if obj, err := c.Store.Get(kubeapi.ConfigMaps, constants.KubernetesInventoryNamespace, constants.KubernetesBootstrapManifestsInventoryName); err == nil {
		maps.Copy(content, obj.(*corev1.ConfigMap).Data) //nolint:forcetypeassert // The store holds config maps under it.
	}
	return content
}

func (c *Controller) writeInventory(content map[string]string) {
	_, _ = c.Store.Update(kubeapi.ConfigMaps, constants.KubernetesInventoryNamespace, constants.KubernetesBootstrapManifestsInventoryName, false,
		func(o kubeapi.Object) (kubeapi.Object, error) {
			o.(*corev1.ConfigMap).Data = content //nolint:forcetypeassert // As above.
			return o, nil
		})
}

// inventoryKey names an object in the inventory: namespace, name, group and kind, where names of RBAC objects have no colons.
func inventoryKey(obj *unstructured.Unstructured) string {
	kind := obj.GroupVersionKind().GroupKind()
	return strings.Join([]string{obj.GetNamespace(), plainName(kind, obj.GetName()), kind.Group, kind.Kind}, "_")
}

func plainName(kind schema.GroupKind, name string) string {
	if kind.Group == rbacv1.GroupName {
		return strings.ReplaceAll(name, ":", "__")
	}
	return name
}
