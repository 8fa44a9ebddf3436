// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/machine"
)

const (
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	hostnameLabel     = "kubernetes.io/hostname"
)

// syncNode is kubelet and node controller for one machine: a kubelet that is ready reports everything, one that is not
// leaves its node NotReady, and after a while Unknown.
func (c *Controller) syncNode(m *machine.Machine) {
	state, name := m.State(), nodeName(m)
	obj, err := c.Store.Get(kubeapi.Nodes, "", name)
	if err != nil {
		if state.KubeletReady {
			_, _ = c.asKubelet(name).Create(kubeapi.Nodes, c.newNode(m, state), false)
		}
		return
	}
	uid := obj.GetUID()
	switch {
	case state.KubeletReady && !c.admitted(m, name):
		c.changeNode(name, func(n *corev1.Node) {
			if readyCondition(n).Status != corev1.ConditionUnknown {
				c.awaitReport(name, uid)
			}
		})
	case state.KubeletReady:
		c.cancel("silence", uid)
		changeNodeIn(c.asKubelet(name), name, func(n *corev1.Node) { c.report(n, m, state) })
	default:
		c.changeNode(name, func(n *corev1.Node) { c.leave(n, uid) })
	}
}

// syncAbandoned is the node controller for Nodes of which no kubelet tells any more, such as those of a name that a machine had for a
// while: they become NotReady, and once that has lasted, or the Node is deleted, their pods go, so that others take their place.
func (c *Controller) syncAbandoned() {
	list, _ := c.Store.List(kubeapi.Nodes, "")
	nodes := map[string]*corev1.Node{}
	for _, obj := range list {
		node := obj.(*corev1.Node) //nolint:forcetypeassert // The store holds nodes under Nodes.
		nodes[node.Name] = node
		if c.machine(node.Name) == nil && !isForeign(node) {
			c.changeNode(node.Name, func(n *corev1.Node) { c.leave(n, n.UID) })
		}
	}
	for _, pod := range c.pods() {
		if name := pod.Spec.NodeName; name != "" && c.machine(name) == nil && silent(nodes[name]) {
			c.remove(pod)
		}
	}
}

// silent says whether nobody has told of a Node for long, or it is not there.
func silent(node *corev1.Node) bool {
	return node == nil || readyCondition(node.DeepCopy()).Status == corev1.ConditionUnknown
}

func (c *Controller) changeNode(name string, change func(*corev1.Node)) {
	changeNodeIn(c.Store, name, change)
}

func changeNodeIn(store Store, name string, change func(*corev1.Node)) {
	_, _ = store.Update(kubeapi.Nodes, "", name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
		change(o.(*corev1.Node)) //nolint:forcetypeassert // The store holds nodes under Nodes.
		return o, nil
	})
}

// leave marks a node whose kubelet went away, and begins to count the silence.
func (c *Controller) leave(n *corev1.Node, uid types.UID) {
	if readyCondition(n).Status != corev1.ConditionTrue {
		return
	}
	c.setReady(n, corev1.ConditionFalse, "KubeletNotReady", "node is shutting down")
	c.awaitReport(n.Name, uid)
}

// awaitReport counts the silence of a kubelet that says nothing more, or is not let in.
func (c *Controller) awaitReport(name string, uid types.UID) {
	c.after("silence", uid, c.Timings.NodeMonitorGrace, func() {
		c.changeNode(name, func(n *corev1.Node) {
			c.setReady(n, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
		})
	})
}

func (c *Controller) newNode(m *machine.Machine, state machine.State) *corev1.Node {
	name := nodeName(m)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			hostnameLabel:      name,
			"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		},
	}}
	if m.ControlPlane {
		n.Labels[controlPlaneLabel] = ""
		if c.hasWorkers() {
			n.Spec.Taints = []corev1.Taint{{Key: controlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	c.report(n, m, state)
	return n
}

func (c *Controller) hasWorkers() bool {
	return slices.ContainsFunc(c.Machines, func(m *machine.Machine) bool { return !m.ControlPlane })
}

// report fills in what a kubelet says about its node.
func (c *Controller) report(n *corev1.Node, m *machine.Machine, state machine.State) {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	n.Status.Capacity, n.Status.Allocatable = resources, resources
	id, name := m.Told()
	n.Status.Addresses = nil
	for _, address := range m.Addresses() {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	n.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: m.MachineID, SystemUUID: id, BootID: state.BootID,
		KernelVersion: "6.18.5-talos", OSImage: fmt.Sprintf("Talos (%s)", state.Running.Version),
		ContainerRuntimeVersion: "containerd://2.1.6", KubeletVersion: m.Components().Kubelet.Version,
		OperatingSystem: "linux", Architecture: "amd64",
	}
	c.setReady(n, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
}

func (c *Controller) setReady(n *corev1.Node, status corev1.ConditionStatus, reason, message string) {
	ready := readyCondition(n)
	if ready.Status == status {
		return
	}
	now := c.now()
	*ready = corev1.NodeCondition{
		Type: corev1.NodeReady, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

// readyCondition returns the node's Ready condition to change in place, and makes it if need be.
func readyCondition(n *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady})
		i = len(n.Status.Conditions) - 1
	}
	return &n.Status.Conditions[i]
}
