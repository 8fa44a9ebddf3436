// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/access"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	namespace = "default"
	running   = "v1.13.9"
	wanted    = "v1.14.1"
	schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// user is a Backend of whoever a client is.
type user struct {
	name   string
	client client.Client
}

// Session implements service.Backend.
func (u user) Session(context.Context) (*service.Session, error) {
	return &service.Session{Caller: auth.Caller{Name: u.name}, Client: u.client, Live: u.client}, nil
}

// Fleet implements service.Backend.
func (u user) Fleet(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return nil, nil, errors.New("nothing here reads")
}

// guarded is the Backend of a hub: whoever the context says that it is.
type guarded struct {
	*access.Access
	user
}

// Session implements service.Backend.
func (g guarded) Session(ctx context.Context) (*service.Session, error) { return g.Access.Session(ctx) }

// hub is a server on a real management API.
type hub struct {
	*WithT
	config, hubConfig *rest.Config
	admin             client.Client
}

// guarded is a server that reaches the management API as a hub does, with no more than the hub's rights.
func (h *hub) guarded() *service.Server {
	through, err := access.New(access.Options{
		Config: h.hubConfig, Reader: h.admin, Scheme: h.admin.Scheme(), Mapper: h.admin.RESTMapper(), Clock: clock.RealClock{},
	})
	h.Expect(err).NotTo(HaveOccurred())
	return &service.Server{Backend: guarded{Access: through}, Now: time.Now}
}

func (h *hub) as(name string) *service.Server {
	config := rest.CopyConfig(h.config)
	if name != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: name}
	}
	made, err := client.New(config, client.Options{Scheme: scheme.New()})
	h.Expect(err).NotTo(HaveOccurred())
	return &service.Server{Backend: user{name, made}, Now: time.Now}
}

// TestOnTheManagementAPI is about what only a real API server does: it knows whose fields are whose, and who may what.
func TestOnTheManagementAPI(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plane, err := framework.StartPlane(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	admin, err := client.New(plane.Config, client.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	for name, test := range map[string]func(*hub, context.Context){
		"a start writes its own fields":                       (*hub).ownFields,
		"what somebody else owns is left alone":               (*hub).foreignFields,
		"what somebody else owns is handed over":              (*hub).handedOver,
		"what the hub owned under another name is taken over": (*hub).formerFields,
		"a version contract goes along, unless it is foreign": (*hub).contract,
		"a trial writes nothing":                              (*hub).trial,
		"the same call at once is one operation":              (*hub).atOnce,
		"who may only read changes nothing":                   (*hub).reader,
		"the roles of the hub are enough, and no more":        (*hub).roles,
	} {
		t.Run(name, func(t *testing.T) {
			test(&hub{WithT: NewWithT(t), config: plane.Config, hubConfig: plane.HubConfig, admin: admin}, t.Context())
		})
	}
}

// cluster makes a cluster of one worker, whose TalosCluster belongs to a field manager.
func (h *hub) cluster(ctx context.Context, manager string, spec v1alpha1.TalosClusterSpec) *v1alpha1.TalosCluster {
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "c-"}, Spec: spec}
	h.Expect(h.admin.Create(ctx, cluster, client.FieldOwner(manager))).To(Succeed())
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.Name + "-w-1", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": cluster.Name}},
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: cluster.Name, Role: v1alpha1.WorkerRole, Address: "10.0.0.1", Approval: v1alpha1.Approved},
	}
	h.Expect(h.admin.Create(ctx, machine)).To(Succeed())
	machine.Status = v1alpha1.TalosMachineStatus{NodeName: "w-1", TalosVersion: running, SchematicID: schematic}
	h.Expect(h.admin.Status().Update(ctx, machine)).To(Succeed())
	return cluster
}

// upgrade starts an upgrade of a cluster, under a key.
func upgrade(cluster, version, key string, change ...func(*pb.CreateOperationRequest)) *connect.Request[pb.CreateOperationRequest] {
	request := &pb.CreateOperationRequest{IdempotencyKey: key, Order: &pb.OperationOrder{
		Cluster: &pb.Reference{Namespace: namespace, Name: cluster}, Kind: pb.OperationKind_OPERATION_KIND_TALOS,
		Target: &pb.OperationTarget{TalosVersion: version},
	}}
	for _, c := range change {
		c(request)
	}
	return connect.NewRequest(request)
}

func (h *hub) read(ctx context.Context, cluster *v1alpha1.TalosCluster) {
	h.Expect(h.admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
}

// applied are the fields of the spec that starts have applied.
func applied(cluster *v1alpha1.TalosCluster) []string {
	var fields []string
	for _, entry := range cluster.ManagedFields {
		if entry.Manager != service.FieldManager {
			continue
		}
		for _, field := range []string{"talosVersion", "schematicID", "access", "maintenanceWindows", "versionContract"} {
			if strings.Contains(entry.FieldsV1.String(), `"f:`+field+`"`) {
				fields = append(fields, string(entry.Operation)+" "+field)
			}
		}
	}
	return fields
}

// finish makes an operation no obstacle to the next.
func (h *hub) finish(ctx context.Context, response *connect.Response[pb.CreateOperationResponse]) {
	op := &v1alpha1.TalosOperation{}
	h.Expect(h.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: response.Msg.GetOperation().GetRef().GetName()}, op)).To(Succeed())
	h.Expect(h.admin.Delete(ctx, op)).To(Succeed())
}

func (h *hub) ownFields(ctx context.Context) {
	windows := []v1alpha1.MaintenanceWindow{{Schedule: "0 1 * * *", DurationSeconds: 3600}}
	cluster := h.cluster(ctx, "kubectl-create", v1alpha1.TalosClusterSpec{MaintenanceWindows: windows})
	server := h.as("")
	first, err := server.CreateOperation(ctx, upgrade(cluster.Name, "v1.13.10", ""))
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(first.Msg.GetWroteSpec()).To(BeTrue())
	h.read(ctx, cluster)
	h.Expect(cluster.Spec).To(Equal(v1alpha1.TalosClusterSpec{TalosVersion: "v1.13.10", MaintenanceWindows: windows}))
	h.Expect(applied(cluster)).To(Equal([]string{"Apply talosVersion"}))
	h.finish(ctx, first)

	second, err := server.CreateOperation(ctx, upgrade(cluster.Name, wanted, "", func(r *pb.CreateOperationRequest) {
		r.Order.Target.SchematicId = strings.Repeat("a", 64)
	}))
	h.Expect(err).NotTo(HaveOccurred())
	h.finish(ctx, second)
	h.read(ctx, cluster)
	h.Expect(applied(cluster)).To(Equal([]string{"Apply talosVersion", "Apply schematicID"}))

	third, err := server.CreateOperation(ctx, upgrade(cluster.Name, "v1.14.2", ""))
	h.Expect(err).NotTo(HaveOccurred())
	h.finish(ctx, third)
	h.read(ctx, cluster)
	h.Expect(cluster.Spec).To(Equal(v1alpha1.TalosClusterSpec{
		TalosVersion: "v1.14.2", SchematicID: strings.Repeat("a", 64), MaintenanceWindows: windows,
	}), "what was applied before stays applied")
}

// apply is what kubectl apply --server-side does.
func (h *hub) apply(ctx context.Context, name, manager string, spec map[string]any) error {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TalosCluster"))
	object.SetNamespace(namespace)
	object.SetName(name)
	return h.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(manager))
}

func (h *hub) foreignFields(ctx context.Context) {
	cluster := h.cluster(ctx, "ichor-import", v1alpha1.TalosClusterSpec{})
	h.Expect(h.apply(ctx, cluster.Name, "team", map[string]any{"talosVersion": running, "schematicID": schematic})).To(Succeed())
	server := h.as("")
	_, err := server.CreateOperation(ctx, upgrade(cluster.Name, wanted, ""))
	h.Expect(connect.CodeOf(err)).To(Equal(connect.CodeFailedPrecondition))
	h.Expect(err).To(MatchError(ContainSubstring(`SpecOwned: spec.talosVersion of TalosCluster ` + cluster.Name + ` belongs to field manager "team"`)))
	planned, err := server.PlanOperation(ctx, connect.NewRequest(&pb.PlanOperationRequest{Order: upgrade(cluster.Name, wanted, "").Msg.GetOrder()}))
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(planned.Msg.GetPlan().GetRefusals()[0].GetGate()).To(Equal("SpecOwned"), "and a plan says so before")
	h.read(ctx, cluster)
	h.Expect(cluster.Spec.TalosVersion).To(Equal(running))

	h.Expect(h.apply(ctx, cluster.Name, "team", map[string]any{"talosVersion": wanted, "schematicID": schematic})).To(Succeed())
	made, err := server.CreateOperation(ctx, upgrade(cluster.Name, wanted, ""))
	h.Expect(err).NotTo(HaveOccurred(), "they have said what it shall be, in their way")
	h.Expect(made.Msg.GetWroteSpec()).To(BeFalse())
	h.read(ctx, cluster)
	h.Expect(applied(cluster)).To(BeEmpty())
	h.Expect(h.apply(ctx, cluster.Name, "team", map[string]any{"talosVersion": wanted, "schematicID": strings.Repeat("b", 64)})).To(Succeed(),
		"nothing of theirs was taken")
}

// contract writes the version of Talos and the contract at once, as the management API wants it, and leaves the patches beside it alone.
func (h *hub) contract(ctx context.Context) {
	patches := []v1alpha1.MachineConfigPatch{{Name: "ntp", Patch: "machine: {}"}}
	config := func(contract string) *v1alpha1.MachineConfigSpec {
		return &v1alpha1.MachineConfigSpec{VersionContract: contract, Patches: patches}
	}
	server := h.as("")
	own := h.cluster(ctx, "ichor-import", v1alpha1.TalosClusterSpec{TalosVersion: running, MachineConfig: config("v1.13")})
	first, err := server.CreateOperation(ctx, upgrade(own.Name, wanted, ""))
	h.Expect(err).NotTo(HaveOccurred())
	h.finish(ctx, first)
	h.read(ctx, own)
	h.Expect(own.Spec).To(Equal(v1alpha1.TalosClusterSpec{TalosVersion: wanted, MachineConfig: config("v1.14")}))
	h.Expect(applied(own)).To(Equal([]string{"Apply talosVersion", "Apply versionContract"}))
	second, err := server.CreateOperation(ctx, upgrade(own.Name, "v1.14.2", ""))
	h.Expect(err).NotTo(HaveOccurred())
	h.finish(ctx, second)
	h.read(ctx, own)
	h.Expect(own.Spec).To(Equal(v1alpha1.TalosClusterSpec{TalosVersion: "v1.14.2", MachineConfig: config("v1.14")}), "what was applied before stays applied")

	theirs := h.cluster(ctx, "ichor-import", v1alpha1.TalosClusterSpec{TalosVersion: running})
	h.Expect(h.apply(ctx, theirs.Name, "team", map[string]any{"machineConfig": map[string]any{"versionContract": "v1.13"}})).To(Succeed())
	third, err := server.CreateOperation(ctx, upgrade(theirs.Name, wanted, ""))
	h.Expect(err).NotTo(HaveOccurred(), "an older contract does no harm")
	h.finish(ctx, third)
	h.read(ctx, theirs)
	h.Expect(theirs.VersionContract()).To(Equal("v1.13"))
	h.Expect(applied(theirs)).To(Equal([]string{"Apply talosVersion"}))
	h.Expect(h.apply(ctx, theirs.Name, "team", map[string]any{"machineConfig": map[string]any{"versionContract": "v1.14"}})).To(Succeed(), "and they move it on in their way")
}

// handOver is the patch that a help has, and the field manager in whose name.
var handOver = regexp.MustCompile(`kubectl patch taloscluster (\S+) -n default --type merge --field-manager (\S+) -p '([^']*)'`)

// handedOver does what the help of a refusal says, whoever owns a field, and however they came to it.
func (h *hub) handedOver(ctx context.Context) {
	server := h.as("")
	for manager, own := range map[string]func(name string) error{
		"team": func(name string) error { return h.apply(ctx, name, "team", map[string]any{"talosVersion": running}) },
		"kubectl-edit": func(name string) error {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"talosVersion":"`+running+`"}}`))
			cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			return h.admin.Patch(ctx, cluster, patch, client.FieldOwner("kubectl-edit"))
		},
	} {
		cluster := h.cluster(ctx, "ichor-import", v1alpha1.TalosClusterSpec{})
		h.Expect(own(cluster.Name)).To(Succeed())
		planned, err := server.PlanOperation(ctx, connect.NewRequest(&pb.PlanOperationRequest{Order: upgrade(cluster.Name, "v1.13.10", "").Msg.GetOrder()}))
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(planned.Msg.GetPlan().GetRefusals()).To(HaveLen(1), manager)
		help := planned.Msg.GetPlan().GetRefusals()[0].GetHelp()
		h.Expect(len(help)).To(BeNumerically("<=", 256))
		command := handOver.FindStringSubmatch(help)
		h.Expect(command).To(HaveLen(4), help)
		h.Expect(command[1]).To(Equal(cluster.Name))
		h.Expect(h.admin.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(command[3])), client.FieldOwner(command[2]))).To(Succeed())

		first, err := server.CreateOperation(ctx, upgrade(cluster.Name, "v1.13.10", ""))
		h.Expect(err).NotTo(HaveOccurred(), manager)
		h.finish(ctx, first)
		second, err := server.CreateOperation(ctx, upgrade(cluster.Name, wanted, ""))
		h.Expect(err).NotTo(HaveOccurred(), "it stays the hub's")
		h.Expect(second.Msg.GetWroteSpec()).To(BeTrue())
		h.read(ctx, cluster)
		h.Expect(cluster.Spec.TalosVersion).To(Equal(wanted))
	}
}

func (h *hub) formerFields(ctx context.Context) {
	for _, manager := range []string{"ichor", "clusterctl"} {
		cluster := h.cluster(ctx, manager, v1alpha1.TalosClusterSpec{TalosVersion: running})
		_, err := h.as("").CreateOperation(ctx, upgrade(cluster.Name, wanted, ""))
		h.Expect(err).NotTo(HaveOccurred())
		h.read(ctx, cluster)
		h.Expect(cluster.Spec.TalosVersion).To(Equal(wanted))
		h.Expect(applied(cluster)).To(Equal([]string{"Apply talosVersion"}))
	}
	cluster := h.cluster(ctx, "kubectl", v1alpha1.TalosClusterSpec{TalosVersion: running})
	cluster.ManagedFields = []metav1.ManagedFieldsEntry{{}} // This is how all of them are removed.
	h.Expect(h.admin.Update(ctx, cluster)).To(Succeed())
	_, err := h.as("").CreateOperation(ctx, upgrade(cluster.Name, wanted, ""))
	h.Expect(err).NotTo(HaveOccurred(), "nobody is known to own it")
	h.read(ctx, cluster)
	h.Expect(cluster.Spec.TalosVersion).To(Equal(wanted))
}

func (h *hub) trial(ctx context.Context) {
	cluster := h.cluster(ctx, "ichor-import", v1alpha1.TalosClusterSpec{TalosVersion: running})
	h.read(ctx, cluster)
	before := cluster.ResourceVersion
	made, err := h.as("").CreateOperation(ctx, upgrade(cluster.Name, wanted, "trial", func(r *pb.CreateOperationRequest) { r.ValidateOnly = true }))
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(made.Msg.GetWroteSpec()).To(BeTrue(), "it would be")
	h.read(ctx, cluster)
	h.Expect(cluster.ResourceVersion).To(Equal(before))
	h.Expect(h.operations(ctx, cluster)).To(BeEmpty())
}

func (h *hub) operations(ctx context.Context, cluster *v1alpha1.TalosCluster) []v1alpha1.TalosOperation {
	list := &v1alpha1.TalosOperationList{}
	h.Expect(h.admin.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"cluster.x-k8s.io/cluster-name": cluster.Name})).To(Succeed())
	return list.Items
}

func (h *hub) atOnce(ctx context.Context) {
	cluster := h.cluster(ctx, "ichor-import", v1alpha1.TalosClusterSpec{TalosVersion: running})
	const calls = 8
	var group sync.WaitGroup
	var mu sync.Mutex
	var names []string
	existed := 0
	for range calls {
		group.Go(func() {
			made, err := h.as("").CreateOperation(ctx, upgrade(cluster.Name, wanted, "at-once"))
			mu.Lock()
			defer mu.Unlock()
			h.Expect(err).NotTo(HaveOccurred())
			names = append(names, made.Msg.GetOperation().GetRef().GetName())
			if made.Msg.GetExisted() {
				existed++
			}
		})
	}
	group.Wait()
	h.Expect(existed).To(Equal(calls - 1))
	h.Expect(names).To(HaveEach(names[0]))
	h.Expect(h.operations(ctx, cluster)).To(HaveLen(1))
}

func (h *hub) reader(ctx context.Context) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test-reader"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"ichor.maesh.dev", "cluster.x-k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"},
	}}}
	h.Expect(h.admin.Create(ctx, role)).To(Succeed())
	h.Expect(h.admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "test-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "reader"}},
	})).To(Succeed())
	cluster := h.cluster(ctx, "ichor-import", v1alpha1.TalosClusterSpec{TalosVersion: running})
	h.read(ctx, cluster)
	before := cluster.ResourceVersion
	server, ref := h.as("reader"), func(name string) *pb.Reference { return &pb.Reference{Namespace: namespace, Name: name} }
	for name, call := range map[string]func() error{
		"create": func() error { _, err := server.CreateOperation(ctx, upgrade(cluster.Name, wanted, "")); return err },
		"hold": func() error {
			_, err := server.HoldMachine(ctx, connect.NewRequest(&pb.HoldMachineRequest{Ref: ref(cluster.Name + "-w-1"), Held: true}))
			return err
		},
		"forget": func() error {
			_, err := server.ForgetCluster(ctx, connect.NewRequest(&pb.ForgetClusterRequest{Ref: ref(cluster.Name)}))
			return err
		},
	} {
		h.Expect(connect.CodeOf(call())).To(Equal(connect.CodePermissionDenied), name)
	}
	planned, err := server.PlanOperation(ctx, connect.NewRequest(&pb.PlanOperationRequest{Order: upgrade(cluster.Name, wanted, "").Msg.GetOrder()}))
	h.Expect(err).NotTo(HaveOccurred(), "who may read may see the plan")
	h.Expect(planned.Msg.GetPlan().GetRefusals()).To(BeEmpty())
	h.read(ctx, cluster)
	h.Expect(cluster.ResourceVersion).To(Equal(before))
	h.Expect(h.operations(ctx, cluster)).To(BeEmpty())
	_, err = h.as("stranger").PlanOperation(ctx, connect.NewRequest(&pb.PlanOperationRequest{Order: upgrade(cluster.Name, wanted, "").Msg.GetOrder()}))
	h.Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied), "and who may not, not even that")
}

// roles tries what each role of the hub may through the service.
func (h *hub) roles(ctx context.Context) {
	server := h.guarded()
	ref := func(name string) *pb.Reference { return &pb.Reference{Namespace: namespace, Name: name} }
	const denied = connect.CodePermissionDenied
	for _, row := range []struct {
		name string
		// call does something about a cluster and an operation of it that failed.
		call                    func(ctx context.Context, cluster, op string) error
		viewer, operator, admin connect.Code // Zero is no error.
	}{
		{"plan", func(ctx context.Context, cluster, _ string) error {
			_, err := server.PlanOperation(ctx, connect.NewRequest(&pb.PlanOperationRequest{Order: upgrade(cluster, wanted, "").Msg.GetOrder()}))
			return err
		}, 0, 0, 0},
		{"pause", func(ctx context.Context, _, op string) error {
			_, err := server.SetOperationPaused(ctx, connect.NewRequest(&pb.SetOperationPausedRequest{Ref: ref(op), Paused: true}))
			return err
		}, denied, 0, 0},
		{"retry", func(ctx context.Context, _, op string) error {
			_, err := server.RetryOperation(ctx, connect.NewRequest(&pb.RetryOperationRequest{Ref: ref(op)}))
			return err
		}, denied, 0, 0},
		{"hold", func(ctx context.Context, cluster, _ string) error {
			_, err := server.HoldMachine(ctx, connect.NewRequest(&pb.HoldMachineRequest{Ref: ref(cluster + "-w-1"), Held: true}))
			return err
		}, denied, 0, 0},
		{"approve", func(ctx context.Context, cluster, _ string) error {
			_, err := server.ApproveMachine(ctx, connect.NewRequest(&pb.ApproveMachineRequest{Ref: ref(cluster + "-w-2")}))
			return err
		}, denied, 0, 0},
		{"delete by force", func(ctx context.Context, _, op string) error {
			_, err := server.DeleteOperation(ctx, connect.NewRequest(&pb.DeleteOperationRequest{Ref: ref(op), Force: true, Reason: "x"}))
			return err
		}, denied, denied, 0},
		{"start", func(ctx context.Context, cluster, op string) error {
			h.gone(op)
			_, err := server.CreateOperation(ctx, upgrade(cluster, wanted, ""))
			return err
		}, denied, 0, 0},
		{"forget", func(ctx context.Context, cluster, op string) error {
			h.gone(op)
			_, err := server.ForgetCluster(ctx, connect.NewRequest(&pb.ForgetClusterRequest{Ref: ref(cluster)}))
			return err
		}, denied, denied, 0},
		{"import", func(ctx context.Context, _, _ string) error {
			_, err := server.ImportCluster(ctx, connect.NewRequest(&pb.ImportClusterRequest{
				Ref: ref("imported"), Offline: true, Kubeconfig: []byte("no kubeconfig"), Talosconfig: []byte("none"),
			}))
			return err
		}, denied, denied, connect.CodeInvalidArgument}, // It was read, which is as far as it has to come here.
	} {
		for group, want := range map[string]connect.Code{"ichor:viewers": row.viewer, "ichor:operators": row.operator, "ichor:admins": row.admin} {
			cluster := h.cluster(ctx, "ichor-import", v1alpha1.TalosClusterSpec{TalosVersion: running})
			op := h.failed(ctx, cluster.Name)
			caller := auth.Caller{Name: "jane", Groups: []string{group, "system:authenticated"}}
			err := row.call(auth.With(ctx, caller), cluster.Name, op)
			if want == 0 {
				h.Expect(err).NotTo(HaveOccurred(), "%s as one of %s", row.name, group)
			} else {
				h.Expect(connect.CodeOf(err)).To(Equal(want), "%s as one of %s: %v", row.name, group, err)
			}
		}
	}
}

// failed is an operation of a cluster that waits for a retry, and a machine that waits for its approval.
func (h *hub) failed(ctx context.Context, cluster string) string {
	labels := map[string]string{"cluster.x-k8s.io/cluster-name": cluster}
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster + "-w-2", Labels: labels},
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: cluster, Role: v1alpha1.WorkerRole, Address: "10.0.0.2", Approval: v1alpha1.ApprovalPending},
	}
	h.Expect(h.admin.Create(ctx, machine)).To(Succeed())
	op := &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster + "-talos-x", Labels: labels},
		Spec:       v1alpha1.TalosOperationSpec{ClusterName: cluster, Kind: v1alpha1.TalosKind},
	}
	h.Expect(h.admin.Create(ctx, op)).To(Succeed())
	op.Status.FailureReason = "machine w-1: it broke"
	h.Expect(h.admin.Status().Update(ctx, op)).To(Succeed())
	return op.Name
}

func (h *hub) gone(op string) {
	h.Expect(h.admin.Delete(context.Background(), &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: op}})).To(Succeed())
}
