// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var snapshotTaken = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func lease(name string, renewed time.Duration) *coordinationv1.Lease {
	at := metav1.NewMicroTime(snapshotTaken.Add(renewed))
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
}

func nodeOf(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func attachment(name, to string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{NodeName: to}}
}

// What came back with a snapshot and stands for nothing goes; what lives stays, and repeating it is harmless.
func TestRemoveStale(t *testing.T) {
	g := NewWithT(t)
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "c-ichor-lock", CreationTimestamp: metav1.NewTime(snapshotTaken.Add(-time.Hour)),
	}}
	clients := fake.NewClientset(
		lease("scheduler", -time.Second), lease("controller-manager", 10*time.Minute), held,
		nodeOf("gone", corev1.ConditionUnknown), nodeOf("back", corev1.ConditionTrue), nodeOf("w1", corev1.ConditionUnknown),
		attachment("a", "gone"), attachment("b", "w1"), attachment("c", "never-there"),
	)
	writer := &connection{clients: clients, guard: func(context.Context) error { return nil }}
	stale := Stale{Nodes: []string{"gone", "back", "never-there"}, RenewedBefore: snapshotTaken}
	g.Expect(writer.RemoveStale(t.Context(), stale)).To(Equal(Removed{Nodes: 1, Leases: 2, Attachments: 2}))
	g.Expect(writer.RemoveStale(t.Context(), stale)).To(Equal(Removed{}))
	nodes, err := writer.Nodes(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(nodes).To(ConsistOf(HaveField("Name", "back"), HaveField("Name", "w1")))
	leases, err := clients.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(leases.Items).To(ConsistOf(HaveField("Name", "controller-manager")))
	g.Expect(Removed{Nodes: 1, Leases: 2, Attachments: 2}.String()).To(Equal("1 stale Nodes, 2 stale Leases, 2 stale VolumeAttachments"))
	g.Expect(Removed{}.String()).To(BeEmpty())
}

// A revision is what the list says, and nothing else is one.
func TestRevision(t *testing.T) {
	for text, want := range map[string]int64{"1234": 1234, "": 0, "abc": 0} {
		g := NewWithT(t)
		clients := fake.NewClientset()
		clients.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: text}}, nil
		})
		got, err := (&connection{clients: clients}).Revision(t.Context())
		g.Expect(got).To(Equal(want))
		g.Expect(err == nil).To(Equal(want != 0), text)
	}
	clients := fake.NewClientset()
	clients.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no leader") })
	_, err := (&connection{clients: clients}).Revision(t.Context())
	NewWithT(t).Expect(err).To(MatchError("reading the revision of etcd: no leader"))
}
