// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/hub/scheme"
)

const skipRemediation = "cluster.x-k8s.io/skip-remediation"

// guarding is a Reconciler on a fake API with one Machine, and the scope of an operation on cluster c1, which providers of Cluster API
// made. Writes are noted, and those of Machines fail with trouble.
type guarding struct {
	*Reconciler

	scope   *scope
	writes  []string
	trouble error

	// known are machines that the scope does not know any more.
	known []v1alpha1.TalosMachine
}

func newGuarding(t *testing.T, annotations map[string]string, units ...v1alpha1.UnitStatus) *guarding {
	t.Helper()
	capiMachine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "m1", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}, Annotations: annotations,
	}}
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "o1"}}
	op.Spec.ClusterName = "c1"
	g := &guarding{}
	c := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(capiMachine, op).WithStatusSubresource(op).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			g.writes = append(g.writes, "patch "+object.GetName())
			if g.trouble != nil {
				return g.trouble
			}
			return c.Patch(ctx, object, patch, options...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
			g.writes = append(g.writes, "update "+object.GetName()+"/"+sub)
			return c.SubResource(sub).Update(ctx, object, options...)
		},
	}).Build()
	g.Reconciler = New(t.Context(), Options{Client: c, APIReader: c})
	machine := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-w-1"}}
	machine.Status.MachineName = "m1"
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "TalosControlPlane", Name: "c1"}
	g.scope = &scope{
		key: client.ObjectKeyFromObject(op), op: op,
		Facts:  targets.Facts{Cluster: &v1alpha1.TalosCluster{}, CAPICluster: cluster, Machines: []v1alpha1.TalosMachine{machine}},
		stages: []plan.Stage{{Name: "pull", Machines: []string{"c1-w-1"}}, {Name: "reboot", Machines: []string{"c1-w-1"}, Disruptive: true}},
	}
	NewWithT(t).Expect(c.Get(t.Context(), g.scope.key, op)).To(Succeed())
	op.Status.Machines = units
	return g
}

func (g *guarding) annotation(t *testing.T) string {
	t.Helper()
	machine := &clusterv1.Machine{}
	NewWithT(t).Expect(g.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "m1"}, machine)).To(Succeed())
	return machine.Annotations[skipRemediation]
}

func inStage(stage, completed string) v1alpha1.UnitStatus {
	return v1alpha1.UnitStatus{Name: "c1-w-1", Phase: v1alpha1.UnitInProgress, Stage: stage, CompletedStage: completed, Step: "Draining"}
}

func TestGuardMachines(t *testing.T) {
	const mine = "ichor-controller/op/default/o1"
	failed := inStage("reboot", "pull")
	failed.FailureTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for name, row := range map[string]struct {
		annotations map[string]string
		units       []v1alpha1.UnitStatus
		change      func(*scope)
		want        string
	}{
		"nothing in hand":                {nil, nil, nil, ""},
		"in a stage that disrupts":       {nil, []v1alpha1.UnitStatus{inStage("reboot", "pull")}, nil, mine},
		"in a stage that does not":       {nil, []v1alpha1.UnitStatus{inStage("pull", "")}, nil, ""},
		"between stages":                 {nil, []v1alpha1.UnitStatus{inStage("pull", "pull")}, nil, ""},
		"failed":                         {nil, []v1alpha1.UnitStatus{failed}, nil, ""},
		"somebody else's wish":           {map[string]string{skipRemediation: "because"}, []v1alpha1.UnitStatus{inStage("reboot", "pull")}, nil, "because"},
		"an operation of long ago":       {map[string]string{skipRemediation: "ichor-controller/op/default/o0"}, []v1alpha1.UnitStatus{inStage("reboot", "pull")}, nil, mine},
		"a cluster that nobody else has": {nil, []v1alpha1.UnitStatus{inStage("reboot", "pull")}, func(s *scope) { s.CAPICluster.Spec = clusterv1.ClusterSpec{} }, ""},
		"a machine that is gone":         {nil, []v1alpha1.UnitStatus{inStage("reboot", "pull")}, func(s *scope) { s.Machines = nil }, ""},
		"a machine without Machine":      {nil, []v1alpha1.UnitStatus{inStage("reboot", "pull")}, func(s *scope) { s.Machines[0].Status.MachineName = "m2" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarding(t, row.annotations, row.units...)
			if row.change != nil {
				row.change(g.scope)
			}
			NewWithT(t).Expect(g.guardMachines(t.Context(), g.scope)).To(Succeed())
			NewWithT(t).Expect(g.annotation(t)).To(Equal(row.want))
		})
	}
}

// A Node that goes away before Cluster API knows that it may could cost its Machine.
func TestMachinesAreGuardedBeforeTheClaim(t *testing.T) {
	gomega := NewWithT(t)
	g := newGuarding(t, nil, inStage("reboot", "pull"))
	read := g.scope.op.DeepCopy()
	read.Status = v1alpha1.TalosOperationStatus{}
	g.trouble = errors.New("the API server is away")
	gomega.Expect(g.persist(t.Context(), read, g.scope)).To(MatchError(ContainSubstring("keeping health checks from machine c1-w-1")))
	gomega.Expect(g.writes).To(Equal([]string{"patch m1"}), "without it nothing is claimed")

	g.trouble, g.writes = nil, nil
	gomega.Expect(g.persist(t.Context(), read, g.scope)).To(Succeed())
	gomega.Expect(g.writes).To(Equal([]string{"patch m1", "update o1/status"}))
}
