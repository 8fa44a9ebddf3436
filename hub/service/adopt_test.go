// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// made is a Cluster as Cluster API's providers make it, and the Secrets that they keep.
func made(t *testing.T, expires time.Time) []client.Object {
	t.Helper()
	kubeconfig, talosconfig := files(t, "https://10.0.0.10:6443", expires)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1", UID: "capi"}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "MetalCluster", Name: "c1"}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c1"}
	return []client.Object{
		cluster,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-talosconfig"}, Data: map[string][]byte{"talosconfig": talosconfig}},
	}
}

var wanted = Import{Name: "c1", Namespace: "default"}

func TestAdopt(t *testing.T) {
	w := newWorld(t, made(t, now.Add(time.Hour))...)
	adopted, err := w.Adopt(w.ctx, wanted)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.writes).To(Equal([]string{"create TalosCluster"}), "the rest is its providers'")
	w.g.Expect(adopted.Spec).To(Equal(v1alpha1.TalosClusterSpec{}), "versions and endpoint are theirs as well")
	w.g.Expect(adopted.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"))
	w.g.Expect(adopted.OwnerReferences).To(Equal([]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: "capi"}}))
	w.g.Expect(adopted.Annotations["ichor.maesh.dev/owner-id"]).NotTo(BeEmpty())

	again, err := w.Adopt(w.ctx, Import{Name: "c1", Namespace: "default", TalosContext: "x"})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(again.Annotations).To(Equal(adopted.Annotations), "the owner ID is made once")
	w.g.Expect(again.TalosconfigContext()).To(Equal("x"))
}

func TestAdoptRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"no Cluster":             {nil, "there is no Cluster default/c1; bring a cluster that Cluster API did not make with --from-kubeconfig and --from-talosconfig"},
		"a Cluster of the hub's": {[]client.Object{ownCluster()}, "no provider of Cluster API manages Cluster default/c1; bring new credentials"},
		"no kubeconfig":          {made(t, now.Add(time.Hour))[:1], `c1-kubeconfig`},
		"no talosconfig":         {made(t, now.Add(time.Hour))[:2], `c1-talosconfig`},
		"expired credentials":    {made(t, now.Add(-time.Hour)), "kubeconfig is invalid: the client certificate of user \"x\" ended on 2026-01-02"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.objects...)
			_, err := w.Adopt(w.ctx, wanted)
			w.g.Expect(err).To(MatchError(ContainSubstring(row.want)))
			w.g.Expect(w.writes).To(BeEmpty())
		})
	}
}

func ownCluster() client.Object {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "ichor.maesh.dev", Kind: "TalosCluster", Name: "c1"}
	return cluster
}
