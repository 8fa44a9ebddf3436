// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"maps"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/machine"
)

// appLabel tells the pods of one set from another's.
const appLabel = "app"

// systemLabel is how Kubernetes' own clients find the parts of a cluster.
const systemLabel = "k8s-app"

// systemName is what the parts are called there.
func systemName(app string) string {
	if app == coreDNS {
		return "kube-dns"
	}
	return app
}

// coreDNS is the one deployment that tolerates control planes, as in a real cluster.
const coreDNS = "coredns"

var (
	staticPods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	daemons    = []string{"kube-flannel", "kube-proxy"}
)

// createBase makes what a cluster is born with. Objects that were loaded from an earlier run stay as they are.
func (c *Controller) createBase() {
	for _, ns := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		c.create(kubeapi.Namespaces, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
	for _, name := range daemons {
		c.create(kubeapi.DaemonSets, &appsv1.DaemonSet{
			ObjectMeta: objectMeta("kube-system", name, name),
			Spec:       appsv1.DaemonSetSpec{Selector: selector(name)},
		})
	}
	c.createDeployment("kube-system", coreDNS, 2)
	if c.Replicas > 0 {
		c.createDeployment("default", "web", c.Replicas)
	}
}

func (c *Controller) createDeployment(namespace, name string, replicas int) {
	n := ptr.To(int32(replicas)) // A handful of pods.
	d := &appsv1.Deployment{
		ObjectMeta: objectMeta(namespace, name, name),
		Spec:       appsv1.DeploymentSpec{Replicas: n, Selector: selector(name)},
	}
	c.create(kubeapi.Deployments, d)
	owner, err := c.Store.Get(kubeapi.Deployments, namespace, name)
	if err != nil {
		return
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: objectMeta(namespace, name+"-5d4f8c7b9", name),
		Spec:       appsv1.ReplicaSetSpec{Replicas: n, Selector: selector(name)},
	}
	set.OwnerReferences = ownedBy(owner, appsv1.SchemeGroupVersion.WithKind("Deployment").Kind, "apps/v1")
	c.create(kubeapi.ReplicaSets, set)
}

// create makes an object unless it is there.
func (c *Controller) create(r *kubeapi.Resource, obj kubeapi.Object) {
	_, _ = c.Store.Create(r, obj, false)
}

func objectMeta(namespace, name, app string) metav1.ObjectMeta {
	labels := map[string]string{appLabel: app}
	if namespace == metav1.NamespaceSystem {
		labels[systemLabel] = systemName(app)
	}
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: app}}
}

func ownedBy(owner kubeapi.Object, kind, apiVersion string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
}

// syncSets makes the pods that sets and nodes lack.
func (c *Controller) syncSets() {
	alive := map[string]int{} // Pods by owner and, for those bound to a node, by name.
	for _, pod := range c.pods() {
		alive[pod.Namespace+"/"+pod.Name]++
		if owner := metav1.GetControllerOf(pod); owner != nil && pod.DeletionTimestamp == nil {
			alive[string(owner.UID)]++
		}
	}
	sets, _ := c.Store.List(kubeapi.ReplicaSets, "")
	for _, obj := range sets {
		set := obj.(*appsv1.ReplicaSet) //nolint:forcetypeassert // The store holds replica sets under it.
		for range max(int(ptr.Deref(set.Spec.Replicas, 1))-alive[string(set.UID)], 0) {
			c.create(kubeapi.Pods, replica(set))
		}
	}
	for _, m := range c.Machines {
		c.syncNodePods(m, alive)
	}
}

func replica(set *appsv1.ReplicaSet) *corev1.Pod {
	pod := newPod(set.Namespace, set.Name+"-"+uuid.NewString()[:5], set.Labels[appLabel], "")
	pod.OwnerReferences = ownedBy(set, "ReplicaSet", "apps/v1")
	return pod
}

// syncNodePods makes a node's daemon pods and, on control planes, its static pods.
func (c *Controller) syncNodePods(m *machine.Machine, alive map[string]int) {
	name := nodeName(m)
	node, err := c.Store.Get(kubeapi.Nodes, "", name)
	if err != nil || !m.State().KubeletReady {
		return
	}
	for _, app := range daemons {
		set, err := c.Store.Get(kubeapi.DaemonSets, "kube-system", app)
		pod := newPod("kube-system", app+"-"+string(node.GetUID())[:5], app, name)
		if err != nil || alive["kube-system/"+pod.Name] > 0 {
			continue
		}
		pod.OwnerReferences = ownedBy(set, "DaemonSet", "apps/v1")
		c.create(kubeapi.Pods, pod)
	}
	if !m.ControlPlane {
		return
	}
	for _, app := range staticPods {
		pod := newPod("kube-system", app+"-"+name, app, name)
		if alive["kube-system/"+pod.Name] > 0 {
			continue
		}
		pod.OwnerReferences = ownedBy(node, "Node", "v1")
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "simulated", "kubernetes.io/config.source": "file"}
		pod.Spec.Containers[0].Image = fmt.Sprintf("registry.k8s.io/%s:%s", app, c.KubernetesVersion)
		c.create(kubeapi.Pods, pod)
	}
}

func newPod(namespace, name, app, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: objectMeta(namespace, name, app),
		Spec: corev1.PodSpec{
			NodeName:                      node,
			Containers:                    []corev1.Container{{Name: app, Image: "registry.k8s.io/" + app + ":simulated"}},
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: ptr.To[int64](30),
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	pod.Labels = maps.Clone(pod.Labels)
	return pod
}
