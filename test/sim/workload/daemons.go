// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// countDaemons keeps the status of the daemon sets: health checks compare it with the pods.
func (c *Controller) countDaemons() {
	pods := c.pods()
	for _, name := range daemons {
		_, _ = c.Store.Update(kubeapi.DaemonSets, "kube-system", name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
			set := o.(*appsv1.DaemonSet) //nolint:forcetypeassert // The store holds daemon sets under it.
			there, ready := countOwned(pods, set)
			set.Status = appsv1.DaemonSetStatus{
				DesiredNumberScheduled: there, CurrentNumberScheduled: there, UpdatedNumberScheduled: there,
				NumberReady: ready, NumberAvailable: ready, NumberUnavailable: there - ready,
			}
			return set, nil
		})
	}
}

func countOwned(pods []*corev1.Pod, owner metav1.Object) (there, ready int32) {
	for _, pod := range pods {
		if !metav1.IsControlledBy(pod, owner) {
			continue
		}
		there++
		if slices.ContainsFunc(pod.Status.Conditions, isReady) {
			ready++
		}
	}
	return there, ready
}

func isReady(c corev1.PodCondition) bool {
	return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
}
