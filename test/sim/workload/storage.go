// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"ichor.maesh.dev/hub/test/sim/kubeapi"
)

// The annotations by which a storage operator and the hub speak to each other. A Node takes part from when it has the first.
const (
	replicasAnnotation    = "ichor.maesh.dev/storage-replicas"
	evacuatedByAnnotation = "ichor.maesh.dev/storage-evacuated-by"
)

// syncStorage is a storage operator: it moves replicas off Nodes that are evacuated, one after the other, to those that take them. Without such
// a Node they stay where they are.
func (c *Controller) syncStorage() {
	for _, node := range c.storageNodes() {
		if evacuated(node) && replicasOn(node) > 0 && c.roomiest(node.Name) != "" {
			c.after("replica", node.UID, c.Timings.PodStart, func() { c.moveReplica(node.Name) })
		}
	}
}

// moveReplica moves one, if it is still to be moved.
func (c *Controller) moveReplica(from string) {
	obj, err := c.Store.Get(kubeapi.Nodes, "", from)
	if err != nil {
		return
	}
	node := obj.(*corev1.Node) //nolint:forcetypeassert // The store holds nodes under Nodes.
	to := c.roomiest(from)
	if !evacuated(node) || replicasOn(node) == 0 || to == "" {
		return
	}
	c.changeNode(from, func(n *corev1.Node) { setReplicas(n, replicasOn(n)-1) })
	c.changeNode(to, func(n *corev1.Node) { setReplicas(n, replicasOn(n)+1) })
}

// roomiest is the Node with the fewest replicas that takes one more, or nothing.
func (c *Controller) roomiest(except string) string {
	best, least := "", 0
	for _, node := range c.storageNodes() {
		ready := readyCondition(node.DeepCopy()).Status == corev1.ConditionTrue
		if count := replicasOn(node); node.Name != except && ready && !evacuated(node) && (best == "" || count < least) {
			best, least = node.Name, count
		}
	}
	return best
}

func (c *Controller) storageNodes() []*corev1.Node {
	list, _ := c.Store.List(kubeapi.Nodes, "")
	var nodes []*corev1.Node
	for _, obj := range list {
		if _, ok := obj.GetAnnotations()[replicasAnnotation]; ok {
			nodes = append(nodes, obj.(*corev1.Node)) //nolint:forcetypeassert // The store holds nodes under Nodes.
		}
	}
	return nodes
}

func evacuated(node *corev1.Node) bool { return node.Annotations[evacuatedByAnnotation] != "" }

// replicasOn is how many replicas a Node holds; what is no number is none.
func replicasOn(node *corev1.Node) int {
	count, _ := strconv.Atoi(node.Annotations[replicasAnnotation])
	return count
}

func setReplicas(node *corev1.Node, count int) {
	node.Annotations[replicasAnnotation] = strconv.Itoa(count)
}
