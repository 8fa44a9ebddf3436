// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A Node goes whose machine has left, however it calls itself, and no other of the same name.
func TestDeleteNode(t *testing.T) {
	for name, row := range map[string]struct {
		uuid    string
		deleted bool
	}{
		"of the machine":                  {"ABC", true},
		"of another machine":              {"other", false},
		"that has never told whose it is": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := nodeOf("w1", corev1.ConditionFalse)
			node.Status.NodeInfo.SystemUUID = row.uuid
			writer := &connection{clients: fake.NewClientset(node, nodeOf("w2", corev1.ConditionTrue)), guard: func(context.Context) error { return nil }}
			deleted, err := writer.DeleteNode(t.Context(), "w1", "abc")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(deleted).To(Equal(row.deleted))
			again, err := writer.DeleteNode(t.Context(), "w1", "abc")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(BeFalse())
			nodes, err := writer.Nodes(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(nodes).To(ContainElement(HaveField("Name", "w2")))
		})
	}
}
