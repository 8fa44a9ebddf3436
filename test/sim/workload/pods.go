// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// schedule binds pods without a node to the emptiest node that takes them. Without such a node they stay pending.
func (c *Controller) schedule() {
	load := map[string]int{}
	pods := c.pods()
	for _, pod := range pods {
		load[pod.Spec.NodeName]++
	}
	nodes, _ := c.Store.List(kubeapi.Nodes, "")
	for _, pod := range pods {
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		if node := emptiest(nodes, load, pod); node != "" {
			load[node]++
			c.changePod(pod, func(p *corev1.Pod) { p.Spec.NodeName = node })
		}
	}
}

func emptiest(nodes []kubeapi.Object, load map[string]int, pod *corev1.Pod) string {
	best := ""
	for _, obj := range nodes {
		node := obj.(*corev1.Node) //nolint:forcetypeassert // The store holds nodes under Nodes.
		if takes(node, pod) && (best == "" || load[node.Name] < load[best]) {
			best = node.Name
		}
	}
	return best
}

func takes(node *corev1.Node, pod *corev1.Pod) bool {
	if node.Spec.Unschedulable || readyCondition(node.DeepCopy()).Status != corev1.ConditionTrue {
		return false
	}
	for _, taint := range node.Spec.Taints {
		tolerated := taint.Key == controlPlaneLabel && pod.Labels[appLabel] == coreDNS
		if taint.Effect == corev1.TaintEffectNoSchedule && !tolerated {
			return false
		}
	}
	return true
}

// syncPods is the kubelets' work on the pods of their nodes.
func (c *Controller) syncPods() {
	restarted := c.restartedNodes()
	for _, pod := range c.pods() {
		node := pod.Spec.NodeName
		ready := node != "" && c.kubeletReady(node)
		switch {
		case node == "":
		case pod.DeletionTimestamp != nil:
			c.finish(pod, ready)
		case pod.Status.Phase == corev1.PodPending && ready:
			c.after("start", pod.UID, c.Timings.PodStart, func() { c.started(pod) })
		case pod.Status.Phase == corev1.PodRunning:
			c.changePod(pod, func(p *corev1.Pod) { c.setRunning(p, ready, restarted[node]) })
		}
	}
}

// restartedNodes are the nodes that have booted since their pods last started.
func (c *Controller) restartedNodes() map[string]bool {
	restarted := map[string]bool{}
	for _, m := range c.Machines {
		state, name := m.State(), nodeName(m)
		if !state.KubeletReady || c.boots[name] == state.BootID {
			continue
		}
		restarted[name] = c.boots[name] != ""
		c.boots[name] = state.BootID
	}
	return restarted
}

func (c *Controller) started(pod *corev1.Pod) {
	m := c.machine(pod.Spec.NodeName)
	if m == nil || !m.State().KubeletReady {
		return
	}
	c.changePod(pod, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.StartTime = ptr.To(c.now())
		p.Status.HostIP = m.Address
		p.Status.PodIP = p.Status.HostIP
		c.setRunning(p, true, false)
	})
}

func (c *Controller) setRunning(p *corev1.Pod, ready, restarted bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	if p.Status.ContainerStatuses == nil {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image,
		}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}}
	}
	container, condition := &p.Status.ContainerStatuses[0], &p.Status.Conditions[0]
	container.Ready = ready
	if restarted {
		container.RestartCount++
	}
	if condition.Status != status {
		condition.Status, condition.LastTransitionTime = status, c.now()
	}
}

// finish lets a terminating pod end, which takes its kubelet. A pod that never had a node ends at once.
func (c *Controller) finish(pod *corev1.Pod, ready bool) {
	_, stuck := c.Faults.Stands(fault.PodStuck, fault.Site{Cluster: c.Cluster, Node: pod.Spec.NodeName})
	if ready && !stuck {
		c.after("end", pod.UID, c.Timings.PodTermination, func() { c.remove(pod) })
	}
}

func (c *Controller) remove(pod *corev1.Pod) {
	current, err := c.Store.Get(kubeapi.Pods, pod.Namespace, pod.Name)
	if err == nil && current.GetUID() == pod.UID && len(current.GetFinalizers()) == 0 {
		_, _ = c.Store.Delete(kubeapi.Pods, pod.Namespace, pod.Name, false)
	}
}

// DeletePod begins the end of a pod: with a grace of zero, or without a node, it is gone at once.
func (c *Controller) DeletePod(obj kubeapi.Object, grace *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := obj.(*corev1.Pod) //nolint:forcetypeassert // The API calls it for pods only.
	seconds := ptr.Deref(grace, ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30))
	if len(pod.Finalizers) == 0 && (seconds == 0 || pod.Spec.NodeName == "") {
		c.remove(pod)
		return
	}
	if pod.DeletionTimestamp != nil {
		return
	}
	c.changePod(pod, func(p *corev1.Pod) {
		p.DeletionTimestamp = ptr.To(metav1.NewTime(c.now().Add(time.Duration(seconds) * time.Second)))
		p.DeletionGracePeriodSeconds = ptr.To(seconds)
	})
	c.finish(pod, c.kubeletReady(pod.Spec.NodeName))
}
