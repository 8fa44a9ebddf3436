// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/talos"
)

var pinned = strings.Repeat("A", 43) + "="

// newcomer is a machine in maintenance mode.
func (w *world) newcomer(found talos.Unconfigured) {
	w.Inspector = func(_ context.Context, address, fingerprint string) (talos.Unconfigured, error) {
		if fingerprint != "" && fingerprint != found.Fingerprint {
			return talos.Unconfigured{}, &talos.FingerprintError{Address: address, Want: fingerprint, Got: found.Fingerprint}
		}
		return found, nil
	}
}

func joinWith(change func(*Join)) Join {
	in := Join{Cluster: c1, Address: "10.0.0.9", Role: v1alpha1.WorkerRole, Spec: v1alpha1.JoinSpec{Fingerprint: pinned, Hostname: "w-9"}}
	if change != nil {
		change(&in)
	}
	return in
}

func emptyCluster() *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: c1.Namespace, Name: c1.Name}}
}

func recordOf(name, uuid, address string, change func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: c1.Namespace, Name: name, Labels: map[string]string{clusterLabel: c1.Name}},
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: c1.Name, Role: v1alpha1.WorkerRole, Address: address, UUID: uuid, Approval: v1alpha1.Approved},
	}
	if change != nil {
		change(m)
	}
	return m
}

// A machine is recorded with the UUID that it told itself, and waits for an approval.
func TestJoinRecords(t *testing.T) {
	w := newWorld(t, emptyCluster())
	w.newcomer(talos.Unconfigured{UUID: "ABCDE-1", Fingerprint: pinned})
	_, machine, changed, err := w.Join(w.ctx, joinWith(nil))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(changed).To(BeTrue())
	w.g.Expect(machine.Name).To(Equal("c1-w-9"))
	w.g.Expect(machine.Spec).To(Equal(v1alpha1.TalosMachineSpec{
		ClusterName: "c1", Role: "Worker", Address: "10.0.0.9", UUID: "ABCDE-1", Approval: "Pending", Join: &v1alpha1.JoinSpec{Fingerprint: pinned, Hostname: "w-9"},
	}))
	w.g.Expect(machine.Labels).To(HaveKeyWithValue(clusterLabel, "c1"))

	again, machine, changed, err := w.Join(w.ctx, joinWith(nil))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(changed).To(BeFalse())
	w.g.Expect(again.UUID).To(Equal("ABCDE-1"))
	other := strings.Repeat("B", 43) + "="
	w.newcomer(talos.Unconfigured{UUID: "ABCDE-1", Fingerprint: other})
	_, machine, changed, err = w.Join(w.ctx, joinWith(func(in *Join) { in.Spec.Fingerprint = other }))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(changed).To(BeTrue(), "it has booted")
	w.g.Expect(machine.Spec.Join.Fingerprint).To(Equal(other))
	w.g.Expect(w.writes).To(Equal([]string{"create TalosMachine", "patch TalosMachine"}))
}

// What is not said again stays, and the address follows as long as nothing was given to the machine.
func TestJoinAgainKeepsWhatIsNotSaid(t *testing.T) {
	w := newWorld(t, emptyCluster(), recordOf("c1-w-9", "u", "10.0.0.8", func(m *v1alpha1.TalosMachine) {
		m.Spec.Join = &v1alpha1.JoinSpec{Fingerprint: pinned, Hostname: "w-9", InstallDisk: "/dev/sdb"}
	}))
	other := strings.Repeat("B", 43) + "="
	w.newcomer(talos.Unconfigured{UUID: "u", Fingerprint: other})
	_, machine, changed, err := w.Join(w.ctx, joinWith(func(in *Join) { in.Spec = v1alpha1.JoinSpec{Fingerprint: other} }))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(changed).To(BeTrue())
	w.g.Expect(machine.Spec.Address).To(Equal("10.0.0.9"))
	w.g.Expect(*machine.Spec.Join).To(Equal(v1alpha1.JoinSpec{Fingerprint: other, Hostname: "w-9", InstallDisk: "/dev/sdb"}))
}

// A name that is taken gets some of the UUID behind it; without a host name it is the UUID.
func TestJoinNames(t *testing.T) {
	w := newWorld(t, emptyCluster(), recordOf("c1-w-9", "other", "10.0.0.1", nil))
	w.newcomer(talos.Unconfigured{UUID: "ABCDEF-1", Fingerprint: pinned})
	_, machine, _, err := w.Join(w.ctx, joinWith(nil))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(machine.Name).To(Equal("c1-w-9-abcde"))
	w.newcomer(talos.Unconfigured{UUID: "12345-6", Fingerprint: pinned})
	_, machine, _, err = w.Join(w.ctx, joinWith(func(in *Join) { in.Address, in.Spec.Hostname = "10.0.0.10", "" }))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(machine.Name).To(Equal("c1-12345"))
}

func TestJoinRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		record *v1alpha1.TalosMachine
		change func(*Join)
		want   string
	}{
		"another certificate":      {change: func(in *Join) { in.Spec.Fingerprint = strings.Repeat("C", 43) + "=" }, want: "each boot makes another one"},
		"a machine that is there":  {record: recordOf("c1-w-1", "u", "10.0.0.1", nil), want: "TalosMachine c1-w-1 is recorded with UUID u"},
		"an address that is taken": {record: recordOf("c1-w-1", "v", "10.0.0.9", nil), want: "kubectl delete talosmachine -n default c1-w-1"},
		"another role than before": {record: recordOf("c1-w-9", "u", "10.0.0.9", func(m *v1alpha1.TalosMachine) {
			m.Spec.Role, m.Spec.Join = v1alpha1.ControlPlaneRole, &v1alpha1.JoinSpec{Fingerprint: pinned}
		}), want: "its role stays, and Worker is asked for"},
		"the name of another": {record: recordOf("c1-w-1", "v", "10.0.0.1", func(m *v1alpha1.TalosMachine) { m.Status.NodeName = "W-9.example.com" }),
			want: "TalosMachine c1-w-1 is called W-9.example.com"},
		"the name that another will have": {record: recordOf("c1-w-1", "v", "10.0.0.1", func(m *v1alpha1.TalosMachine) {
			m.Spec.Join = &v1alpha1.JoinSpec{Fingerprint: pinned, Hostname: "w-9"}
		}), want: "TalosMachine c1-w-1 is called w-9"},
		"another address, once it has its config": {record: recordOf("c1-w-9", "u", "10.0.0.8", func(m *v1alpha1.TalosMachine) {
			m.Spec.Join = &v1alpha1.JoinSpec{Fingerprint: pinned}
			m.Annotations = map[string]string{v1alpha1.ProvisionedAtAnnotation: "2026-01-01T00:00:00Z"}
		}), want: "it was given its machine config there, and 10.0.0.9 is asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := emptyCluster()
			w := newWorld(t, objects)
			if row.record != nil {
				w = newWorld(t, objects, row.record)
			}
			w.newcomer(talos.Unconfigured{UUID: "u", Fingerprint: pinned})
			_, _, _, err := w.Join(w.ctx, joinWith(row.change))
			w.g.Expect(err).To(MatchError(ContainSubstring(row.want)))
			w.g.Expect(w.writes).To(BeEmpty())
		})
	}
	t.Run("where providers make the machines", func(t *testing.T) {
		capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c1.Namespace, Name: c1.Name}}
		capi.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "x", Kind: "TalosControlPlane", Name: "c1"}
		w := newWorld(t, emptyCluster(), capi)
		w.newcomer(talos.Unconfigured{UUID: "u", Fingerprint: pinned})
		_, _, _, err := w.Join(w.ctx, joinWith(nil))
		w.g.Expect(err).To(MatchError(ContainSubstring("are made by Cluster API's providers")))
	})
}

// What is wrong with a request is said before anything is asked.
func TestJoinChecks(t *testing.T) {
	for want, change := range map[string]func(*Join){
		"address":       func(in *Join) { in.Address = "worker-9.example" },
		"role":          func(in *Join) { in.Role = "" },
		"fingerprint":   func(in *Join) { in.Spec.Fingerprint = "" },
		"44 characters": func(in *Join) { in.Spec.Fingerprint = "sha256:abc" },
		"install_disk":  func(in *Join) { in.Spec.InstallDisk = "sda" },
		"hostname":      func(in *Join) { in.Spec.Hostname = "W_9" },
	} {
		NewWithT(t).Expect(joinWith(change).check()).To(MatchError(ContainSubstring(want)))
	}
	NewWithT(t).Expect(joinWith(func(in *Join) { in.Spec.Fingerprint, in.ValidateOnly = "", true }).check()).To(Succeed(), "somebody is to compare it first")
}
