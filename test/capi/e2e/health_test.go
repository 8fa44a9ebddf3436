// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// patience is how long the health check lets a Node be away.
const patience = time.Second

var _ = Describe("A MachineHealthCheck", Ordered, func() {
	var worker string // The Machine that the hub reboots.

	BeforeAll(func(ctx SpecContext) {
		w.adopt(ctx, "checked")
		Eventually(condition(ctx, "checked", &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
		Expect(w.client.Create(ctx, healthCheck("checked"))).To(Succeed())
		Eventually(healthy).WithContext(ctx).Should(Equal([2]int32{3, 3}))
		worker = machineOf(ctx, "checked", "worker-1").Name
	}, NodeTimeout(2*minute))

	It("leaves a machine alone that the hub reboots, however long that takes", func(ctx SpecContext) {
		mark := w.Fleet.Journal().Last()
		w.ichor(ctx, 0, "node", "reboot", "worker-1", "--cluster", "checked", "--yes")
		_, err := w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "checked", Node: "worker-1", Method: invariant.DownEvent, After: mark})
		Expect(err).NotTo(HaveOccurred())
		w.Fleet.Cluster("checked").Node("worker-1").PowerOff() // It does not come back until the health check has had its chance.

		awaitJudgement(ctx, "worker-1")
		Expect(healthy(ctx)).To(Equal([2]int32{2, 2}), "the health check does not look at it")
		Expect(condition(ctx, worker, &clusterv1.Machine{}, clusterv1.MachineOwnerRemediatedCondition)()).To(Equal("absent"))

		w.Fleet.Cluster("checked").Node("worker-1").PowerOn()
		op := operation(ctx, "checked")
		Eventually(condition(ctx, op.Name, op, "Succeeded")).WithContext(ctx).Should(HavePrefix("True"))
		Eventually(healthy).WithContext(ctx).Should(Equal([2]int32{3, 3}), "it looks again")
		Expect(get(ctx, worker, &clusterv1.Machine{}).Annotations).NotTo(HaveKey(skip))
		Expect(condition(ctx, worker, &clusterv1.Machine{}, clusterv1.MachineOwnerRemediatedCondition)()).To(Equal("absent"))
	}, SpecTimeout(2*minute))

	It("has a machine remedied that goes away without the hub", func(ctx SpecContext) {
		w.Fleet.Cluster("checked").Node("worker-2").PowerOff()
		DeferCleanup(w.Fleet.Cluster("checked").Node("worker-2").PowerOn)
		Eventually(condition(ctx, machineOf(ctx, "checked", "worker-2").Name, &clusterv1.Machine{}, clusterv1.MachineOwnerRemediatedCondition)).
			WithContext(ctx).Should(HavePrefix("False WaitingForRemediation"))
		Expect(condition(ctx, worker, &clusterv1.Machine{}, clusterv1.MachineOwnerRemediatedCondition)()).To(Equal("absent"))
	}, SpecTimeout(minute))
})

// healthCheck watches over the workers of a cluster. Without Cluster API's webhooks it has to be complete.
func healthCheck(cluster string) *clusterv1.MachineHealthCheck {
	seconds := ptr.To(int32(patience.Seconds()))
	return &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: cluster,
			Selector: metav1.LabelSelector{
				MatchLabels:      map[string]string{clusterv1.ClusterNameLabel: cluster},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: clusterv1.MachineControlPlaneLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
			},
			Checks: clusterv1.MachineHealthCheckChecks{
				NodeStartupTimeoutSeconds: ptr.To(int32(0)),
				UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: seconds},
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: seconds},
				},
			},
			Remediation: clusterv1.MachineHealthCheckRemediation{
				TriggerIf: clusterv1.MachineHealthCheckRemediationTriggerIf{UnhealthyLessThanOrEqualTo: ptr.To(intstr.FromString("100%"))},
			},
		},
	}
}

// healthy is how many Machines the health check looks at, and how many of them it finds healthy.
func healthy(ctx context.Context) [2]int32 {
	GinkgoHelper()
	check := get(ctx, "checked", &clusterv1.MachineHealthCheck{})
	return [2]int32{ptr.Deref(check.Status.ExpectedMachines, -1), ptr.Deref(check.Status.CurrentHealthy, -1)}
}

// awaitJudgement returns when the health check has judged with a Node away for longer than it has patience.
func awaitJudgement(ctx context.Context, node string) {
	GinkgoHelper()
	name := machineOf(ctx, "checked", node).Name
	Eventually(condition(ctx, name, &clusterv1.Machine{}, clusterv1.MachineNodeReadyCondition)).WithContext(ctx).ShouldNot(HavePrefix("True"))
	away := meta.FindStatusCondition(get(ctx, name, &clusterv1.Machine{}).Status.Conditions, clusterv1.MachineNodeReadyCondition).LastTransitionTime
	Eventually(time.Now).WithContext(ctx).Should(BeTemporally(">", away.Add(patience+time.Second)))

	judged, err := judgements(ctx)
	Expect(err).NotTo(HaveOccurred())
	check := get(ctx, "checked", &clusterv1.MachineHealthCheck{})
	changed := check.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "test.ichor.maesh.dev/look", node)
	Expect(w.client.Patch(ctx, changed, client.MergeFrom(check))).To(Succeed())
	Eventually(judgements).WithContext(ctx).Should(BeNumerically(">", judged))
}

// judgements is how often Cluster API has gone through its health checks.
func judgements(ctx context.Context) (float64, error) {
	return w.core.Metric(ctx, "controller_runtime_reconcile_total", `controller="machinehealthcheck"`, `result="success"`)
}
