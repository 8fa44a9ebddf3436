// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// countReplicas is what the controllers of replica sets and deployments say about them. Each deployment has one set.
func (c *Controller) countReplicas() {
	pods := c.pods()
	sets, _ := c.Store.List(kubeapi.ReplicaSets, "")
	for _, obj := range sets {
		set := obj.(*appsv1.ReplicaSet) //nolint:forcetypeassert // The store holds replica sets under it.
		there, ready := countOwned(pods, set)
		_, _ = c.Store.Update(kubeapi.ReplicaSets, set.Namespace, set.Name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
			o.(*appsv1.ReplicaSet).Status = appsv1.ReplicaSetStatus{Replicas: there, ReadyReplicas: ready, AvailableReplicas: ready} //nolint:forcetypeassert // As above.
			return o, nil
		})
		owner := metav1.GetControllerOf(set)
		if owner == nil {
			continue
		}
		_, _ = c.Store.Update(kubeapi.Deployments, set.Namespace, owner.Name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
			o.(*appsv1.Deployment).Status = appsv1.DeploymentStatus{ //nolint:forcetypeassert // The store holds deployments under it.
				Replicas: there, UpdatedReplicas: there, ReadyReplicas: ready, AvailableReplicas: ready,
				UnavailableReplicas: max(ptr.Deref(set.Spec.Replicas, 1)-ready, 0),
			}
			return o, nil
		})
	}
}
