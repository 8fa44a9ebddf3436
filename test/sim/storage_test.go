// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"ichor.maesh.dev/hub/test/sim"
)

const (
	storageReplicas    = "ichor.maesh.dev/storage-replicas"
	storageEvacuatedBy = "ichor.maesh.dev/storage-evacuated-by"
)

// annotate sets an annotation of a Node; null, written so, removes it.
func annotate(ctx context.Context, k kubernetes.Interface, node, key, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
	_, err := k.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// replicas waits until Nodes hold as many replicas as is wanted.
func replicas(ctx context.Context, g *WithT, k kubernetes.Interface, want map[string]string) {
	g.Eventually(func() map[string]string {
		list, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil
		}
		got := map[string]string{}
		for _, node := range list.Items {
			if count, ok := node.Annotations[storageReplicas]; ok {
				got[node.Name] = count
			}
		}
		return got
	}).WithContext(ctx).Should(Equal(want))
}

// Replicas leave a Node that is evacuated for those that have storage, one by one, and stay where no other takes them.
func TestStorageMovesReplicasOffEvacuatedNodes(t *testing.T) {
	g, ctx := NewWithT(t), within(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 3})
	k := kubeClient(t, s.Cluster("a"))
	for node, count := range map[string]string{"worker-1": `"3"`, "worker-2": `"0"`, "worker-3": `"1"`} {
		g.Expect(annotate(ctx, k, node, storageReplicas, count)).To(Succeed())
	}
	g.Expect(annotate(ctx, k, "worker-1", storageEvacuatedBy, `"default/op-1"`)).To(Succeed())
	replicas(ctx, g, k, map[string]string{"worker-1": "0", "worker-2": "2", "worker-3": "2"})

	g.Expect(annotate(ctx, k, "worker-3", storageEvacuatedBy, `"default/op-1"`)).To(Succeed())
	replicas(ctx, g, k, map[string]string{"worker-1": "0", "worker-2": "4", "worker-3": "0"})
	g.Expect(annotate(ctx, k, "worker-2", storageEvacuatedBy, `"default/op-1"`)).To(Succeed())
	g.Consistently(func() error { return annotate(ctx, k, "worker-2", "x", `"y"`) }, "200ms").Should(Succeed())
	replicas(ctx, g, k, map[string]string{"worker-1": "0", "worker-2": "4", "worker-3": "0"})

	g.Expect(annotate(ctx, k, "worker-1", storageEvacuatedBy, "null")).To(Succeed())
	replicas(ctx, g, k, map[string]string{"worker-1": "4", "worker-2": "0", "worker-3": "0"})
}
