// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"context"
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/target"
)

var key = client.ObjectKey{Namespace: "default", Name: "c1"}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}, UID: types.UID("uid-" + name)}
}

func machine(name string, role v1alpha1.MachineRole, address string, approval v1alpha1.Approval) v1alpha1.TalosMachine {
	return v1alpha1.TalosMachine{
		ObjectMeta: named("default", name),
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: "c1", Role: role, Address: address, Approval: approval},
	}
}

func builder(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	s := runtime.NewScheme()
	g := NewWithT(t)
	g.Expect(clusterv1.AddToScheme(s)).To(Succeed())
	g.Expect(v1alpha1.AddToScheme(s)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...)
}

func TestLoad(t *testing.T) {
	talosCluster := &v1alpha1.TalosCluster{ObjectMeta: named("default", "c1")}
	capi := &clusterv1.Cluster{ObjectMeta: named("default", "c1")}
	mine := machine("c1-w-1", "Worker", "10.0.1.1", "Approved")
	elsewhere := mine
	elsewhere.Namespace = "other"
	foreign := machine("c2-w-1", "Worker", "10.0.2.1", "Approved")
	foreign.Labels = map[string]string{"cluster.x-k8s.io/cluster-name": "c2"}
	mislabelled := machine("c3-w-1", "Worker", "10.0.3.1", "Approved")
	mislabelled.Spec.ClusterName = "c3"

	t.Run("in order, however they are listed", func(t *testing.T) {
		g := NewWithT(t)
		first, last := machine("c1-cp-1", "ControlPlane", "10.0.1.2", "Approved"), machine("c1-w-2", "Worker", "10.0.1.3", "Approved")
		reader := builder(t, talosCluster, capi, &mine, &first, &last).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				err := c.List(ctx, list, options...)
				if machines, ok := list.(*v1alpha1.TalosMachineList); ok {
					slices.Reverse(machines.Items)
				}
				return err
			},
		}).Build()
		facts, err := Load(t.Context(), reader, key)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(facts.Machines).To(HaveExactElements(HaveField("Name", "c1-cp-1"), HaveField("Name", "c1-w-1"), HaveField("Name", "c1-w-2")))
	})

	t.Run("everything", func(t *testing.T) {
		g := NewWithT(t)
		facts, err := Load(t.Context(), builder(t, talosCluster, capi, &mine, &elsewhere, &foreign, &mislabelled).Build(), key)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(facts.Cluster.Name).To(Equal("c1"))
		g.Expect(facts.Machines).To(HaveLen(1))
		g.Expect(facts.Machines[0].Name).To(Equal("c1-w-1"))
		g.Expect(facts.Machines[0].Namespace).To(Equal("default"))
		g.Expect(facts.Owner()).To(Equal(metav1.OwnerReference{
			APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: "uid-c1",
		}), "it does not control: forgetting a target deletes nothing of it")
	})
	t.Run("no Cluster", func(t *testing.T) {
		g := NewWithT(t)
		facts, err := Load(t.Context(), builder(t, talosCluster).Build(), key)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(facts.CAPICluster).To(BeNil())
		g.Expect(facts.Owner()).To(Equal(metav1.OwnerReference{
			APIVersion: "ichor.maesh.dev/v1alpha1", Kind: "TalosCluster", Name: "c1", UID: "uid-c1",
		}))
	})
	t.Run("no TalosCluster", func(t *testing.T) {
		g := NewWithT(t)
		facts, err := Load(t.Context(), builder(t, capi, &mine).Build(), key)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(facts).To(BeZero())
	})
	broken := errors.New("no answer")
	for what, funcs := range map[string]interceptor.Funcs{
		"reading TalosCluster default/c1": {Get: failsFor[*v1alpha1.TalosCluster](broken)},
		"reading Cluster default/c1":      {Get: failsFor[*clusterv1.Cluster](broken)},
		"listing TalosMachines of cluster default/c1": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return broken
		}},
	} {
		t.Run("fails "+what, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Load(t.Context(), builder(t, talosCluster, capi).WithInterceptorFuncs(funcs).Build(), key)
			g.Expect(err).To(MatchError(broken))
			g.Expect(err).To(MatchError(HavePrefix(what)))
		})
	}
}

func failsFor[T client.Object](err error) func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
	return func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if _, ok := object.(T); ok {
			return err
		}
		return c.Get(ctx, key, object, options...)
	}
}

func TestFacts(t *testing.T) {
	g := NewWithT(t)
	facts := Facts{
		Cluster: &v1alpha1.TalosCluster{ObjectMeta: named("default", "c1")},
		Machines: []v1alpha1.TalosMachine{
			machine("c1-cp-1", "ControlPlane", "10.0.0.1", "Approved"),
			machine("c1-cp-2", "ControlPlane", "", "Approved"),
			machine("c1-w-1", "Worker", "10.0.1.1", "Pending"),
			machine("c1-w-2", "Worker", "10.0.1.2", ""),
		},
	}
	joining := machine("c1-cp-3", "ControlPlane", "10.0.0.3", "Pending")
	joining.Spec.Join = &v1alpha1.JoinSpec{}
	facts.Machines = append(facts.Machines, joining) // No way leads over a machine that has yet to join.
	g.Expect(facts.Machine("c1-w-1")).To(BeIdenticalTo(&facts.Machines[2]))
	g.Expect(facts.Machine("w-1")).To(BeNil())
	g.Expect(facts.Approved()).To(ConsistOf(&facts.Machines[0], &facts.Machines[1]))
	g.Expect(facts.Target()).To(Equal(target.Target{
		NamespacedName: key, KubeconfigSecret: "c1-kubeconfig", TalosconfigSecret: "c1-talosconfig", ControlPlanes: []string{"10.0.0.1"},
	}))
	facts.Cluster.Spec.Access = &v1alpha1.AccessSpec{KubeconfigSecretName: "k", TalosconfigSecretName: "t", TalosconfigContext: "admin@prod"}
	g.Expect(Target(facts.Cluster)).To(Equal(target.Target{
		NamespacedName: key, KubeconfigSecret: "k", TalosconfigSecret: "t", TalosconfigContext: "admin@prod",
	}))
}

func TestDeclared(t *testing.T) {
	g := NewWithT(t)
	cluster := &v1alpha1.TalosCluster{Spec: v1alpha1.TalosClusterSpec{TalosVersion: "v1.14.1", SchematicID: "s", KubernetesVersion: "v1.35.2"}}
	want := v1alpha1.OperationTarget{
		TalosVersion: "v1.14.1", SchematicID: "s", KubernetesVersion: "v1.35.2", MachineConfigHash: cluster.MachineConfigHash(),
	}
	g.Expect(Declared(cluster)).To(Equal(want))
	cluster.Spec.CNI = &v1alpha1.CNISpec{CiliumVersion: "1.18.2", KubeProxy: "Replaced"}
	want.CiliumVersion, want.KubeProxy = "1.18.2", "Replaced"
	g.Expect(Declared(cluster)).To(Equal(want))
}
