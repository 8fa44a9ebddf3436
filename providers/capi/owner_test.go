// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Owners look at the condition in one form or the other; health checks write both.
func TestLeaveToOwner(t *testing.T) {
	form := func(status corev1.ConditionStatus, reason string) *clusterv1.MachineDeprecatedStatus {
		return &clusterv1.MachineDeprecatedStatus{V1Beta1: &clusterv1.MachineV1Beta1DeprecatedStatus{Conditions: clusterv1.Conditions{
			{Type: "Ready", Status: "True"}, {Type: "OwnerRemediated", Status: status, Reason: reason},
		}}}
	}
	for name, row := range map[string]struct {
		change              func(*clusterv1.Machine)
		reason, deprecated  string // Empty is none.
		deprecatedCondition corev1.ConditionStatus
	}{
		"that has not been asked": {func(*clusterv1.Machine) {}, "WaitingForRemediation", "WaitingForRemediation", "False"},
		"that has done it before": {func(m *clusterv1.Machine) {
			m.Status.Deprecated = form("True", "")
			m.Status.Conditions = []metav1.Condition{{Type: "OwnerRemediated", Status: "True", Reason: "Done"}}
		}, "WaitingForRemediation", "WaitingForRemediation", "False"},
		"that is at work by the old form": {func(m *clusterv1.Machine) { m.Status.Deprecated = form("False", "Working") }, "WaitingForRemediation", "Working", "False"},
		"that is at work by the other one": {func(m *clusterv1.Machine) {
			m.Status.Conditions = []metav1.Condition{{Type: "OwnerRemediated", Status: "False", Reason: "Working"}}
		}, "Working", "WaitingForRemediation", "False"},
		"that has deleted it": {func(m *clusterv1.Machine) { m.Finalizers = []string{"theirs"} }, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := runtime.NewScheme()
			g.Expect(clusterv1.AddToScheme(s)).To(Succeed())
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m1"}}
			row.change(machine)
			c := fake.NewClientBuilder().WithScheme(s).WithObjects(machine).WithStatusSubresource(machine).Build()
			if len(machine.Finalizers) > 0 {
				g.Expect(c.Delete(t.Context(), machine)).To(Succeed())
			}
			for range 2 {
				g.Expect(Machines{Client: c, Live: c}.LeaveToOwner(t.Context(), machine, "it was not healthy")).To(Succeed())
			}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
			reason, deprecated, status := "", "", corev1.ConditionStatus("")
			for _, condition := range machine.Status.Conditions {
				g.Expect(condition).To(And(HaveField("Type", "OwnerRemediated"), HaveField("Status", metav1.ConditionFalse)))
				reason += condition.Reason
			}
			if machine.Status.Deprecated != nil {
				for _, condition := range machine.Status.Deprecated.V1Beta1.Conditions {
					if condition.Type == "OwnerRemediated" {
						deprecated, status = deprecated+condition.Reason, condition.Status
					}
				}
			}
			g.Expect(reason).To(Equal(row.reason))
			g.Expect(deprecated).To(Equal(row.deprecated))
			g.Expect(status).To(Equal(row.deprecatedCondition))
		})
	}
}
