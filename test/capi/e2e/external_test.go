// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// sick is a condition of a Machine that the health check of these specs asks for.
const sick = "example.com/Sick"

var _ = Describe("A MachineHealthCheck with a template of the hub", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		w.adopt(ctx, "remedied")
		Eventually(condition(ctx, "remedied", &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
		Eventually(func() string { return machineOf(ctx, "remedied", "worker-2").Status.NodeRef.Name }).WithContext(ctx).Should(Equal("worker-2"))
		template := &v1alpha1.TalosRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reboot"}}
		template.Spec.Template.Spec.TimeoutSeconds = ptr.To(int32(1200))
		Expect(w.client.Create(ctx, template)).To(Succeed())
		check := healthCheck("remedied")
		check.Spec.Checks = clusterv1.MachineHealthCheckChecks{
			NodeStartupTimeoutSeconds:  ptr.To(int32(0)),
			UnhealthyMachineConditions: []clusterv1.UnhealthyMachineCondition{{Type: sick, Status: metav1.ConditionTrue, TimeoutSeconds: ptr.To(int32(1))}},
		}
		check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosRemediationTemplate", Name: "reboot",
		}
		Expect(w.client.Create(ctx, check)).To(Succeed())
	}, NodeTimeout(2*minute))

	It("leaves a machine to its owner where nobody has allowed the hub to reboot it", func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(w.client.Delete(ctx, remediationBinding()))).To(Succeed())
		mark := w.Fleet.Journal().Last()
		machine := machineOf(ctx, "remedied", "worker-3").Name
		setSick(ctx, machine, metav1.ConditionTrue)
		Eventually(condition(ctx, machine, &v1alpha1.TalosRemediation{}, v1alpha1.RemediatedCondition)).WithContext(ctx).Should(
			And(HavePrefix("False Forbidden"), ContainSubstring("ichor-hub-remediation")))
		Eventually(condition(ctx, machine, &clusterv1.Machine{}, clusterv1.MachineOwnerRemediatedCondition)).WithContext(ctx).Should(HavePrefix("False WaitingForRemediation"))
		Expect(rebootsOf("remedied", mark)).To(BeEmpty())
		setSick(ctx, machine, metav1.ConditionFalse)
		Eventually(gone(ctx, machine, &v1alpha1.TalosRemediation{})).WithContext(ctx).Should(BeTrue(), "Cluster API takes it back")
	}, SpecTimeout(2*minute))

	It("has a machine rebooted under the lock, once, and is content when that has helped", func(ctx SpecContext) {
		allowRemediation(ctx)
		mark := w.Fleet.Journal().Last()
		machine := machineOf(ctx, "remedied", "worker-1").Name
		setSick(ctx, machine, metav1.ConditionTrue)
		remediation := &v1alpha1.TalosRemediation{}
		Eventually(condition(ctx, machine, remediation, v1alpha1.RemediatedCondition)).WithContext(ctx).WithTimeout(2 * minute).Should(HavePrefix("True Rebooted"))
		op := get(ctx, remediation.Status.OperationName, &v1alpha1.TalosOperation{})
		Expect(op.Spec.Kind).To(Equal(v1alpha1.NodeKind))
		Expect(op.Spec.Node.Machine).To(Equal("remedied-worker-1"))
		Expect(rebootsOf("remedied", mark)).To(Equal([]string{"worker-1"}))

		setSick(ctx, machine, metav1.ConditionFalse)
		Eventually(gone(ctx, machine, &v1alpha1.TalosRemediation{})).WithContext(ctx).Should(BeTrue(), "Cluster API takes it back")
		Expect(condition(ctx, machine, &clusterv1.Machine{}, clusterv1.MachineOwnerRemediatedCondition)()).To(Equal("absent"))
		Expect(rebootsOf("remedied", mark)).To(HaveLen(1))
	}, SpecTimeout(4*minute))

	It("has a machine replaced that a reboot does not help in time", func(ctx SpecContext) {
		template := get(ctx, "reboot", &v1alpha1.TalosRemediationTemplate{})
		hasty := template.DeepCopy()
		hasty.Spec.Template.Spec.TimeoutSeconds = ptr.To(int32(60))
		Expect(w.client.Patch(ctx, hasty, client.MergeFrom(template))).To(Succeed())
		machine := machineOf(ctx, "remedied", "worker-2").Name
		setSick(ctx, machine, metav1.ConditionTrue)
		Eventually(condition(ctx, machine, &clusterv1.Machine{}, clusterv1.MachineOwnerRemediatedCondition)).WithContext(ctx).WithTimeout(3 * minute).Should(
			And(HavePrefix("False WaitingForRemediation"), ContainSubstring("within 1m0s")))
		Expect(condition(ctx, machine, &v1alpha1.TalosRemediation{}, v1alpha1.RemediatedCondition)()).To(HavePrefix("False TimedOut"))
	}, SpecTimeout(4*minute))
})

// remediationBinding allows the hub to reboot machines because health checks ask for it.
func remediationBinding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ichor-hub-remediation"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ichor-hub-remediation"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ichor-hub"}},
	}
}

// setSick says whether a Machine is sick.
func setSick(ctx context.Context, machine string, status metav1.ConditionStatus) {
	GinkgoHelper()
	Eventually(func() error {
		object := get(ctx, machine, &clusterv1.Machine{})
		changed := object.DeepCopy()
		meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{Type: sick, Status: status, Reason: "Told"})
		return w.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
	}).WithContext(ctx).Should(Succeed())
}
