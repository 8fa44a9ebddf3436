// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// appLabel tells the pods of the example deployment from others.
const appLabel = "app"

// createBase makes what a cluster is born with, besides the bootstrap manifests. Objects that were loaded from an earlier run stay as
// they are.
func (c *Controller) createBase() {
	for _, ns := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		c.create(kubeapi.Namespaces, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
	if c.Replicas > 0 {
		c.create(kubeapi.Deployments, exampleDeployment("web", c.Replicas))
	}
}

func exampleDeployment(name string, replicas int) *appsv1.Deployment {
	labels := map[string]string{appLabel: name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "registry.k8s.io/" + name + ":simulated"}}},
			},
		},
	}
}

// create makes an object unless it is there.
func (c *Controller) create(r *kubeapi.Resource, obj kubeapi.Object) {
	_, _ = c.Store.Create(r, obj, false)
}

func ownedBy(owner kubeapi.Object, kind, apiVersion string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
}

// hashed is the hash of a template that an object had in a generation.
type hashed struct {
	generation int64
	hash       string
}

// hashOf tells the pods of one template from those of another.
func (c *Controller) hashOf(owner kubeapi.Object, template corev1.PodTemplateSpec) string {
	if known, ok := c.hashes[owner.GetUID()]; ok && known.generation == owner.GetGeneration() {
		return known.hash
	}
	text, err := json.Marshal(template)
	if err != nil {
		return "" // A template that was stored can be written.
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:5])
	c.hashes[owner.GetUID()] = hashed{generation: owner.GetGeneration(), hash: hash}
	return hash
}

// podOf makes a pod from a template. Both labels by which controllers find theirs have the template's hash.
func podOf(namespace, name string, template corev1.PodTemplateSpec, hash string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations)},
		Spec:       *template.Spec.DeepCopy(),
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	}
	return pod
}

// setOf is the name of the daemon set or deployment that a pod is of; empty for others.
func (c *Controller) setOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return ""
	case owner.Kind == "DaemonSet":
		return owner.Name
	}
	set, err := c.Store.Get(kubeapi.ReplicaSets, pod.Namespace, owner.Name)
	if err != nil || metav1.GetControllerOf(set) == nil {
		return ""
	}
	return metav1.GetControllerOf(set).Name
}

// collectGarbage ends what belongs to a set or deployment that is gone. Owners that were never there are left alone.
func (c *Controller) collectGarbage() {
	alive := map[types.UID]bool{}
	for _, r := range []*kubeapi.Resource{kubeapi.DaemonSets, kubeapi.Deployments, kubeapi.ReplicaSets} {
		list, _ := c.Store.List(r, "")
		for _, obj := range list {
			alive[obj.GetUID()], c.owners[obj.GetUID()] = true, true
		}
	}
	gone := func(obj metav1.Object) bool {
		owner := metav1.GetControllerOf(obj)
		return owner != nil && c.owners[owner.UID] && !alive[owner.UID]
	}
	if len(alive) == len(c.owners) {
		return
	}
	sets, _ := c.Store.List(kubeapi.ReplicaSets, "")
	for _, set := range sets {
		if gone(set) {
			_, _ = c.Store.Delete(kubeapi.ReplicaSets, set.GetNamespace(), set.GetName(), false)
			delete(alive, set.GetUID())
		}
	}
	for _, pod := range c.pods() {
		if gone(pod) {
			c.terminate(pod, 30)
		}
	}
}
