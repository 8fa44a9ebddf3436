// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/scheme"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

var start = time.Date(2026, 11, 29, 19, 18, 30, 123456789, time.UTC)

// services answer as they are told.
type services struct {
	ichorv1alpha1connect.UnimplementedOperationServiceHandler
	ichorv1alpha1connect.UnimplementedClusterServiceHandler

	err error
}

func (s *services) CreateOperation(context.Context, *connect.Request[pb.CreateOperationRequest]) (*connect.Response[pb.CreateOperationResponse], error) {
	if s.err != nil {
		return nil, s.err
	}
	return connect.NewResponse(&pb.CreateOperationResponse{Operation: &pb.Operation{Ref: &pb.Reference{Namespace: "team-a", Name: "c1-talos-x"}}}), nil
}

func (s *services) RetryOperation(context.Context, *connect.Request[pb.RetryOperationRequest]) (*connect.Response[pb.RetryOperationResponse], error) {
	return connect.NewResponse(&pb.RetryOperationResponse{}), s.err
}

func (s *services) DeleteOperation(context.Context, *connect.Request[pb.DeleteOperationRequest]) (*connect.Response[pb.DeleteOperationResponse], error) {
	return connect.NewResponse(&pb.DeleteOperationResponse{Gone: true}), s.err
}

func (s *services) GetOperation(context.Context, *connect.Request[pb.GetOperationRequest]) (*connect.Response[pb.GetOperationResponse], error) {
	return connect.NewResponse(&pb.GetOperationResponse{}), s.err
}

func (s *services) ImportCluster(context.Context, *connect.Request[pb.ImportClusterRequest]) (*connect.Response[pb.ImportClusterResponse], error) {
	return connect.NewResponse(&pb.ImportClusterResponse{}), s.err
}

func (s *services) HoldMachine(context.Context, *connect.Request[pb.HoldMachineRequest]) (*connect.Response[pb.HoldMachineResponse], error) {
	return connect.NewResponse(&pb.HoldMachineResponse{Changed: true, Machine: &pb.Machine{
		Ref: &pb.Reference{Namespace: "team-a", Name: "c1-w-1"}, Cluster: &pb.Reference{Namespace: "team-a", Name: "c1"},
	}}), s.err
}

// world is a hub that audits, and somebody who calls it.
type world struct {
	services   services
	objects    client.WithWatch
	recorder   *Recorder
	operations ichorv1alpha1connect.OperationServiceClient
	clusters   ichorv1alpha1connect.ClusterServiceClient

	mu     sync.Mutex
	logged []string
	now    time.Time
	refuse error // What creating an entry ends with.
}

func newWorld(t *testing.T, caller *auth.Caller, objects ...client.Object) *world {
	t.Helper()
	w := &world{now: start}
	w.objects = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if w.refuse != nil {
				return w.refuse
			}
			return c.Create(ctx, object, options...)
		},
	})
	w.recorder = NewRecorder(w.objects, funcr.New(func(prefix, line string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.logged = append(w.logged, prefix+line)
	}, funcr.Options{}))
	w.recorder.Now = func() time.Time { return w.now }
	authenticate := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			if caller != nil {
				ctx = auth.With(ctx, *caller)
			}
			return next(ctx, request)
		}
	})
	mux := http.NewServeMux()
	options := connect.WithInterceptors(authenticate, Interceptor(w.recorder))
	mux.Handle(ichorv1alpha1connect.NewOperationServiceHandler(&w.services, options))
	mux.Handle(ichorv1alpha1connect.NewClusterServiceHandler(&w.services, options))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.operations = ichorv1alpha1connect.NewOperationServiceClient(server.Client(), server.URL)
	w.clusters = ichorv1alpha1connect.NewClusterServiceClient(server.Client(), server.URL)
	return w
}

// entries are the specs of what was written, oldest first.
func (w *world) entries(t *testing.T) []v1alpha1.AuditEntry {
	t.Helper()
	list := &v1alpha1.AuditEntryList{}
	NewWithT(t).Expect(w.objects.List(t.Context(), list)).To(Succeed())
	return list.Items
}

var ann = auth.Caller{Name: "ann", Groups: []string{"ops", ""}, Source: "192.0.2.7:1234", Client: "ichor/v1"}

func ref(name string) *pb.Reference { return &pb.Reference{Namespace: "team-a", Name: name} }

func TestEntrySaysWhoAskedForWhatAndWhatCameOfIt(t *testing.T) {
	order := &pb.CreateOperationRequest{Order: &pb.OperationOrder{
		Cluster: ref("c1"), Kind: pb.OperationKind_OPERATION_KIND_TALOS, Target: &pb.OperationTarget{TalosVersion: "v1.14.1"},
		Overrides: []*pb.GateOverride{{Gate: "EtcdHealthy", Reason: "drill"}},
	}}
	halfway := connect.NewError(connect.CodePermissionDenied, errors.New("no"))
	detail, err := connect.NewErrorDetail(&pb.PartlyDone{Done: "spec"})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	halfway.AddDetail(detail)
	for name, row := range map[string]struct {
		err    error
		result v1alpha1.AuditResult
		effect v1alpha1.AuditEffect
	}{
		"done":               {nil, v1alpha1.AuditDone, v1alpha1.AuditChanged},
		"denied":             {connect.NewError(connect.CodePermissionDenied, errors.New("no")), v1alpha1.AuditDenied, v1alpha1.AuditUnchanged},
		"a gate":             {connect.NewError(connect.CodeFailedPrecondition, errors.New("no")), v1alpha1.AuditRefused, v1alpha1.AuditUnchanged},
		"a value":            {connect.NewError(connect.CodeInvalidArgument, errors.New("no")), v1alpha1.AuditRefused, v1alpha1.AuditUnchanged},
		"not there":          {connect.NewError(connect.CodeNotFound, errors.New("no")), v1alpha1.AuditRefused, v1alpha1.AuditUnchanged},
		"somebody was first": {connect.NewError(connect.CodeAborted, errors.New("no")), v1alpha1.AuditFailed, v1alpha1.AuditUnchanged},
		"the API is away":    {connect.NewError(connect.CodeUnavailable, errors.New("no")), v1alpha1.AuditFailed, v1alpha1.AuditUnchanged},
		"half-way":           {halfway, v1alpha1.AuditFailed, v1alpha1.AuditChanged},
		"too late":           {connect.NewError(connect.CodeDeadlineExceeded, errors.New("no")), v1alpha1.AuditFailed, v1alpha1.AuditUnchanged},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t, &ann)
			w.services.err = row.err
			_, err := w.operations.CreateOperation(t.Context(), connect.NewRequest(order))
			g.Expect(err == nil).To(Equal(row.err == nil))
			entries := w.entries(t)
			g.Expect(entries).To(HaveLen(1))
			want := v1alpha1.AuditEntrySpec{
				Time: entries[0].Spec.Time, User: "ann", Groups: []string{"ops"}, Reporter: v1alpha1.AuditByHub, Action: "CreateOperation", ClusterName: "c1",
				Detail: "start talos, talosVersion v1.14.1", Source: "192.0.2.7:1234", Client: "ichor/v1", Result: row.result, Effect: row.effect,
				Overrides: []v1alpha1.GateOverride{{Gate: "EtcdHealthy", Reason: "drill"}},
			}
			if row.err == nil {
				want.OperationName = "c1-talos-x"
			} else {
				want.Message = "no"
			}
			g.Expect(entries[0].Spec).To(Equal(want))
			g.Expect(entries[0].Spec.Time.Time).To(BeTemporally("~", start, time.Microsecond))
			g.Expect(entries[0].Namespace).To(Equal("team-a"))
			g.Expect(entries[0].Name).To(MatchRegexp(`^20261129t191830-123456789z-[a-z0-9]{5}$`))
			g.Expect(entries[0].Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c1"))
			g.Expect(w.logged).To(ContainElement(And(ContainSubstring(`"user"="ann"`), ContainSubstring(`"result"="`+string(row.result)+`"`))))
		})
	}
}

func TestOnlyWhatChangesSomethingIsRecorded(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, &ann)
	_, err := w.operations.GetOperation(t.Context(), connect.NewRequest(&pb.GetOperationRequest{Ref: ref("x")}))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.operations.CreateOperation(t.Context(), connect.NewRequest(&pb.CreateOperationRequest{ValidateOnly: true, Order: &pb.OperationOrder{Cluster: ref("c1")}}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.entries(t)).To(BeEmpty())
	g.Expect(w.logged).To(BeEmpty())
}

func TestClusterOfAnOperationOrAMachine(t *testing.T) {
	g := NewWithT(t)
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "op"}, Spec: v1alpha1.TalosOperationSpec{ClusterName: "c1", Kind: "talos"}}
	w := newWorld(t, &ann, op)
	_, err := w.operations.DeleteOperation(t.Context(), connect.NewRequest(&pb.DeleteOperationRequest{Ref: ref("op"), Force: true, Reason: "it hangs"}))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.operations.RetryOperation(t.Context(), connect.NewRequest(&pb.RetryOperationRequest{Ref: ref("op")}))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.clusters.HoldMachine(t.Context(), connect.NewRequest(&pb.HoldMachineRequest{Ref: ref("worker-1"), Held: true, Note: "disk"}))
	g.Expect(err).NotTo(HaveOccurred())
	byAction := map[string]v1alpha1.AuditEntrySpec{}
	for _, entry := range w.entries(t) {
		byAction[entry.Spec.Action] = entry.Spec
	}
	g.Expect(byAction["DeleteOperation"]).To(And(HaveField("ClusterName", "c1"), HaveField("OperationName", "op"), HaveField("Detail", "delete by force: it hangs (kind talos)")))
	g.Expect(byAction["RetryOperation"]).To(And(HaveField("Message", "nothing to do: it was so already"), HaveField("Effect", v1alpha1.AuditUnchanged)))
	g.Expect(byAction["HoldMachine"]).To(And(HaveField("Effect", v1alpha1.AuditChanged), HaveField("ClusterName", "c1"), HaveField("MachineName", "c1-w-1"), HaveField("Detail", "hold: disk")))
}

func TestCredentialsAreNowhere(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, &ann)
	_, err := w.clusters.ImportCluster(t.Context(), connect.NewRequest(&pb.ImportClusterRequest{Ref: ref("c1"), Kubeconfig: []byte("S3CRET"), Talosconfig: []byte("S3CRET"), TakeOver: true}))
	g.Expect(err).NotTo(HaveOccurred())
	entries := w.entries(t)
	g.Expect(entries).To(HaveLen(1))
	g.Expect(entries[0].Spec.Detail).To(Equal("import with new credentials, take_over"))
	g.Expect(fmt.Sprintf("%+v", entries[0]) + strings.Join(w.logged, "\n")).NotTo(Or(ContainSubstring("S3CRET"), ContainSubstring("UzNDUkVU")))
}

// An entry that cannot be written is told and counted, and the action is done.
func TestUnwritableEntryBlocksNothing(t *testing.T) {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	for name, row := range map[string]struct {
		refuse error
		ref    *pb.Reference
		lost   float64
	}{
		"the API is away":      {errors.New("connection refused"), ref("c1"), 1},
		"nobody may":           {apierrors.NewForbidden(schema.GroupResource{Resource: "auditentries"}, "", nil), ref("c1"), 1},
		"no definition":        {apierrors.NewNotFound(schema.GroupResource{Resource: "auditentries"}, "x"), ref("c1"), 1},
		"no such namespace":    {apierrors.NewNotFound(namespaces, "team-a"), ref("c1"), 0},
		"no namespace at all":  {errors.New("nobody asks"), &pb.Reference{Name: "c1"}, 0},
		"no name of namespace": {errors.New("nobody asks"), &pb.Reference{Namespace: "../kube-system", Name: "c1"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t, &ann)
			w.refuse = row.refuse
			before := testutil.ToFloat64(lost.WithLabelValues(lostToError))
			_, err := w.operations.CreateOperation(t.Context(), connect.NewRequest(&pb.CreateOperationRequest{Order: &pb.OperationOrder{Cluster: row.ref}}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(testutil.ToFloat64(lost.WithLabelValues(lostToError)) - before).To(Equal(row.lost))
			g.Expect(w.logged).To(ContainElement(ContainSubstring(`"action"="CreateOperation"`)))
			told := strings.Contains(strings.Join(w.logged, "\n"), "could not be written, this log alone has it")
			g.Expect(told).To(Equal(row.lost > 0))
		})
	}
}

// Whoever may do nothing cannot fill the audit, whatever the way in which nothing comes of it.
func TestWhatChangesNothingIsLimited(t *testing.T) {
	for name, err := range map[string]error{
		"denied":  connect.NewError(connect.CodePermissionDenied, errors.New("no")),
		"refused": connect.NewError(connect.CodeNotFound, errors.New("no")),
		"bypass: a deadline that is over at once":   connect.NewError(connect.CodeDeadlineExceeded, errors.New("no")),
		"bypass: hangs up":                          connect.NewError(connect.CodeCanceled, errors.New("no")),
		"the API is away":                           connect.NewError(connect.CodeUnavailable, errors.New("no")),
		"bypass: asks again for what is so already": nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t, &ann)
			w.services.err = err
			attempt := func() {
				_, _ = w.operations.RetryOperation(t.Context(), connect.NewRequest(&pb.RetryOperationRequest{Ref: ref("x")}))
			}
			for range idleBurst + 5 {
				attempt()
			}
			g.Expect(w.entries(t)).To(HaveLen(idleBurst))
			g.Expect(w.logged).To(HaveLen(idleBurst+5), "the log has all of them")
			w.now = w.now.Add(idleEvery)
			attempt()
			attempt()
			g.Expect(w.entries(t)).To(HaveLen(idleBurst + 1))
			w.services.err = nil
			_, err := w.operations.DeleteOperation(t.Context(), connect.NewRequest(&pb.DeleteOperationRequest{Ref: ref("x")}))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(w.entries(t)).To(HaveLen(idleBurst+2), "what was done is always written")
		})
	}
}

// Many who may do nothing cannot fill the audit of a namespace together, and take nothing from another.
func TestWhatChangesNothingIsLimitedInANamespace(t *testing.T) {
	g := NewWithT(t)
	caller := ann
	w := newWorld(t, &caller)
	w.services.err = connect.NewError(connect.CodePermissionDenied, errors.New("no"))
	attempt := func(user, namespace string) {
		caller.Name = user
		_, _ = w.operations.RetryOperation(t.Context(), connect.NewRequest(&pb.RetryOperationRequest{Ref: &pb.Reference{Namespace: namespace, Name: "x"}}))
	}
	for i := range idleBurstAll + 5 {
		attempt(fmt.Sprintf("user-%d", i), "team-a")
	}
	g.Expect(w.entries(t)).To(HaveLen(idleBurstAll))
	attempt("ann", "team-b")
	g.Expect(w.entries(t)).To(HaveLen(idleBurstAll + 1))
	w.now = w.now.Add(idleEveryAll)
	attempt("ann", "team-a")
	g.Expect(w.entries(t)).To(HaveLen(idleBurstAll + 2))
}

func TestNobodyIsNotRecorded(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, nil)
	_, err := w.operations.RetryOperation(t.Context(), connect.NewRequest(&pb.RetryOperationRequest{Ref: ref("x")}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.entries(t)).To(BeEmpty())
}

// What users say fits into the API's fields, whatever it is.
func TestEntryIsCutToWhatTheAPITakes(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("ü", 5000)
	var groups []string
	var overrides []v1alpha1.GateOverride
	for range 100 {
		groups = append(groups, long)
		overrides = append(overrides, v1alpha1.GateOverride{Gate: long}, v1alpha1.GateOverride{Reason: "of none"})
	}
	r := newWorld(t, &ann).recorder
	entry := r.entry(auth.Caller{Name: long + "\xff", Groups: groups, Source: long, Client: long}, "X",
		subject{namespace: "team-a", cluster: long, operation: long, machine: long, detail: long, overrides: overrides}, outcome{result: v1alpha1.AuditFailed, message: long})
	runes := func(text string) int { return len([]rune(text)) }
	spec := entry.Spec
	g.Expect([]int{runes(spec.User), runes(spec.Detail), runes(spec.Message), runes(spec.Groups[0])}).To(HaveEach(1024))
	g.Expect([]int{runes(spec.ClusterName), runes(spec.OperationName), runes(spec.MachineName)}).To(HaveEach(253))
	g.Expect([]int{runes(spec.Source), runes(spec.Client)}).To(HaveEach(256))
	g.Expect(spec.Groups).To(HaveLen(64))
	g.Expect(spec.Overrides).To(HaveLen(8), "those of the first 16 that name a gate")
	g.Expect(spec.Overrides[0]).To(Equal(v1alpha1.GateOverride{Gate: strings.Repeat("ü", 63) + "…", Reason: "none was given"}))
	g.Expect(entry.Labels).To(BeEmpty())
}

// Every procedure with side effects is described, so that none gets by: one that is new fails here.
func TestEveryProcedureWithSideEffectsIsDescribed(t *testing.T) {
	described := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("ichor.v1alpha1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				method := methods.Get(j)
				options, _ := method.Options().(*descriptorpb.MethodOptions)
				if options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
					continue
				}
				g := NewWithT(t)
				g.Expect(method.IsStreamingServer() || method.IsStreamingClient()).To(BeFalse(), "%s: streams are not recorded", method.FullName())
				kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
				g.Expect(err).NotTo(HaveOccurred())
				about, ok := subjectOf(named(kind.New()))
				g.Expect(ok).To(BeTrue(), "%s is not described in subjectOf", method.FullName())
				g.Expect(about.namespace).To(Equal("team-a"), "%s: the namespace of its entry", method.FullName())
				g.Expect(about.detail).NotTo(BeEmpty(), "%s", method.FullName())
				described++
			}
		}
		return true
	})
	NewWithT(t).Expect(described).To(BeNumerically(">=", 8))
}

// named is a request about something in a namespace.
func named(message protoreflect.Message) proto.Message {
	reference := ref("x").ProtoReflect()
	if field := message.Descriptor().Fields().ByName("ref"); field != nil {
		message.Set(field, protoreflect.ValueOfMessage(reference))
	}
	if field := message.Descriptor().Fields().ByName("cluster"); field != nil {
		message.Set(field, protoreflect.ValueOfMessage(reference))
	}
	if order := message.Descriptor().Fields().ByName("order"); order != nil {
		inner := message.NewField(order).Message()
		inner.Set(inner.Descriptor().Fields().ByName("cluster"), protoreflect.ValueOfMessage(reference))
		message.Set(order, protoreflect.ValueOfMessage(inner))
	}
	return message.Interface()
}
