// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/audit"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/scheme"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// denied refuses everything, as a hub does to somebody without rights.
type denied struct {
	ichorv1alpha1connect.UnimplementedOperationServiceHandler
}

func (denied) CreateOperation(context.Context, *connect.Request[pb.CreateOperationRequest]) (*connect.Response[pb.CreateOperationResponse], error) {
	return nil, connect.NewError(connect.CodePermissionDenied, errors.New(strings.Repeat("ü", 3000)))
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

// order calls a service that audits with a recorder, as somebody.
func order(t *testing.T, recorder *audit.Recorder, caller auth.Caller, request *pb.CreateOperationRequest) {
	t.Helper()
	authenticate := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, call connect.AnyRequest) (connect.AnyResponse, error) {
			return next(auth.With(ctx, caller), call)
		}
	})
	mux := http.NewServeMux()
	mux.Handle(ichorv1alpha1connect.NewOperationServiceHandler(denied{}, connect.WithInterceptors(authenticate, audit.Interceptor(recorder))))
	server := httptest.NewServer(mux)
	defer server.Close()
	_, err := ichorv1alpha1connect.NewOperationServiceClient(server.Client(), server.URL).CreateOperation(t.Context(), connect.NewRequest(request))
	NewWithT(t).Expect(connect.CodeOf(err)).To(Equal(connect.CodePermissionDenied))
}

// A denied attempt is in the audit, written by the hub with no more than its own role, whatever the caller says of themselves; every replica
// tells it from its informer, and the leader removes it when its time has come.
func TestAuditOfADeniedAttempt(t *testing.T) {
	g := NewWithT(t)
	hub := clientOf(t, plane.HubConfig)
	var lines []string
	recorder := audit.NewRecorder(hub, funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	long := strings.Repeat("ü", 3000)
	mallory := auth.Caller{Name: "mallory", Groups: []string{"system:authenticated", long}, Source: long, Client: long}
	request := &pb.CreateOperationRequest{Order: &pb.OperationOrder{
		Cluster: &pb.Reference{Namespace: theirs, Name: "c1"}, Kind: pb.OperationKind_OPERATION_KIND_ETCD_RESTORE,
		Overrides: []*pb.GateOverride{{Gate: long, Reason: long}},
	}}

	informers, err := cache.New(plane.HubConfig, cache.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- informers.Start(ctx) }()
	log := audit.NewLog()
	go func() { _ = log.Start(ctx, informers) }()
	g.Expect(log.WaitForSync(ctx)).To(Succeed())

	order(t, recorder, mallory, request)
	entry := func() *pb.AuditEntry {
		for _, entry := range log.Entries() {
			if entry.Message.GetUser() == "mallory" {
				return entry.Message
			}
		}
		return nil
	}
	g.Eventually(entry).Should(And(
		HaveField("Cluster.Namespace", theirs), HaveField("Result", pb.AuditResult_AUDIT_RESULT_DENIED), HaveField("Detail", "start etcd-restore"), HaveField("SelfReported", false),
	))
	g.Expect(lines).To(HaveLen(1), "nothing was lost")

	request.Order.Cluster.Namespace = "nowhere"
	order(t, recorder, mallory, request)
	g.Expect(lines).To(HaveLen(2), "no namespace, no entry, and no alarm")

	again, err := audit.Load(ctx, hub, theirs)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Entries()).To(ContainElement(HaveField("Message.User", "mallory")), "another replica says the same")

	asTheHub := rest.CopyConfig(plane.HubConfig)
	asTheHub.UserAgent = "ichor-hub" // For make test-privilege: here is the hub's own code at work, and no hub of a test lives until entries are old.
	pruner := &audit.Pruner{Client: clientOf(t, asTheHub), Limits: audit.Limits{MaxAge: time.Nanosecond}, Clock: clock.RealClock{}}
	go func() { _ = pruner.Start(ctx) }()
	g.Eventually(entry, 10*time.Second).Should(BeNil())
	cancel()
	g.Eventually(ended).Should(Receive())
}

// Without a hub, the user's own client writes: of an operator it is taken, of a viewer it is told that it is not.
func TestAuditWithoutAHub(t *testing.T) {
	g := NewWithT(t)
	as := func(user string) client.Client {
		config := rest.CopyConfig(plane.Config)
		config.Impersonate.UserName = user
		return clientOf(t, config)
	}
	request := &pb.CreateOperationRequest{Order: &pb.OperationOrder{Cluster: &pb.Reference{Namespace: ours, Name: "c1"}}}
	order(t, audit.NewClientRecorder(as("operator"), logr.Discard()), auth.Caller{Name: "operator", Groups: []string{"system:authenticated"}}, request)
	entries := &v1alpha1.AuditEntryList{}
	g.Expect(as("viewer").List(t.Context(), entries, client.InNamespace(ours))).To(Succeed())
	g.Expect(entries.Items).To(ContainElement(And(HaveField("Spec.User", "operator"), HaveField("Spec.Reporter", v1alpha1.AuditByClient), HaveField("Spec.Action", "CreateOperation"))))

	var lines []string
	told := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	order(t, audit.NewClientRecorder(as("viewer"), told), auth.Caller{Name: "viewer"}, request)
	g.Expect(lines).To(ContainElement(ContainSubstring("could not be written")))
}
