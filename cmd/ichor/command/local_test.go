// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/framework"
)

// Without a hub, the same commands work on the management API, in this process: they list, hold, approve, plan, refuse and follow.
func TestInProcess(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	plane, err := framework.StartPlane(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	admin, err := client.New(plane.Config, client.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}
	}
	machine := &v1alpha1.TalosMachine{ObjectMeta: meta("c1-w-1"), Spec: v1alpha1.TalosMachineSpec{
		ClusterName: "c1", Role: v1alpha1.WorkerRole, Address: "10.0.0.9", Approval: v1alpha1.ApprovalPending,
	}}
	op := &v1alpha1.TalosOperation{ObjectMeta: meta("op-1"), Spec: v1alpha1.TalosOperationSpec{
		ClusterName: "c1", Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Machine: "c1-w-1", Action: v1alpha1.RebootAction},
	}}
	for _, object := range []client.Object{&v1alpha1.TalosCluster{ObjectMeta: meta("c1")}, machine, op} {
		g.Expect(admin.Create(ctx, object)).To(Succeed())
	}
	u := newUser(t, nil)
	u.interrupt = ctx
	ichor := func(args ...string) result { return u.ichor(append(args, "--kubeconfig", plane.Kubeconfig)...) }

	g.Expect(ichor("cluster", "list", "-o", "name")).To(Equal(result{Out: "taloscluster.ichor.maesh.dev/c1\n"}))
	g.Expect(ichor("machine", "list").Out).To(MatchRegexp(`c1-w-1 +c1 +- +Worker +Unknown .* pending approval`))
	g.Expect(ichor("machine", "approve", "c1-w-1").Out).To(Equal("Machine c1-w-1 is approved: operations take it from now on.\n"))
	g.Expect(ichor("machine", "hold", "c1-w-1", "--note", "disk swap").Code).To(BeZero())
	g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	g.Expect(machine.Spec.Approval).To(Equal(v1alpha1.Approved))
	g.Expect(machine.Annotations).To(HaveKeyWithValue(v1alpha1.UpgradeHoldAnnotation, "disk swap"))

	g.Expect(ichor("operation", "pause", "op-1").Code).To(BeZero())
	g.Expect(ichor("operation", "resume", "op-1").Out).To(Equal("Operation op-1: unpaused.\n"))
	refused := ichor("upgrade", "talos", "v1.14.1", "--cluster", "c1", "--yes")
	g.Expect(refused).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("refused"))))
	g.Expect(ichor("operation", "get", "op-9")).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring(`there is no operation "op-9" in namespace "default"`))))
	g.Expect(ichor("whoami").Out).To(ContainSubstring("Signed in by:  kubeconfig"))

	op.Status = v1alpha1.TalosOperationStatus{
		Phase: v1alpha1.OperationCompleted, StartTime: metav1.NewTime(now), CompletionTime: metav1.NewTime(now.Add(time.Minute)),
	}
	followed := make(chan result, 1)
	go func() { followed <- ichor("operation", "watch", "op-1") }()
	patch := client.MergeFrom(&v1alpha1.TalosOperation{ObjectMeta: op.ObjectMeta})
	g.Expect(admin.Status().Patch(ctx, op, patch)).To(Succeed())
	g.Eventually(followed).WithContext(ctx).WithTimeout(time.Minute).Should(Receive(And(HaveField("Code", 0), HaveField("Out", HaveSuffix("Completed within 1m0s.\n")))))
}
