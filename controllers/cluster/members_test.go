// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
)

// adoptedWorld is world with a Cluster that a control plane provider made, and Machines of it.
func adoptedWorld(t *testing.T, members ...clusterv1.Machine) (*Reconciler, *targets.Facts) {
	t.Helper()
	r, facts := world(t)
	facts.CAPICluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1", UID: "capi"}}
	facts.CAPICluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c1"}
	facts.Members = members
	return r, facts
}

func member(name, uuid string) clusterv1.Machine {
	return clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Status:     clusterv1.MachineStatus{NodeInfo: &corev1.NodeSystemInfo{SystemUUID: uuid}},
	}
}

func TestDiscoverByMachines(t *testing.T) {
	g := NewWithT(t)
	r, facts := adoptedWorld(t, member("m-x1", "u1"))
	facts.Cluster.Annotations = map[string]string{v1alpha1.MembersApprovedAtAnnotation: "2026-01-01T00:00:00Z"}
	g.Expect(r.discover(t.Context(), facts, seeing(
		answering("10.0.0.1", "ControlPlane", "cp-1", "u1"), answering("10.0.1.1", "Worker", "w-1", "u2"),
	))).To(Succeed())
	g.Expect(names(t, r)).To(Equal([]string{"c1-cp-1"}), "w-1 is no Machine")

	made := &v1alpha1.TalosMachine{}
	g.Expect(r.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "c1-cp-1"}, made)).To(Succeed())
	g.Expect(made.Spec.Approval).To(Equal(v1alpha1.Approved), "its Machine is its approval, at any time")
	g.Expect(made.OwnerReferences).To(Equal([]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m-x1", UID: "uid-m-x1"}}))
}

func TestRecordMachineName(t *testing.T) {
	g := NewWithT(t)
	r, facts := adoptedWorld(t, member("m-x1", "u1"))
	seen := seeing(answering("10.0.0.1", "ControlPlane", "cp-1", "u1"))
	g.Expect(r.discover(t.Context(), facts, seen)).To(Succeed())
	g.Expect(r.record(t.Context(), facts, seen)).To(Succeed())
	g.Expect(facts.Machines[0].Status.MachineName).To(Equal("m-x1"))

	g.Expect(r.record(t.Context(), facts, seeing())).To(Succeed())
	g.Expect(facts.Machines[0].Status.MachineName).To(Equal("m-x1"), "a machine that does not answer is still that Machine")

	facts.Members = nil
	g.Expect(r.record(t.Context(), facts, seen)).To(Succeed())
	g.Expect(facts.Machines[0].Status.MachineName).To(BeEmpty())
}

func TestMembersWithoutMachine(t *testing.T) {
	for name, row := range map[string]struct {
		members  []clusterv1.Machine
		status   metav1.ConditionStatus
		message  string
		complete bool
	}{
		"none": {[]clusterv1.Machine{member("m1", "u1"), member("m2", "u2"), member("m3", "u3")}, metav1.ConditionTrue, "", true},
		"a worker": {
			[]clusterv1.Machine{member("m1", "u1"), member("m2", "u2")}, metav1.ConditionFalse,
			`the machine at 10.0.1.2 (Node "w-2") is no Machine of Cluster "c1"; the hub touches only what Cluster API knows`, true,
		},
		"two workers": {
			[]clusterv1.Machine{member("m1", "u1")}, metav1.ConditionFalse,
			`the machine at 10.0.1.1 (Node "w-1") is no Machine of Cluster "c1", and 1 more are none; the hub touches only what Cluster API knows`, true,
		},
		"a control plane": {
			[]clusterv1.Machine{member("m2", "u2"), member("m3", "u3")}, metav1.ConditionFalse,
			`the machine at 10.0.0.1 (Node "cp-1") is no Machine of Cluster "c1"; the hub touches only what Cluster API knows`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, facts := adoptedWorld(t, row.members...)
			seen := seeing(
				answering("10.0.0.1", "ControlPlane", "cp-1", "u1"), answering("10.0.1.1", "Worker", "w-1", "u2"), answering("10.0.1.2", "Worker", "w-2", "u3"),
			)
			for i := range seen.nodes {
				seen.nodes[i].UUID = map[string]string{"cp-1": "u1", "w-1": "u2", "w-2": "u3"}[seen.nodes[i].Name]
			}
			g.Expect(r.discover(t.Context(), facts, seen)).To(Succeed())
			g.Expect(r.record(t.Context(), facts, seen)).To(Succeed())
			setMachinesDiscovered(*facts, seen)
			condition := meta.FindStatusCondition(facts.Cluster.Status.Conditions, v1alpha1.MachinesDiscoveredCondition)
			g.Expect(condition.Status).To(Equal(row.status))
			g.Expect(condition.Message).To(Equal(row.message))
			g.Expect(complete(*facts, seen)).To(Equal(row.complete), "a member of etcd has to be known, a worker may stay a stranger")
		})
	}
}

// What moves, or goes, gets no new machines: a copy on two management clusters would be two hubs' machine.
func TestNothingIsMadeWhileTheClusterStandsStill(t *testing.T) {
	for name, change := range map[string]func(*targets.Facts){
		"paused":  func(f *targets.Facts) { f.CAPICluster.Spec.Paused = ptr.To(true) },
		"deleted": func(f *targets.Facts) { f.CAPICluster.DeletionTimestamp = ptr.To(metav1.NewTime(now)) },
		"gone": func(f *targets.Facts) {
			f.Cluster.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: "capi"}}
			f.CAPICluster = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, facts := adoptedWorld(t, member("m1", "u1"))
			seen := seeing(answering("10.0.0.1", "ControlPlane", "cp-1", "u1"))
			standing := facts.CAPICluster.DeepCopy()
			change(facts)
			g.Expect(r.discoverAndRecord(t.Context(), facts, seen)).To(Succeed())
			g.Expect(names(t, r)).To(BeEmpty())
			g.Expect(facts.Cluster.Annotations).NotTo(HaveKey(v1alpha1.MembersApprovedAtAnnotation))

			facts.CAPICluster = standing
			g.Expect(r.discoverAndRecord(t.Context(), facts, seen)).To(Succeed())
			g.Expect(names(t, r)).To(Equal([]string{"c1-cp-1"}))
		})
	}
}

func TestBelong(t *testing.T) {
	g := NewWithT(t)
	r, facts := adoptedWorld(t)
	g.Expect(r.belong(t.Context(), facts)).To(Succeed())
	found := &v1alpha1.TalosCluster{}
	g.Expect(r.Client.Get(t.Context(), client.ObjectKeyFromObject(facts.Cluster), found)).To(Succeed())
	g.Expect(found.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c1"))
	g.Expect(found.OwnerReferences).To(Equal([]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: "capi"}}))
	g.Expect(facts.Cluster.ResourceVersion).To(Equal(found.ResourceVersion))

	facts.Cluster.OwnerReferences[0].Controller = ptr.To(false)
	version := found.ResourceVersion
	g.Expect(r.belong(t.Context(), facts)).To(Succeed())
	g.Expect(r.Client.Get(t.Context(), client.ObjectKeyFromObject(facts.Cluster), found)).To(Succeed())
	g.Expect(found.ResourceVersion).To(Equal(version), "what Cluster API writes is as good")
}
