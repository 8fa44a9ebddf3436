// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

func TestFilter(t *testing.T) {
	const none = "-"
	for name, row := range map[string]struct {
		filter, talos, cluster string // The labels; none is an object that has none.
		want                   bool
	}{
		"no filter":                          {"", "b", "b", true},
		"ours by its TalosCluster":           {"a", "a", none, true},
		"ours by its Cluster":                {"a", none, "a", true},
		"ours by a Cluster that is not ours": {"a", "", "a", true},
		"ours, whatever its Cluster says":    {"a", "a", "b", true},
		"another's by its TalosCluster":      {"a", "b", "a", false},
		"another's by its Cluster":           {"a", none, "b", false},
		"of nobody who said so":              {"a", none, none, false},
		"a Cluster that nobody labelled":     {"a", "", none, false},
		"gone":                               {"a", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := runtime.NewScheme()
			g.Expect(clusterv1.AddToScheme(s)).To(Succeed())
			g.Expect(v1alpha1.AddToScheme(s)).To(Succeed())
			build := fake.NewClientBuilder().WithScheme(s)
			for label, object := range map[*string]client.Object{&row.talos: &v1alpha1.TalosCluster{}, &row.cluster: &clusterv1.Cluster{}} {
				if *label == "" {
					continue
				}
				object.SetNamespace("default")
				object.SetName("c1")
				if *label != none {
					object.SetLabels(map[string]string{"cluster.x-k8s.io/watch-filter": *label})
				}
				build.WithObjects(object)
			}
			filter := &Filter{Reader: build.Build(), Value: row.filter}
			watched, err := filter.Watches(t.Context(), client.ObjectKey{Namespace: "default", Name: "c1"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(watched).To(Equal(row.want))
			clears, err := filter.Clears(t.Context(), filter.Reader, client.ObjectKey{Namespace: "default", Name: "c1"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(clears).To(Equal(row.want || row.talos == ""), "what is left where no hub manages the cluster is everybody's to take back")
		})
	}
	watched, err := (*Filter)(nil).Watches(t.Context(), client.ObjectKey{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(watched).To(BeTrue())
}

func TestOptedOut(t *testing.T) {
	g := NewWithT(t)
	g.Expect(OptedOut(nil)).To(BeFalse())
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"x": ""}}}
	g.Expect(OptedOut(cluster)).To(BeFalse())
	cluster.Annotations["ichor.maesh.dev/opt-out"] = "false"
	g.Expect(OptedOut(cluster)).To(BeTrue(), "whatever its value, as with Cluster API's own")
}
