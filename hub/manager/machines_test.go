// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
)

// What is asked by the label of one cluster is found by the index, and is the same; everything else is asked as it is.
func TestMachinesOfAClusterAreFoundByIndex(t *testing.T) {
	g := NewWithT(t)
	machine := func(namespace, name, cluster string) client.Object {
		return &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{"cluster.x-k8s.io/cluster-name": cluster, "tier": name},
		}}
	}
	var asked client.ListOptions
	below := fake.NewClientBuilder().WithScheme(scheme.New()).
		WithObjects(machine("a", "one", "c1"), machine("a", "two", "c2"), machine("b", "three", "c1")).
		WithIndex(&v1alpha1.TalosMachine{}, machinesField, clusterLabel).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			asked = client.ListOptions{}
			asked.ApplyOptions(opts)
			return c.List(ctx, list, opts...)
		}}).Build()
	for name, row := range map[string]struct {
		options []client.ListOption
		field   string
		label   string
		found   []string
	}{
		"one cluster": {
			[]client.ListOption{client.InNamespace("a"), client.MatchingLabels{"cluster.x-k8s.io/cluster-name": "c1"}},
			"metadata.labels.cluster.x-k8s.io/cluster-name=c1", "", []string{"one"},
		},
		"all namespaces": {
			[]client.ListOption{client.MatchingLabels{"cluster.x-k8s.io/cluster-name": "c1"}},
			"metadata.labels.cluster.x-k8s.io/cluster-name=c1", "", []string{"one", "three"},
		},
		"more labels": {
			[]client.ListOption{client.MatchingLabels{"cluster.x-k8s.io/cluster-name": "c1", "tier": "three"}},
			"", "cluster.x-k8s.io/cluster-name=c1,tier=three", []string{"three"},
		},
		"any cluster": {[]client.ListOption{client.HasLabels{"cluster.x-k8s.io/cluster-name"}}, "", "cluster.x-k8s.io/cluster-name", []string{"one", "two", "three"}},
		"everything":  {nil, "", "", []string{"one", "two", "three"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var list v1alpha1.TalosMachineList
			g.Expect(machinesByCluster{below}.List(t.Context(), &list, row.options...)).To(Succeed())
			var names []string
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			g.Expect(names).To(ConsistOf(row.found))
			g.Expect(text(asked.FieldSelector)).To(Equal(row.field))
			g.Expect(text(asked.LabelSelector)).To(Equal(row.label))
		})
	}
	g.Expect(machinesByCluster{below}.List(t.Context(), &v1alpha1.TalosClusterList{}, client.MatchingLabels{"cluster.x-k8s.io/cluster-name": "c1"})).To(Succeed())
	g.Expect(text(asked.FieldSelector)).To(BeEmpty(), "only machines have the index")
}

// text is how a selector is written; nothing if there is none.
func text[S interface {
	comparable
	String() string
}](selector S) string {
	var none S
	if selector == none {
		return ""
	}
	return selector.String()
}
