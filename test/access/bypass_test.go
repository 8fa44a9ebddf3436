// SPDX-License-Identifier: Apache-2.0

// Package access_test calls a hub as people who may not do what they try, on the real API server with the real roles and policies.
package access_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/config/rbac"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
)

// elsewhere is a namespace in which nobody has a role.
const elsewhere = "elsewhere"

// somebody calls a hub.
type somebody struct {
	operations ichorv1alpha1connect.OperationServiceClient
	clusters   ichorv1alpha1connect.ClusterServiceClient
	audit      ichorv1alpha1connect.AuditServiceClient
}

func call(g *WithT, h *harness.Harness, user string) somebody {
	token, err := h.Token(user)
	g.Expect(err).NotTo(HaveOccurred())
	http, err := h.HTTPClient(token, 2)
	g.Expect(err).NotTo(HaveOccurred())
	return somebody{
		operations: ichorv1alpha1connect.NewOperationServiceClient(http, h.URL()),
		clusters:   ichorv1alpha1connect.NewClusterServiceClient(http, h.URL()),
		audit:      ichorv1alpha1connect.NewAuditServiceClient(http, h.URL()),
	}
}

// bind gives users a role in the namespace of the clusters.
func bind(ctx context.Context, g *WithT, h *harness.Harness, roles map[string]string) {
	for user, role := range roles {
		g.Expect(h.Client.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})).To(Succeed())
	}
}

// written are the objects that an attempt could have changed, with what changes when somebody writes them.
func written(ctx context.Context, g *WithT, c client.Client) map[string]string {
	found := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1alpha1.TalosClusterList{}, &v1alpha1.TalosMachineList{}, &v1alpha1.TalosOperationList{}, &corev1.SecretList{},
	} {
		g.Expect(c.List(ctx, list)).To(Succeed())
		for _, object := range objects(list) {
			found[fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object))] = fmt.Sprint(object.GetGeneration(), object.GetAnnotations(), object.GetDeletionTimestamp())
		}
	}
	return found
}

func objects(list client.ObjectList) []client.Object {
	var found []client.Object
	switch l := list.(type) {
	case *v1alpha1.TalosClusterList:
		for i := range l.Items {
			found = append(found, &l.Items[i])
		}
	case *v1alpha1.TalosMachineList:
		for i := range l.Items {
			found = append(found, &l.Items[i])
		}
	case *v1alpha1.TalosOperationList:
		for i := range l.Items {
			found = append(found, &l.Items[i])
		}
	case *corev1.SecretList:
		for i := range l.Items {
			found = append(found, &l.Items[i])
		}
	}
	return found
}

// attempts are what nobody of these may do, and what the refusal names.
func attempts(g *WithT, h *harness.Harness) []struct {
	who, action, names string
	try                func(context.Context) error
} {
	viewer, operator, admin := call(g, h, "vera"), call(g, h, "otto"), call(g, h, "ada")
	ref := func(name string) *pb.Reference { return &pb.Reference{Namespace: harness.Namespace, Name: name} }
	start := func(by somebody, order *pb.OperationOrder) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := by.operations.CreateOperation(ctx, connect.NewRequest(&pb.CreateOperationRequest{Order: order}))
			return err
		}
	}
	reboot := &pb.OperationOrder{Cluster: ref("a"), Kind: pb.OperationKind_OPERATION_KIND_NODE, Parameters: &pb.OperationParameters{
		Parameters: &pb.OperationParameters_Node{Node: &pb.NodeParameters{Machine: "a-worker-1", Action: "Reboot"}},
	}}
	overridden := &pb.OperationOrder{Cluster: reboot.GetCluster(), Kind: reboot.GetKind(), Parameters: reboot.GetParameters(), Overrides: []*pb.GateOverride{{Gate: "WorkersAvailable", Reason: "x"}}}
	away := &pb.OperationOrder{Cluster: &pb.Reference{Namespace: elsewhere, Name: "a"}, Kind: pb.OperationKind_OPERATION_KIND_TALOS, Target: &pb.OperationTarget{TalosVersion: "v1.14.1"}}
	retry := func(by somebody, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := by.operations.RetryOperation(ctx, connect.NewRequest(&pb.RetryOperationRequest{Ref: ref(name)}))
			return err
		}
	}
	remove := func(by somebody, force bool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := by.operations.DeleteOperation(ctx, connect.NewRequest(&pb.DeleteOperationRequest{Ref: ref("stopped"), Force: force, Reason: "x"}))
			return err
		}
	}
	forget := func(by somebody) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := by.clusters.ForgetCluster(ctx, connect.NewRequest(&pb.ForgetClusterRequest{Ref: ref("b")}))
			return err
		}
	}
	return []struct {
		who, action, names string
		try                func(context.Context) error
	}{
		{"vera", "CreateOperation", "start", start(viewer, reboot)},
		{"vera", "RetryOperation", "patch", retry(viewer, "stopped")},
		{"vera", "DeleteOperation", "talosoperations", remove(viewer, false)},
		{"vera", "SetOperationPaused", "talosoperations", func(ctx context.Context) error {
			_, err := viewer.operations.SetOperationPaused(ctx, connect.NewRequest(&pb.SetOperationPausedRequest{Ref: ref("stopped")}))
			return err
		}},
		{"vera", "HoldMachine", "talosmachines", func(ctx context.Context) error {
			_, err := viewer.clusters.HoldMachine(ctx, connect.NewRequest(&pb.HoldMachineRequest{Ref: ref("a-worker-1"), Held: true}))
			return err
		}},
		{"vera", "ForgetCluster", "clusters", forget(viewer)},
		{"otto", "CreateOperation", "override", start(operator, overridden)},
		{"otto", "RetryOperation", "start", retry(operator, "off")},
		{"otto", "DeleteOperation", "override", remove(operator, true)},
		{"otto", "ForgetCluster", "clusters", forget(operator)},
		{"ada", "CreateOperation", elsewhere, start(admin, away)},
	}
}

// Whoever may not do something changes nothing by trying, whichever way the service takes; each attempt is in the audit, and a hub that was
// started anew says the same.
func TestAttemptsBeyondARoleChangeNothingAndAreInTheAudit(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := harness.Start(ctx, harness.Options{Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 1, Workers: 1}, {Name: "b", ControlPlanes: 1}}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Stop()).To(Succeed()) })
	g.Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}})).To(Succeed())
	bind(ctx, g, h, map[string]string{"vera": rbac.ViewerRole, "otto": rbac.OperatorRole, "ada": rbac.AdminRole})
	g.Expect(h.Import(ctx, "a")).To(Succeed())
	g.Expect(h.Import(ctx, "b")).To(Succeed())
	for name, spec := range map[string]v1alpha1.TalosOperationSpec{
		"stopped": {ClusterName: "a", Kind: v1alpha1.TalosKind},
		"off":     {ClusterName: "a", Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Machine: "a-worker-1", Action: v1alpha1.ShutdownAction}},
	} {
		paused := true
		spec.Paused = &paused
		op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: name}, Spec: spec}
		g.Expect(h.Client.Create(ctx, op)).To(Succeed())
		g.Eventually(func() (string, error) {
			current, err := h.Operation(ctx, op)
			return string(current.Status.Phase), err
		}, 20*time.Second).Should(Equal("Paused"))
		// As if a step had failed, so that there is something to retry.
		failed, err := h.Operation(ctx, op)
		g.Expect(err).NotTo(HaveOccurred())
		failed.Status.FailureReason = "a step failed"
		g.Expect(h.Client.Status().Update(ctx, failed)).To(Succeed())
	}
	g.Eventually(func() error {
		_, err := call(g, h, "vera").operations.GetOperation(ctx, connect.NewRequest(&pb.GetOperationRequest{Ref: &pb.Reference{Namespace: harness.Namespace, Name: "stopped"}}))
		return err
	}, 20*time.Second).Should(Succeed())

	before := written(ctx, g, h.Client)
	tries := attempts(g, h)
	for _, attempt := range tries {
		err := attempt.try(ctx)
		g.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied), "%s %s: %v", attempt.who, attempt.action, err)
		g.Expect(err).To(MatchError(ContainSubstring(attempt.names)), "%s %s", attempt.who, attempt.action)
	}
	g.Expect(written(ctx, g, h.Client)).To(Equal(before))

	audited := func() []string {
		response, err := call(g, h, "vera").audit.ListAudit(ctx, connect.NewRequest(&pb.ListAuditRequest{Filter: &pb.AuditFilter{
			Results: []pb.AuditResult{pb.AuditResult_AUDIT_RESULT_DENIED}, Namespaces: []string{harness.Namespace},
		}}))
		if err != nil {
			return []string{err.Error()}
		}
		var found []string
		for _, entry := range response.Msg.GetEntries() {
			found = append([]string{entry.GetUser() + " " + entry.GetAction()}, found...)
		}
		return found
	}
	var want []string
	for _, attempt := range tries[:len(tries)-1] { // The last one is in the audit of the other namespace.
		want = append(want, attempt.who+" "+attempt.action)
	}
	g.Eventually(audited, 10*time.Second).Should(Equal(want))
	_, err = call(g, h, "vera").audit.ListAudit(ctx, connect.NewRequest(&pb.ListAuditRequest{Filter: &pb.AuditFilter{Namespaces: []string{elsewhere}}}))
	g.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied))

	g.Expect(h.KillHub()).To(Succeed())
	g.Expect(h.StartHub()).To(Succeed())
	g.Eventually(audited, 30*time.Second).Should(Equal(want), "after a restart")
}
