// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/machine"
)

// syncStaticPods shows the static pods of the machines as their kubelets do: a mirror pod is made anew when its pod was.
func (c *Controller) syncStaticPods() {
	for _, m := range c.Machines {
		state, name := m.State(), nodeName(m)
		node, err := c.Store.Get(kubeapi.Nodes, "", name)
		if err != nil || !m.ControlPlane || !state.KubeletReady {
			continue
		}
		wanted := map[string]bool{}
		for _, pod := range m.Components().Pods {
			wanted[pod.Name+"-"+name] = true
			c.mirror(m, node, pod)
		}
		for _, pod := range c.pods() {
			if isMirror(pod) && pod.Spec.NodeName == name && !wanted[pod.Name] {
				c.remove(pod)
			}
		}
	}
}

func isMirror(pod *corev1.Pod) bool { return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" }

// mirror brings one mirror pod in line with its static pod.
func (c *Controller) mirror(m *machine.Machine, node kubeapi.Object, pod machine.Pod) {
	name := pod.Name + "-" + node.GetName()
	version := strconv.Itoa(pod.ConfigVersion)
	if obj, err := c.Store.Get(kubeapi.Pods, metav1.NamespaceSystem, name); err == nil {
		old := obj.(*corev1.Pod) //nolint:forcetypeassert // The store holds pods under Pods.
		same := old.Annotations[constants.AnnotationStaticPodConfigVersion] == version &&
			old.Annotations[constants.AnnotationStaticPodSecretsVersion] == strconv.Itoa(pod.SecretsVersion)
		if same && old.Spec.Containers[0].Image == pod.Image {
			c.reportPod(old, func(p *corev1.Pod) { c.setStatic(p, m, pod) })
			return
		}
		_, _ = c.asKubelet(node.GetName()).Delete(kubeapi.Pods, metav1.NamespaceSystem, name, false)
	}
	_, _ = c.asKubelet(node.GetName()).Create(kubeapi.Pods, c.mirrorOf(m, node, pod, version), false)
}

// mirrorOf makes the mirror pod.
func (c *Controller) mirrorOf(m *machine.Machine, node kubeapi.Object, pod machine.Pod, version string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: pod.Name + "-" + node.GetName(), OwnerReferences: ownedByNode(node),
			Labels: map[string]string{"tier": "control-plane", "k8s-app": pod.Name, "component": pod.Name},
			Annotations: map[string]string{
				corev1.MirrorPodAnnotationKey: "simulated", "kubernetes.io/config.source": "file",
				constants.AnnotationStaticPodConfigVersion:  version,
				constants.AnnotationStaticPodSecretsVersion: strconv.Itoa(pod.SecretsVersion),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: node.GetName(), HostNetwork: true, RestartPolicy: corev1.RestartPolicyAlways,
			Containers:                    []corev1.Container{{Name: pod.Name, Image: pod.Image, Command: pod.Command()}},
			TerminationGracePeriodSeconds: ptr.To[int64](30),
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, StartTime: ptr.To(c.now())},
	}
	c.setStatic(p, m, pod)
	return p
}

// ownedByNode is the only owner that a kubelet may give a pod.
func ownedByNode(node kubeapi.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.GetName(), UID: node.GetUID(), Controller: ptr.To(true)}}
}

// setStatic fills in what the kubelet says about a static pod.
func (c *Controller) setStatic(p *corev1.Pod, m *machine.Machine, pod machine.Pod) {
	if pod.Ready || pod.Restarts > 0 {
		p.Status.Phase = corev1.PodRunning
	}
	p.Status.HostIP, p.Status.PodIP = m.Address, m.Address
	c.setRunning(p, pod.Ready, false)
	container := &p.Status.ContainerStatuses[0]
	container.RestartCount = int32(pod.Restarts)
	container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(nextSecond(pod.StartedAt))}}
	if !pod.Ready {
		container.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: pod.Reason}}
	}
}

// nextSecond is the whole second after a time. A simulated container starts within moments where a real one takes seconds: rounded down, as
// the times of files are, its start would not be later than the writing of what it has read.
func nextSecond(at time.Time) time.Time { return at.Truncate(time.Second).Add(time.Second) }
