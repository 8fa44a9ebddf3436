// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/providers/target"
)

func recorded(name, node string, role v1alpha1.MachineRole, address, uuid string) v1alpha1.TalosMachine {
	return v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 3, Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}},
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: "c1", Role: role, Address: address, UUID: uuid, Approval: "Approved"},
		Status:     v1alpha1.TalosMachineStatus{NodeName: node},
	}
}

func TestCandidates(t *testing.T) {
	type roles = map[string]v1alpha1.MachineRole
	cp1 := talos.Member{Hostname: "cp-1", Addresses: []string{"10.0.0.1", "fd00::1"}, ControlPlane: true}
	w1 := talos.Member{Hostname: "W-1", Addresses: []string{"10.0.1.1"}}
	for name, row := range map[string]struct {
		recorded []v1alpha1.TalosMachine
		members  []talos.Member
		nodes    []kube.Node
		want     roles

		endpoint    string
		unaddressed []string
	}{
		"nothing":           {want: roles{}},
		"members":           {members: []talos.Member{cp1, w1}, want: roles{"10.0.0.1": "ControlPlane", "10.0.1.1": "Worker"}},
		"discovery is off":  {nodes: []kube.Node{{Name: "cp-1", Addresses: []string{"10.0.0.1"}, ControlPlane: true}, {Name: "w-1", Addresses: []string{"10.0.1.1"}}}, want: roles{"10.0.0.1": "ControlPlane", "10.0.1.1": "Worker"}},
		"known by address":  {recorded: []v1alpha1.TalosMachine{recorded("c1-x", "x", "ControlPlane", "fd00::1", "u1")}, members: []talos.Member{cp1}, want: roles{"fd00::1": "ControlPlane"}},
		"known by name":     {recorded: []v1alpha1.TalosMachine{recorded("c1-w-1", "w-1", "Worker", "192.168.0.7", "u1")}, members: []talos.Member{w1}, want: roles{"192.168.0.7": "Worker"}},
		"Node of a member":  {members: []talos.Member{w1}, nodes: []kube.Node{{Name: "w-1", Addresses: []string{"192.168.0.7"}}}, want: roles{"10.0.1.1": "Worker"}},
		"Node by another":   {members: []talos.Member{cp1}, nodes: []kube.Node{{Name: "renamed", Addresses: []string{"fd00::1"}}}, want: roles{"10.0.0.1": "ControlPlane"}},
		"without addresses": {recorded: []v1alpha1.TalosMachine{recorded("c1-x", "x", "Worker", "", "u1")}, members: []talos.Member{{Hostname: "y"}}, nodes: []kube.Node{{Name: "z"}}, want: roles{}, unaddressed: []string{"y"}},
		"a virtual IP that a machine has now (A9)": {
			members:  []talos.Member{{Hostname: "cp-1", Addresses: []string{"10.0.0.100", "10.0.0.1"}, ControlPlane: true}, {Hostname: "cp-2", Addresses: []string{"10.0.0.2"}, ControlPlane: true}},
			endpoint: "10.0.0.100", want: roles{"10.0.0.1": "ControlPlane", "10.0.0.2": "ControlPlane"},
		},
		"a virtual IP by name (A9)": {
			members:  []talos.Member{{Hostname: "cp-1", Addresses: []string{"10.0.0.100", "10.0.0.1"}, ControlPlane: true}},
			endpoint: "api.example.org", want: roles{"10.0.0.1": "ControlPlane"},
		},
		"a virtual IP that moved from a known machine (A9)": {
			recorded: []v1alpha1.TalosMachine{recorded("c1-cp-1", "cp-1", "ControlPlane", "10.0.0.1", "u1")},
			members:  []talos.Member{{Hostname: "cp-1", Addresses: []string{"10.0.0.1", "10.0.0.100"}, ControlPlane: true}},
			nodes:    []kube.Node{{Name: "cp-1", Addresses: []string{"10.0.0.1"}, ControlPlane: true}, {Name: "cp-2", Addresses: []string{"10.0.0.100", "10.0.0.2"}, ControlPlane: true}},
			endpoint: "10.0.0.100", want: roles{"10.0.0.1": "ControlPlane", "10.0.0.2": "ControlPlane"},
		},
		"an address that two machines tell of (A9)": {
			members: []talos.Member{{Hostname: "cp-1", Addresses: []string{"10.0.0.50", "10.0.0.1"}, ControlPlane: true}, {Hostname: "cp-2", Addresses: []string{"10.0.0.50", "10.0.0.2"}, ControlPlane: true}},
			want:    roles{"10.0.0.1": "ControlPlane", "10.0.0.2": "ControlPlane"},
		},
		"nothing but an address that two machines tell of": {
			members: []talos.Member{{Hostname: "w-2", Addresses: []string{"10.0.0.50"}}, {Hostname: "w-1", Addresses: []string{"10.0.0.50"}}},
			want:    roles{}, unaddressed: []string{"w-1", "w-2"},
		},
		"one control plane, at the endpoint": {
			members: []talos.Member{{Hostname: "cp-1", Addresses: []string{"10.0.0.1"}, ControlPlane: true}}, endpoint: "10.0.0.1", want: roles{"10.0.0.1": "ControlPlane"},
		},
		"addresses that mean nothing elsewhere": {
			members: []talos.Member{{Hostname: "w-1", Addresses: []string{"127.0.0.1", "169.254.1.1", "fe80::1", "FD00::7"}}}, want: roles{"fd00::7": "Worker"},
		},
		"an address in another spelling": {
			recorded: []v1alpha1.TalosMachine{recorded("c1-w-1", "", "Worker", "FD00:0::7", "u1")},
			members:  []talos.Member{{Hostname: "w-1", Addresses: []string{"fd00::7"}}}, want: roles{"FD00:0::7": "Worker"},
		},
		"two machines of one name are two (B7)": {
			members: []talos.Member{{Hostname: "w-1", Addresses: []string{"10.0.1.1"}}, {Hostname: "W-1", Addresses: []string{"10.0.1.2"}}},
			want:    roles{"10.0.1.1": "Worker", "10.0.1.2": "Worker"},
		},
		"and stay two when one is recorded": {
			recorded: []v1alpha1.TalosMachine{recorded("c1-w-1", "w-1", "Worker", "10.0.1.1", "u1")},
			members:  []talos.Member{{Hostname: "w-1", Addresses: []string{"10.0.1.1"}}, {Hostname: "w-1", Addresses: []string{"10.0.1.2"}}},
			want:     roles{"10.0.1.1": "Worker", "10.0.1.2": "Worker"},
		},
		"a full name and a short one (B5)": {
			members: []talos.Member{{Hostname: "w-1", Addresses: []string{"10.0.1.1"}}}, nodes: []kube.Node{{Name: "W-1.example.org", Addresses: []string{"192.168.0.7"}}},
			want: roles{"10.0.1.1": "Worker"},
		},
		"equal short names in two domains (B5)": {
			members: []talos.Member{{Hostname: "w-1.a.example", Addresses: []string{"10.0.1.1"}}, {Hostname: "w-1.b.example", Addresses: []string{"10.0.1.2"}}},
			nodes:   []kube.Node{{Name: "w-1.b.example", Addresses: []string{"192.168.0.8"}}, {Name: "w-1.a.example", Addresses: []string{"192.168.0.7"}}},
			want:    roles{"10.0.1.1": "Worker", "10.0.1.2": "Worker"},
		},
		"a Node that runs something else": {
			nodes: []kube.Node{{Name: "nas", Addresses: []string{"10.0.1.1"}, OSImage: "Debian GNU/Linux 13"}, {Name: "w-1", Addresses: []string{"10.0.1.2"}, OSImage: "Talos (v1.13.9)"}},
			want:  roles{"10.0.1.2": "Worker"},
		},
		"records whose status was lost in a move": {
			recorded: []v1alpha1.TalosMachine{
				recorded("c1-cp-1", "", "ControlPlane", "10.0.0.1", "u1"), recorded("c1-cp-2", "", "ControlPlane", "10.0.0.2", "u2"), recorded("c1-w-1", "", "Worker", "10.0.1.1", "u3"),
			},
			want: roles{"10.0.0.1": "ControlPlane", "10.0.0.2": "ControlPlane", "10.0.1.1": "Worker"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := newCandidates(t.Context(), endpoints(row.endpoint), row.recorded, row.members, row.nodes)
			NewWithT(t).Expect(found.roles).To(Equal(row.want))
			NewWithT(t).Expect(found.unaddressed).To(Equal(row.unaddressed))
		})
	}
}

// endpoints know one host, and that api.example.org is 10.0.0.100.
func endpoints(host string) shared {
	return shared{hosts: []string{host}, lookup: func(_ context.Context, name string) ([]string, error) {
		if name != "api.example.org" {
			return nil, errors.New("no such host")
		}
		return []string{"10.0.0.100"}, nil
	}}
}

func TestEndpointHosts(t *testing.T) {
	g := NewWithT(t)
	cluster := &v1alpha1.TalosCluster{Spec: v1alpha1.TalosClusterSpec{ControlPlaneEndpoint: &v1alpha1.APIEndpoint{Host: "api.example.org", Port: 6443}}}
	g.Expect(endpointHosts("https://[fd00::1]:6443", cluster)).To(Equal([]string{"fd00::1", "api.example.org"}))
	g.Expect(endpointHosts("", &v1alpha1.TalosCluster{})).To(BeEmpty())
}

func TestAskTalosAndKubernetes(t *testing.T) {
	g := NewWithT(t)
	machines, api := talosfake.New(), kubefake.New()
	machines.Add("10.0.0.1", talos.Machine{NodeName: "cp-1", UUID: "u1"}, &talos.Etcd{MemberID: 1, Leader: 1})
	machines.Add("10.0.1.1", talos.Machine{NodeName: "w-1", UUID: "u2"}, nil)
	machines.Add("10.0.1.2", talos.Machine{NodeName: "w-2", UUID: "u3"}, nil)
	machines.Silence("10.0.1.2", true)
	api.Set(kube.Node{Name: "cp-1", Ready: true})
	p := prober{talos: machines, kube: api}

	var seen probe
	p.askKubernetes(t.Context(), target.Target{}, &seen)
	p.askTalos(t.Context(), target.Target{}, targets.Facts{}, endpoints(""), &seen)
	g.Expect(seen).To(Equal(probe{
		kubernetesVersion: "v1.35.2",
		nodes:             []kube.Node{{Name: "cp-1", Ready: true}},
		machines: map[string]found{
			"10.0.0.1": {address: "10.0.0.1", role: "ControlPlane", facts: talos.Machine{NodeName: "cp-1", UUID: "u1"}, etcd: &talos.Etcd{MemberID: 1, Leader: 1}},
			"10.0.1.1": {address: "10.0.1.1", role: "Worker", facts: talos.Machine{NodeName: "w-1", UUID: "u2"}},
			"10.0.1.2": {address: "10.0.1.2", role: "Worker", trouble: "no answer"},
		},
	}))
}

// A machine that is taken for a control plane and has no etcd tells so.
func TestAskTellsEtcdTrouble(t *testing.T) {
	g := NewWithT(t)
	machines := talosfake.New()
	machines.Add("10.0.0.1", talos.Machine{NodeName: "cp-1", UUID: "u1"}, nil)
	reader, err := machines.Reader(t.Context(), target.Target{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ask(t.Context(), reader, "10.0.0.1", "ControlPlane")).To(Equal(found{
		address: "10.0.0.1", role: "ControlPlane", facts: talos.Machine{NodeName: "cp-1", UUID: "u1"},
		etcdTrouble: "Unimplemented: status is only available on control plane nodes",
	}))
}

// silent is a Kubernetes API that does not answer.
type silent struct{ kube.Provider }

func (silent) Reader(ctx context.Context, _ target.Target) (kube.Reader, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// timely are machines that answer as long as there is time.
type timely struct{ talos.Provider }

func (m timely) Reader(ctx context.Context, t target.Target) (talos.Reader, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return m.Provider.Reader(ctx, t)
}

// A silent Kubernetes API must not make the machines look silent, too.
func TestSilentKubernetesLeavesTimeForTheMachines(t *testing.T) {
	g := NewWithT(t)
	machines := talosfake.New()
	machines.Add("10.0.0.1", talos.Machine{NodeName: "cp-1", UUID: "u1"}, &talos.Etcd{MemberID: 1, Leader: 1})
	both := secrets(t, "os:admin")
	c := newClient(t, both[0], both[1])
	p := prober{
		credentials: &credentials.Store{Reader: c}, talos: timely{machines}, kube: silent{}, clock: clocktesting.NewFakePassiveClock(now),
		lookup: func(context.Context, string) ([]string, error) { return nil, nil },
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	seen := p.probe(ctx, targets.Facts{Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}})
	g.Expect(seen.kubeTrouble).NotTo(BeEmpty())
	g.Expect(seen.machines).To(HaveKey("10.0.0.1"))
	g.Expect(seen.machines["10.0.0.1"].facts.UUID).To(Equal("u1"))
}
