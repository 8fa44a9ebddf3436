// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// syncStrangers does what faults order somebody else to do to Nodes.
func (c *Controller) syncStrangers() {
	for _, m := range c.Machines {
		name := nodeName(m)
		f, wanted := c.Faults.Stands(fault.ForeignCordon, fault.Site{Cluster: c.Cluster, Node: m.Name})
		annotation, done := c.foreign[name]
		switch {
		case wanted && !done:
			c.foreign[name] = f.Params[fault.ParamAnnotation]
			c.cordon(name, c.foreign[name])
		case !wanted && done:
			delete(c.foreign, name)
			c.uncordon(name, annotation)
		}
	}
	c.syncForeignNode()
}

// cordon cordons a Node as an administrator would: one that is cordoned already needs nothing.
func (c *Controller) cordon(name, annotation string) {
	c.changeNode(name, func(n *corev1.Node) {
		if n.Spec.Unschedulable {
			return
		}
		n.Spec.Unschedulable = true
		if key, value, ok := strings.Cut(annotation, "="); ok {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
		}
		c.Journal.Event(c.Cluster, name, "cordoned", "by somebody else")
	})
}

func (c *Controller) uncordon(name, annotation string) {
	c.changeNode(name, func(n *corev1.Node) {
		key, _, _ := strings.Cut(annotation, "=")
		delete(n.Annotations, key)
		n.Spec.Unschedulable = false
		c.Journal.Event(c.Cluster, name, "uncordoned", "by somebody else")
	})
}

// foreignOS marks the Node that is no Talos machine.
const foreignOS = "Ubuntu 24.04.3 LTS"

func isForeign(node *corev1.Node) bool { return node.Status.NodeInfo.OSImage == foreignOS }

// syncForeignNode makes and removes the Node that is no Talos machine.
func (c *Controller) syncForeignNode() {
	f, wanted := c.Faults.Stands(fault.ForeignNode, fault.Site{Cluster: c.Cluster})
	nodes, _ := c.Store.List(kubeapi.Nodes, "")
	for _, obj := range nodes {
		node := obj.(*corev1.Node) //nolint:forcetypeassert // The store holds nodes under Nodes.
		if !isForeign(node) {
			continue
		}
		if !wanted {
			_, _ = c.Store.Delete(kubeapi.Nodes, "", node.Name, false)
		}
		return
	}
	if wanted {
		c.create(kubeapi.Nodes, c.foreignNode(f.Params[fault.ParamName]))
	}
}

func (c *Controller) foreignNode(name string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostnameLabel: name, "kubernetes.io/os": "linux"}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.2"}, {Type: corev1.NodeHostName, Address: name}},
			NodeInfo:  corev1.NodeSystemInfo{OSImage: foreignOS, KubeletVersion: c.KubernetesVersion, OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
	c.setReady(n, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	return n
}

// syncBudgets is the controller of disruption budgets.
func (c *Controller) syncBudgets() {
	budgets, _ := c.Store.List(kubeapi.PodDisruptionBudgets, "")
	for _, obj := range budgets {
		budget := obj.(*policyv1.PodDisruptionBudget) //nolint:forcetypeassert // The store holds budgets under it.
		status, err := kubeapi.BudgetStatus(c.Store, budget)
		if err != nil || equality.Semantic.DeepEqual(status, budget.Status) {
			continue
		}
		_, _ = c.Store.Update(kubeapi.PodDisruptionBudgets, budget.Namespace, budget.Name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
			o.(*policyv1.PodDisruptionBudget).Status = status //nolint:forcetypeassert // As above.
			return o, nil
		})
	}
}
