// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// syncDeployments is the controller of deployments: the set of the present template grows to its full size, and those of older ones
// shrink as its pods become ready.
func (c *Controller) syncDeployments() {
	list, _ := c.Store.List(kubeapi.Deployments, "")
	for _, obj := range list {
		d := obj.(*appsv1.Deployment) //nolint:forcetypeassert // The store holds deployments under it.
		hash := c.hashOf(d, d.Spec.Template)
		size := ptr.Deref(d.Spec.Replicas, 1)
		sets := c.setsOf(d)
		current := slices.IndexFunc(sets, func(s *appsv1.ReplicaSet) bool { return s.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash })
		if current < 0 {
			c.create(kubeapi.ReplicaSets, newReplicaSet(d, hash))
			continue // The next Sync goes on: the set has no pods yet.
		}
		_, ready := c.countOwned(sets[current])
		c.scale(sets[current], size)
		for i, s := range sets {
			if i != current {
				c.scale(s, min(ptr.Deref(s.Spec.Replicas, 1), max(size-ready, 0)))
			}
		}
	}
}

func (c *Controller) setsOf(d *appsv1.Deployment) []*appsv1.ReplicaSet {
	list, _ := c.Store.List(kubeapi.ReplicaSets, d.Namespace)
	var sets []*appsv1.ReplicaSet
	for _, obj := range list {
		if metav1.IsControlledBy(obj, d) {
			sets = append(sets, obj.(*appsv1.ReplicaSet)) //nolint:forcetypeassert // The store holds replica sets under it.
		}
	}
	return sets
}

func newReplicaSet(d *appsv1.Deployment, hash string) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, OwnerReferences: ownedBy(d, "Deployment", "apps/v1"),
			Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector.DeepCopy(), Template: *d.Spec.Template.DeepCopy()},
	}
	for key, value := range d.Spec.Template.Labels {
		set.Labels[key] = value
	}
	return set
}

func (c *Controller) scale(set *appsv1.ReplicaSet, size int32) {
	_, _ = c.Store.Update(kubeapi.ReplicaSets, set.Namespace, set.Name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
		o.(*appsv1.ReplicaSet).Spec.Replicas = ptr.To(size) //nolint:forcetypeassert // The store holds replica sets under it.
		return o, nil
	})
}

// syncReplicas is the controller of replica sets.
func (c *Controller) syncReplicas() {
	list, _ := c.Store.List(kubeapi.ReplicaSets, "")
	for _, obj := range list {
		set := obj.(*appsv1.ReplicaSet) //nolint:forcetypeassert // The store holds replica sets under it.
		var alive []*corev1.Pod
		for _, pod := range ownedPods(c.pods(), set) {
			if pod.DeletionTimestamp == nil {
				alive = append(alive, pod)
			}
		}
		missing := int(ptr.Deref(set.Spec.Replicas, 1)) - len(alive)
		for range missing {
			pod := podOf(set.Namespace, set.Name+"-"+uuid.NewString()[:5], set.Spec.Template, set.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
			pod.OwnerReferences = ownedBy(set, "ReplicaSet", "apps/v1")
			c.create(kubeapi.Pods, pod)
		}
		for i := range max(-missing, 0) {
			c.terminate(alive[i], 30)
		}
	}
}

// countReplicas keeps the status of the replica sets and deployments.
func (c *Controller) countReplicas() {
	list, _ := c.Store.List(kubeapi.ReplicaSets, "")
	for _, obj := range list {
		set := obj.(*appsv1.ReplicaSet) //nolint:forcetypeassert // The store holds replica sets under it.
		there, ready := c.countOwned(set)
		_, _ = c.Store.Update(kubeapi.ReplicaSets, set.Namespace, set.Name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
			o.(*appsv1.ReplicaSet).Status = appsv1.ReplicaSetStatus{ //nolint:forcetypeassert // As above.
				ObservedGeneration: set.Generation, Replicas: there, ReadyReplicas: ready, AvailableReplicas: ready,
			}
			return o, nil
		})
	}
	list, _ = c.Store.List(kubeapi.Deployments, "")
	for _, obj := range list {
		c.countDeployment(obj.(*appsv1.Deployment)) //nolint:forcetypeassert // The store holds deployments under it.
	}
}

// countDeployment keeps the status of a deployment.
func (c *Controller) countDeployment(d *appsv1.Deployment) {
	hash, size := c.hashOf(d, d.Spec.Template), ptr.Deref(d.Spec.Replicas, 1)
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	for _, set := range c.setsOf(d) {
		there, ready := c.countOwned(set)
		status.Replicas, status.ReadyReplicas = status.Replicas+there, status.ReadyReplicas+ready
		if set.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
			status.UpdatedReplicas = there
		}
	}
	status.AvailableReplicas, status.UnavailableReplicas = status.ReadyReplicas, max(size-status.ReadyReplicas, 0)
	available := corev1.ConditionFalse
	if status.ReadyReplicas >= size-size/4 { // A quarter may be away.
		available = corev1.ConditionTrue
	}
	status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: available}}
	_, _ = c.Store.Update(kubeapi.Deployments, d.Namespace, d.Name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
		o.(*appsv1.Deployment).Status = status //nolint:forcetypeassert // The store holds deployments under it.
		return o, nil
	})
}

func (c *Controller) countOwned(owner metav1.Object) (there, ready int32) {
	for _, pod := range ownedPods(c.pods(), owner) {
		there++
		if slices.ContainsFunc(pod.Status.Conditions, isReady) {
			ready++
		}
	}
	return there, ready
}
