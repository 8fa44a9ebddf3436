// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// syncDaemons is the controller of daemon sets: every node has a pod of each, and after a change of the template they are replaced
// one after the other.
func (c *Controller) syncDaemons() {
	sets, _ := c.Store.List(kubeapi.DaemonSets, "")
	for _, obj := range sets {
		set := obj.(*appsv1.DaemonSet) //nolint:forcetypeassert // The store holds daemon sets under it.
		hash := c.hashOf(set, set.Spec.Template)
		byNode := map[string][]*corev1.Pod{}
		for _, pod := range ownedPods(c.pods(), set) {
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod)
		}
		nodes := c.machineNodes()
		for _, node := range nodes {
			if len(byNode[node]) == 0 && c.kubeletReady(node) {
				pod := podOf(set.Namespace, set.Name+"-"+uuid.NewString()[:5], set.Spec.Template, hash)
				pod.Spec.NodeName, pod.OwnerReferences = node, ownedBy(set, "DaemonSet", "apps/v1")
				c.create(kubeapi.Pods, pod)
			}
		}
		c.replaceDaemon(set, nodes, byNode, hash)
	}
}

// machineNodes are the names of the Nodes that are machines.
func (c *Controller) machineNodes() []string {
	list, _ := c.Store.List(kubeapi.Nodes, "")
	var names []string
	for _, node := range list {
		if c.machine(node.GetName()) != nil {
			names = append(names, node.GetName())
		}
	}
	return names
}

// replaceDaemon ends one pod of an older template, unless too many are away.
func (c *Controller) replaceDaemon(set *appsv1.DaemonSet, nodes []string, byNode map[string][]*corev1.Pod, hash string) {
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return
	}
	away := 0
	var old []*corev1.Pod
	for _, node := range nodes {
		serving := false
		for _, pod := range byNode[node] {
			ready := pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, isReady)
			serving = serving || ready
			if pod.Labels[appsv1.ControllerRevisionHashLabelKey] != hash && pod.DeletionTimestamp == nil && c.kubeletReady(node) {
				old = append(old, pod)
			}
		}
		if !serving {
			away++
		}
	}
	for _, pod := range old {
		ready := slices.ContainsFunc(pod.Status.Conditions, isReady)
		if ready && away >= maxAway(set, len(nodes)) {
			continue
		}
		if ready {
			away++
		}
		c.terminate(pod, 30)
	}
}

// maxAway is how many nodes may be without a pod during a rollout.
func maxAway(set *appsv1.DaemonSet, nodes int) int {
	if update := set.Spec.UpdateStrategy.RollingUpdate; update != nil && update.MaxUnavailable != nil {
		if n, err := intstr.GetScaledValueFromIntOrPercent(update.MaxUnavailable, nodes, true); err == nil {
			return max(n, 1)
		}
	}
	return 1
}

// countDaemons keeps the status of the daemon sets: whoever waits for a rollout reads it.
func (c *Controller) countDaemons() {
	sets, _ := c.Store.List(kubeapi.DaemonSets, "")
	nodes := int32(len(c.machineNodes()))
	for _, obj := range sets {
		set := obj.(*appsv1.DaemonSet) //nolint:forcetypeassert // The store holds daemon sets under it.
		status := appsv1.DaemonSetStatus{ObservedGeneration: set.Generation, DesiredNumberScheduled: nodes}
		for _, pod := range ownedPods(c.pods(), set) {
			if pod.DeletionTimestamp != nil {
				continue
			}
			status.CurrentNumberScheduled++
			if slices.ContainsFunc(pod.Status.Conditions, isReady) {
				status.NumberReady++
			}
			if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == c.hashOf(set, set.Spec.Template) {
				status.UpdatedNumberScheduled++
			}
		}
		status.NumberAvailable, status.NumberUnavailable = status.NumberReady, nodes-status.NumberReady
		_, _ = c.Store.Update(kubeapi.DaemonSets, set.Namespace, set.Name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
			o.(*appsv1.DaemonSet).Status = status //nolint:forcetypeassert // As above.
			return o, nil
		})
	}
}

func ownedPods(pods []*corev1.Pod, owner metav1.Object) []*corev1.Pod {
	var owned []*corev1.Pod
	for _, pod := range pods {
		if metav1.IsControlledBy(pod, owner) {
			owned = append(owned, pod)
		}
	}
	return owned
}

func isReady(c corev1.PodCondition) bool {
	return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
}
