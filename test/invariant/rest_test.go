// SPDX-License-Identifier: Apache-2.0

package invariant_test

import (
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/invariant"
)

// ruin is a cluster at rest, of which a test breaks one thing.
type ruin struct {
	cluster   *v1alpha1.TalosCluster
	lease     *coordinationv1.Lease
	operation *v1alpha1.TalosOperation
	node      *corev1.Node
	record    *corev1.ConfigMap
}

func atRest() *ruin {
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}}
	}
	r := &ruin{
		cluster:   &v1alpha1.TalosCluster{ObjectMeta: named("default", "c")},
		lease:     &coordinationv1.Lease{ObjectMeta: named("default", "c-ichor-lock")},
		operation: &v1alpha1.TalosOperation{ObjectMeta: named("default", "up")},
		node:      &corev1.Node{ObjectMeta: named("", "w-1")},
		record: &corev1.ConfigMap{
			ObjectMeta: named("kube-system", "ichor-hub"), Data: map[string]string{"ownerID": "me", "operationID": "id", "sequence": "4"},
		},
	}
	r.cluster.Annotations[v1alpha1.OwnerIDAnnotation] = "me"
	r.operation.Spec = v1alpha1.TalosOperationSpec{ClusterName: "c", Kind: v1alpha1.TalosKind}
	r.operation.Status.OperationID, r.operation.Status.Sequence, r.operation.Status.CompletionTime = "id", 4, metav1.Now()
	return r
}

func TestLeftovers(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*ruin)
		wrong string
	}{
		"nothing":                    {func(*ruin) {}, ""},
		"a lock":                     {func(r *ruin) { r.lease.Spec.HolderIdentity = ptr.To("ichor-controller/op/default/up") }, "the lock is held by TalosOperation \"default/up\""},
		"a block of moves":           {func(r *ruin) { r.cluster.Annotations[v1alpha1.BlockMoveAnnotation] = "talosoperation/up" }, "clusterctl.cluster.x-k8s.io/block-move"},
		"an unsafe window":           {func(r *ruin) { r.cluster.Annotations[v1alpha1.UnsafeAnnotation] = "up" }, "ichor.maesh.dev/unsafe"},
		"a cordon":                   {func(r *ruin) { r.node.Annotations[v1alpha1.CordonedByAnnotation] = "default/up" }, "Node w-1 keeps the cordon of operation default/up"},
		"a cordon of somebody else":  {func(r *ruin) { r.node.Spec.Unschedulable = true }, ""},
		"another owner":              {func(r *ruin) { r.record.Data["ownerID"] = "you" }, "names owner \"you\", and the TalosCluster \"me\""},
		"an older status":            {func(r *ruin) { r.operation.Status.Sequence = 3 }, "sequence 4, and operation up only 3"},
		"a record that lags":         {func(r *ruin) { r.record.Data["sequence"] = "3" }, "operation up is over and has sequence 4, and the record 3"},
		"an operation that goes on":  {func(r *ruin) { r.operation.Status.Sequence, r.operation.Status.CompletionTime = 5, metav1.Time{} }, ""},
		"an operation of another":    {func(r *ruin) { r.operation.Spec.ClusterName, r.operation.Status.Sequence = "d", 9 }, ""},
		"a record that says nothing": {func(r *ruin) { r.record.Data["sequence"] = "" }, "sequence \"\""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := atRest()
			test.spoil(r)
			found, err := invariant.Rest{
				Management: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(r.cluster, r.lease, r.operation).Build(),
				Target:     kubefake.NewClientset(r.node, r.record),
				Cluster:    client.ObjectKey{Namespace: "default", Name: "c"},
			}.Leftovers(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			if test.wrong == "" {
				g.Expect(found).To(BeEmpty())
				return
			}
			g.Expect(found).To(ConsistOf(ContainSubstring(test.wrong)))
		})
	}
}
