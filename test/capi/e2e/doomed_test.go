// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

// What waits for a dead machine must not keep the lock from its deletion.
var _ = Describe("A machine that does not answer any more", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		w.adopt(ctx, "doomed")
		Eventually(condition(ctx, "doomed", &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
		Eventually(func() map[string]string { return machineOf(ctx, "doomed", "cp-3").Annotations }).WithContext(ctx).Should(HaveKey(preDrain))
		allowRemediation(ctx)
	}, NodeTimeout(2*minute))

	It("is left to its owner when its time is over, and its operation goes", func(ctx SpecContext) {
		w.Fleet.Cluster("doomed").Node("worker-1").PowerOff()
		op := leftToItsOwner(ctx, machineOf(ctx, "doomed", "worker-1"))
		Expect(op.Spec.Node.Machine).To(Equal("doomed-worker-1"))
		Eventually(gone(ctx, op.Name, op)).WithContext(ctx).Should(BeTrue())
		Eventually(holderOf).WithArguments(ctx, "doomed").WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(4*minute))

	It("goes although it is a control plane that an operation waits for", func(ctx SpecContext) {
		dead := w.Fleet.Cluster("doomed").Node("cp-3")
		if w.Fleet.Cluster("doomed").Leader() == dead {
			dead = w.Fleet.Cluster("doomed").Node("cp-2")
		}
		machine := machineOf(ctx, "doomed", dead.Name())
		mark := w.Fleet.Journal().Last()
		dead.PowerOff()
		Eventually(condition(ctx, "doomed", &v1alpha1.TalosCluster{}, "EtcdHealthy")).WithContext(ctx).ShouldNot(HavePrefix("True"))
		w.ichor(ctx, 0, "node", "reboot", "cp-1", "--cluster", "doomed", "--yes")
		op := operation(ctx, "doomed")
		Eventually(condition(ctx, op.Name, op, "Progressing")).WithContext(ctx).Should(HavePrefix("False"))
		Eventually(holderOf).WithArguments(ctx, "doomed").WithContext(ctx).Should(HaveSuffix("/op/default/" + op.Name))

		Expect(w.client.Delete(ctx, machine)).To(Succeed())
		Eventually(condition(ctx, op.Name, op, "Paused")).WithContext(ctx).Should(And(HavePrefix("True ClusterLockHeld"), ContainSubstring(machine.Name)))
		Eventually(gone(ctx, machine.Name, machine)).WithContext(ctx).WithTimeout(2 * minute).Should(BeTrue())
		Expect(rebootsOf("doomed", mark)).To(BeEmpty())
	}, SpecTimeout(5*minute))
})

// holderOf is who holds the lock of a cluster, as its TalosCluster says.
func holderOf(ctx context.Context, cluster string) string {
	GinkgoHelper()
	return get(ctx, cluster, &v1alpha1.TalosCluster{}).Status.LockHolder
}

// leftToItsOwner asks for a remediation of a Machine as a health check does, and returns its operation when the Machine is left to its owner.
func leftToItsOwner(ctx context.Context, machine *clusterv1.Machine) *v1alpha1.TalosOperation {
	GinkgoHelper()
	remediation := &v1alpha1.TalosRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: machine.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: machine.Spec.ClusterName},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID}},
	}}
	remediation.Spec.TimeoutSeconds = ptr.To(int32(60))
	Expect(w.client.Create(ctx, remediation)).To(Succeed())
	Eventually(func() string { return get(ctx, machine.Name, remediation).Status.OperationName }).WithContext(ctx).ShouldNot(BeEmpty())
	op := get(ctx, remediation.Status.OperationName, &v1alpha1.TalosOperation{})
	Eventually(holderOf).WithArguments(ctx, machine.Spec.ClusterName).WithContext(ctx).Should(HaveSuffix("/op/default/"+op.Name), "it waits with the lock")
	Eventually(condition(ctx, machine.Name, &clusterv1.Machine{}, clusterv1.MachineOwnerRemediatedCondition)).WithContext(ctx).WithTimeout(2 * minute).Should(
		And(HavePrefix("False WaitingForRemediation"), ContainSubstring("within 1m0s")))
	Expect(get(ctx, machine.Name, machine).Status.Deprecated.V1Beta1.Conditions).To(ContainElement(HaveField("Type", clusterv1.MachineOwnerRemediatedV1Beta1Condition)))
	return op
}

// allowRemediation lets the hub reboot machines because health checks ask for it.
func allowRemediation(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(w.client.Create(ctx, remediationBinding()))).To(Succeed())
}
