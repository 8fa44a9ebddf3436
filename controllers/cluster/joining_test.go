// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/targets"
)

// toJoin is a machine that is approved and is to join.
func toJoin() *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "c-w-2"},
		Spec:       v1alpha1.TalosMachineSpec{Address: "10.0.0.9", Approval: v1alpha1.Approved, Join: &v1alpha1.JoinSpec{}},
	}
}

// A machine that is to join is no trouble of the cluster as long as it does not answer as one of it.
func TestForgetBlank(t *testing.T) {
	g := NewWithT(t)
	facts := targets.Facts{Machines: []v1alpha1.TalosMachine{*toJoin(), {Spec: v1alpha1.TalosMachineSpec{Address: "10.0.0.1"}}}}
	machines := map[string]found{"10.0.0.9": {trouble: "no answer"}, "10.0.0.1": {trouble: "no answer"}}
	forgetBlank(facts, machines)
	g.Expect(machines).To(And(HaveLen(1), HaveKey("10.0.0.1")))
	machines = map[string]found{"10.0.0.9": {}}
	forgetBlank(facts, machines)
	g.Expect(machines).To(HaveLen(1), "it answers, and so belongs to it")
	metav1.SetMetaDataAnnotation(&facts.Machines[0].ObjectMeta, v1alpha1.JoinedAtAnnotation, "2026-01-01T00:00:00Z")
	machines = map[string]found{"10.0.0.9": {trouble: "no answer"}}
	forgetBlank(facts, machines)
	g.Expect(machines).To(HaveLen(1), "it has joined, and is missed")
}

func TestSetJoined(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		joins  bool
		status metav1.ConditionStatus
		reason string
	}{
		"nobody asked":    {change: func(m *v1alpha1.TalosMachine) { m.Spec.Join = nil }},
		"nobody approved": {change: func(m *v1alpha1.TalosMachine) { m.Spec.Approval = v1alpha1.ApprovalPending }, status: "False", reason: "ApprovalPending"},
		"it waits":        {status: "False", reason: "Joining"},
		"it has just":     {joins: true, status: "True", reason: "Joined"},
		"it has long since": {change: func(m *v1alpha1.TalosMachine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.JoinedAtAnnotation, "2026-01-01T00:00:00Z")
		}, status: "True", reason: "Joined"},
	} {
		t.Run(name, func(t *testing.T) {
			g, machine := NewWithT(t), toJoin()
			if row.change != nil {
				row.change(machine)
			}
			setJoined(machine, row.joins)
			condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.MachineJoinedCondition)
			if row.reason == "" {
				g.Expect(condition).To(BeNil())
				return
			}
			g.Expect(*condition).To(And(HaveField("Status", row.status), HaveField("Reason", row.reason)))
		})
	}
}

// It has joined when it is ready, and not before: a learner is not.
func TestHasJoined(t *testing.T) {
	g, machine := NewWithT(t), toJoin()
	g.Expect(hasJoined(machine)).To(BeFalse())
	setMachine(machine, v1alpha1.MachineReadyCondition, metav1.ConditionFalse, v1alpha1.MachineNotReadyReason, "the etcd member is a learner")
	g.Expect(hasJoined(machine)).To(BeFalse())
	setMachine(machine, v1alpha1.MachineReadyCondition, metav1.ConditionTrue, v1alpha1.MachineReadyReason, "")
	g.Expect(hasJoined(machine)).To(BeTrue())
	machine.Spec.Join = nil
	g.Expect(hasJoined(machine)).To(BeFalse())
}

// A machine that joins may have another address once it has its machine config. It is found by its UUID, which only it tells as one of the
// cluster.
func TestJoinsElsewhere(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		others []found
		uuid   string
		want   string
	}{
		"it answers elsewhere":          {want: "10.0.0.20"},
		"it was given nothing yet":      {change: func(m *v1alpha1.TalosMachine) { m.Annotations = nil }, want: "10.0.0.9"},
		"it has joined":                 {change: func(m *v1alpha1.TalosMachine) { m.Annotations[v1alpha1.JoinedAtAnnotation] = "x" }, want: "10.0.0.9"},
		"it answers at both":            {others: []found{answering("10.0.0.9", "Worker", "w-2", "u2")}, want: "10.0.0.9"},
		"another one answers elsewhere": {uuid: "u3", want: "10.0.0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			g, machine := NewWithT(t), toJoin()
			machine.Namespace, machine.Labels = "default", map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}
			machine.Spec.ClusterName, machine.Spec.Role, machine.Spec.UUID = "c1", v1alpha1.WorkerRole, "u2"
			machine.Annotations = map[string]string{v1alpha1.ProvisionedAtAnnotation: "2026-01-01T00:00:00Z"}
			if row.change != nil {
				row.change(machine)
			}
			r, facts := world(t, *machine)
			seen := seeing(append(row.others, answering("10.0.0.20", "Worker", "w-2", cmp.Or(row.uuid, "u2")))...)
			g.Expect(r.discover(t.Context(), facts, seen)).To(Succeed())
			now := &v1alpha1.TalosMachine{}
			g.Expect(r.Client.Get(t.Context(), client.ObjectKeyFromObject(machine), now)).To(Succeed())
			g.Expect(now.Spec.Address).To(Equal(row.want))
		})
	}
}

// A request to be removed is seen, with what carries it out, and is gone as soon as it is taken back.
func TestSetRemoved(t *testing.T) {
	g, machine := NewWithT(t), &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "c-w-2"}, Spec: v1alpha1.TalosMachineSpec{Removal: &v1alpha1.RemovalSpec{Reason: "sold"}}}
	setRemoved(machine)
	g.Expect(machine.Status.Conditions).To(ConsistOf(And(
		HaveField("Type", "Removed"), HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "Removing"),
		HaveField("Message", "an operation removes it: ichor machine remove c-w-2"))))
	machine.Spec.Removal = nil
	setRemoved(machine)
	g.Expect(machine.Status.Conditions).To(BeEmpty())
}
