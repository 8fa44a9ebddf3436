// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func ref(group, kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: name}
}

func TestAdopted(t *testing.T) {
	for name, row := range map[string]struct {
		spec clusterv1.ClusterSpec
		want bool
	}{
		"the hub's own":              {clusterv1.ClusterSpec{InfrastructureRef: ref("ichor.maesh.dev", "TalosCluster", "c1")}, false},
		"nobody's":                   {clusterv1.ClusterSpec{}, false},
		"another's TalosCluster":     {clusterv1.ClusterSpec{InfrastructureRef: ref("ichor.maesh.dev", "TalosCluster", "c2")}, true},
		"an infrastructure provider": {clusterv1.ClusterSpec{InfrastructureRef: ref("infrastructure.cluster.x-k8s.io", "MetalCluster", "c1")}, true},
		"a control plane provider on the hub's infrastructure": {clusterv1.ClusterSpec{
			InfrastructureRef: ref("ichor.maesh.dev", "TalosCluster", "c1"), ControlPlaneRef: ref("controlplane.cluster.x-k8s.io", "TalosControlPlane", "c1"),
		}, true},
		"a topology": {clusterv1.ClusterSpec{Topology: clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "big"}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: row.spec}
			NewWithT(t).Expect(Adopted(cluster)).To(Equal(row.want))
		})
	}
	NewWithT(t).Expect(Adopted(nil)).To(BeFalse())
}

func TestPaused(t *testing.T) {
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{}
	g.Expect(Paused(nil)).To(BeFalse())
	g.Expect(Paused(cluster)).To(BeFalse())
	cluster.Spec.Paused = ptr.To(true)
	g.Expect(Paused(cluster)).To(BeTrue())
	cluster.Spec.Paused = ptr.To(false)
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, "cluster.x-k8s.io/paused", "")
	g.Expect(Paused(cluster)).To(BeTrue())
}

func machine(name string, changes ...func(*clusterv1.Machine)) clusterv1.Machine {
	m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	for _, change := range changes {
		change(&m)
	}
	return m
}

func withUUID(uuid string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Status.NodeInfo = &corev1.NodeSystemInfo{SystemUUID: uuid} }
}

func withProviderID(id string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Spec.ProviderID = id }
}

func withNode(name string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Status.NodeRef.Name = name }
}

func withAddress(kind clusterv1.MachineAddressType, address string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: kind, Address: address})
	}
}

// A mark that both sides have decides, whatever weaker ones say: a new machine takes over the name and the address of a dead one.
func TestFind(t *testing.T) {
	all := Identity{UUID: "ab-1", ProviderID: "p://1", NodeName: "w-1", Addresses: []string{"10.0.0.1"}}
	for name, row := range map[string]struct {
		node Identity
		m1   []func(*clusterv1.Machine)
		want string
	}{
		"by nothing":                  {all, nil, ""},
		"by the hardware":             {all, []func(*clusterv1.Machine){withUUID("AB-1")}, "m1"},
		"other hardware of that name": {all, []func(*clusterv1.Machine){withUUID("ab-2"), withProviderID("p://1"), withNode("w-1")}, ""},
		"by the provider ID":          {all, []func(*clusterv1.Machine){withProviderID("p://1"), withNode("w-2")}, "m1"},
		"another provider ID":         {all, []func(*clusterv1.Machine){withProviderID("p://2"), withNode("w-1")}, ""},
		"by the Node":                 {all, []func(*clusterv1.Machine){withNode("w-1"), withAddress("InternalIP", "10.0.0.9")}, "m1"},
		"another Node":                {all, []func(*clusterv1.Machine){withNode("w-2"), withAddress("InternalIP", "10.0.0.1")}, ""},
		"by an address":               {all, []func(*clusterv1.Machine){withAddress("InternalIP", "10.0.0.9"), withAddress("ExternalIP", "10.0.0.1")}, "m1"},
		"a host name is no address":   {Identity{Addresses: []string{"w-1"}}, []func(*clusterv1.Machine){withAddress("Hostname", "w-1")}, ""},
		"a mark that only one has":    {Identity{NodeName: "w-1"}, []func(*clusterv1.Machine){withUUID("ab-1"), withProviderID("p://1"), withNode("w-1")}, "m1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			machines := []clusterv1.Machine{machine("m0", withUUID("zz-0")), machine("m1", row.m1...)}
			found := Find(machines, row.node)
			if row.want == "" {
				g.Expect(found).To(BeNil())
				return
			}
			g.Expect(found).To(BeIdenticalTo(&machines[1]))
			g.Expect(Find(append(machines, machine("m2", row.m1...)), row.node)).To(BeNil(), "two are none")
		})
	}
}

func newClient(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	NewWithT(t).Expect(clusterv1.AddToScheme(s)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

func TestMachinesOf(t *testing.T) {
	g := NewWithT(t)
	ours := machine("m1")
	theirs := machine("m2", func(m *clusterv1.Machine) { m.Labels[clusterv1.ClusterNameLabel] = "c2" })
	machines := Machines{Client: newClient(t, interceptor.Funcs{}, &ours, &theirs)}
	found, err := machines.Of(t.Context(), client.ObjectKey{Namespace: "default", Name: "c1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(ConsistOf(HaveField("Name", "m1")))
}

func TestMachinesWhereClusterAPIIsNotInstalled(t *testing.T) {
	g := NewWithT(t)
	machines := Machines{Client: newClient(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return &meta.NoKindMatchError{GroupKind: clusterv1.GroupVersion.WithKind("Machine").GroupKind()}
	}})}
	found, err := machines.Of(t.Context(), client.ObjectKey{Namespace: "default", Name: "c1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeEmpty())
}

func TestSkipRemediation(t *testing.T) {
	const mine = "op/mine"
	for name, row := range map[string]struct {
		before, want string
	}{
		"where nobody did":           {"", mine},
		"where somebody did":         {"a person", "a person"},
		"where it did already":       {mine, mine},
		"where a dead operation did": {"op/dead", mine},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := machine("m1", func(m *clusterv1.Machine) {
				if row.before != "" {
					m.Annotations = map[string]string{skip: row.before}
				}
			})
			c := newClient(t, interceptor.Funcs{}, &m)
			machines := Machines{Client: c, Live: c}
			g.Expect(machines.SkipRemediation(t.Context(), read(t, c), mine, isOp)).To(Succeed())
			g.Expect(read(t, c).Annotations).To(Equal(map[string]string{skip: row.want}))
		})
	}
}

func isOp(owner string) bool { return strings.HasPrefix(owner, "op/") }

const skip = "cluster.x-k8s.io/skip-remediation"

func read(t *testing.T, c client.Client) *clusterv1.Machine {
	t.Helper()
	m := &clusterv1.Machine{}
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "m1"}, m)).To(Succeed())
	return m
}

// The cache may be behind. What somebody wrote in between stays, and who is late only writes once more.
func TestSkipRemediationAgainstANewerMachine(t *testing.T) {
	for name, row := range map[string]struct {
		between map[string]string
		want    string
	}{
		"with another change":   {map[string]string{"x": "y"}, "op/mine"},
		"with the same wish":    {map[string]string{skip: "a person"}, "a person"},
		"with an older of ours": {map[string]string{skip: "op/dead"}, "op/mine"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := machine("m1")
			c := newClient(t, interceptor.Funcs{}, &m)
			cached := read(t, c)
			newer := read(t, c)
			newer.Annotations = row.between
			g.Expect(c.Update(t.Context(), newer)).To(Succeed())
			g.Expect(Machines{Client: c, Live: c}.SkipRemediation(t.Context(), cached, "op/mine", isOp)).To(Succeed())
			g.Expect(read(t, c).Annotations).To(HaveKeyWithValue(skip, row.want))
		})
	}
}

func TestRemediationOfAMachineThatIsGone(t *testing.T) {
	g := NewWithT(t)
	m := machine("m1")
	c := newClient(t, interceptor.Funcs{}, &m)
	cached := read(t, c)
	g.Expect(c.Delete(t.Context(), read(t, c))).To(Succeed())
	machines := Machines{Client: c, Live: c}
	g.Expect(machines.SkipRemediation(t.Context(), cached, "op/mine", isOp)).To(Succeed())
	g.Expect(machines.AllowRemediation(t.Context(), cached)).To(Succeed())
}

func TestAllowRemediation(t *testing.T) {
	g := NewWithT(t)
	m := machine("m1", func(m *clusterv1.Machine) { m.Annotations = map[string]string{skip: "op/mine", "x": "y"} })
	c := newClient(t, interceptor.Funcs{}, &m)
	machines, cached := Machines{Client: c, Live: c}, read(t, c)
	theirs := read(t, c)
	theirs.Annotations[skip] = "a person"
	g.Expect(c.Update(t.Context(), theirs)).To(Succeed())
	g.Expect(machines.AllowRemediation(t.Context(), cached)).To(Satisfy(apierrors.IsConflict), "somebody has taken it over")
	g.Expect(read(t, c).Annotations).To(HaveKeyWithValue(skip, "a person"))

	g.Expect(machines.AllowRemediation(t.Context(), read(t, c))).To(Succeed())
	g.Expect(read(t, c).Annotations).To(Equal(map[string]string{"x": "y"}))
}

func TestNodeReady(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for status, want := range map[metav1.ConditionStatus]bool{metav1.ConditionTrue: true, metav1.ConditionFalse: false, metav1.ConditionUnknown: false, "": false} {
		t.Run(string(status), func(t *testing.T) {
			g := NewWithT(t)
			m := machine("m1", func(m *clusterv1.Machine) {
				if status != "" {
					m.Status.Conditions = []metav1.Condition{{Type: "NodeReady", Status: status, LastTransitionTime: since}}
				}
			})
			at, ready := NodeReady(&m)
			g.Expect(ready).To(Equal(want))
			g.Expect(at.Equal(since.Time)).To(Equal(want))
		})
	}
}
