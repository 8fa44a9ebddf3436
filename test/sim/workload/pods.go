// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// schedule binds pods without a node to the emptiest node that takes them. Without such a node they stay pending. A Node that is no
// machine has no kubelet here that would start them.
func (c *Controller) schedule() {
	load := map[string]int{}
	pods := c.pods()
	for _, pod := range pods {
		load[pod.Spec.NodeName]++
	}
	nodes, _ := c.Store.List(kubeapi.Nodes, "")
	nodes = slices.DeleteFunc(nodes, func(n kubeapi.Object) bool { return c.machine(n.GetName()) == nil })
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
		if taint.Effect == corev1.TaintEffectNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) }) {
			return false
		}
	}
	return true
}

func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" && t.Operator == corev1.TolerationOpExists || t.Key == taint.Key)
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
		case isMirror(pod):
			c.syncMirror(pod, ready)
		case pod.Status.Phase == corev1.PodPending && ready:
			c.start(pod)
		case pod.Status.Phase == corev1.PodRunning:
			c.reportRunning(pod, ready, restarted[node])
		}
	}
}

// reportRunning is the kubelet's word about a pod, or the node controller's where no kubelet speaks.
func (c *Controller) reportRunning(pod *corev1.Pod, ready, restarted bool) {
	report := c.changePod
	if ready {
		report = c.reportPod
	}
	report(pod, func(p *corev1.Pod) { c.setRunning(p, ready, restarted) })
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

// start lets a pod start, which takes longer or does not happen where that was ordered.
func (c *Controller) start(pod *corev1.Pod) {
	takes, held := c.startTime(pod, fault.Site{Cluster: c.Cluster, Node: pod.Spec.NodeName})
	if !held {
		c.after("start", pod.UID, takes, func() { c.started(pod) })
	}
}

// startTime says how long a pod takes to become ready, and whether it does not at all for now.
func (c *Controller) startTime(pod *corev1.Pod, at fault.Site) (takes time.Duration, held bool) {
	name, image := c.setOf(pod), pod.Spec.Containers[0].Image
	takes = c.Timings.PodStart
	for _, f := range c.Faults.Standing(fault.SlowRollout, at) {
		if !fault.Matches(f.Params[fault.ParamName], name) {
			continue
		}
		delay, err := time.ParseDuration(f.Params[fault.ParamDelay])
		if err != nil {
			return 0, true
		}
		takes += delay
	}
	missing := slices.ContainsFunc(c.Faults.Standing(fault.ImageMissing, at), func(f fault.Fault) bool {
		return fault.Matches(f.Params[fault.ParamImage], image)
	})
	crashes := slices.ContainsFunc(c.Faults.Standing(fault.ComponentCrash, at), func(f fault.Fault) bool {
		return fault.Matches(f.Params[fault.ParamComponent], name) && fault.Matches(f.Params[fault.ParamVersion], component.Version(image))
	})
	return takes, missing || crashes
}

// syncMirror lets a static pod be as ready as its node; what it does itself is the machine's to say.
func (c *Controller) syncMirror(pod *corev1.Pod, ready bool) {
	if !ready {
		c.changePod(pod, func(p *corev1.Pod) { c.setRunning(p, false, false) })
	}
}

func (c *Controller) started(pod *corev1.Pod) {
	m := c.machine(pod.Spec.NodeName)
	if m == nil || !m.State().KubeletReady {
		return
	}
	c.reportPod(pod, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.StartTime = ptr.To(c.now())
		p.Status.HostIP = m.Address
		p.Status.PodIP = p.Status.HostIP
		c.setRunning(p, true, false)
	})
	c.tellProxy(pod, m.Name)
}

// tellProxy lets the journal know of another version of kube-proxy on a node.
func (c *Controller) tellProxy(pod *corev1.Pod, node string) {
	if c.setOf(pod) != component.Proxy {
		return
	}
	version := component.Version(pod.Spec.Containers[0].Image)
	if was, known := c.proxies[node]; known && was != version {
		c.Journal.Event(c.Cluster, node, "component", component.Proxy+" "+version)
	}
	c.proxies[node] = version
}

// knowProxies begins with what runs.
func (c *Controller) knowProxies() {
	for _, pod := range c.pods() {
		if m := c.machine(pod.Spec.NodeName); m != nil && pod.Status.Phase == corev1.PodRunning {
			c.tellProxy(pod, m.Name)
		}
	}
}

func (c *Controller) setRunning(p *corev1.Pod, ready, restarted bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	if p.Status.ContainerStatuses == nil {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: c.now()}},
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
		_, _ = c.asKubelet(pod.Spec.NodeName).Delete(kubeapi.Pods, pod.Namespace, pod.Name, false)
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
	c.terminate(pod, seconds)
}

// terminate begins the end of a pod that has a node.
func (c *Controller) terminate(pod *corev1.Pod, seconds int64) {
	if pod.DeletionTimestamp != nil {
		return
	}
	if pod.Spec.NodeName == "" && len(pod.Finalizers) == 0 {
		c.remove(pod)
		return
	}
	c.changePod(pod, func(p *corev1.Pod) {
		p.DeletionTimestamp = ptr.To(metav1.NewTime(c.now().Add(time.Duration(seconds) * time.Second)))
		p.DeletionGracePeriodSeconds = ptr.To(seconds)
	})
	c.finish(pod, c.kubeletReady(pod.Spec.NodeName))
}
