// SPDX-License-Identifier: Apache-2.0

// Package reads_test reads through the service what is on a real API server: informers with the hub's own rights, events as the caller, and
// the protocols that callers speak.
package reads_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/auth"
	"ichor.maesh.dev/hub/hub/fleet"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	namespace = "default"

	// patience bounds a test that takes less than a second.
	patience = 30 * time.Second
)

var plane *framework.Plane

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts the API server once for all tests.
func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	started, err := framework.StartPlane(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer started.Stop() //nolint:errcheck // The tests have said what there is to say.
	plane = started
	return m.Run()
}

// hub is a service that is fed as a hub feeds it, for a caller who may read everything.
type hub struct {
	g      *WithT
	ctx    context.Context
	admin  client.Client
	fleet  *fleet.Fleet
	server *httptest.Server
}

func startHub(t *testing.T) *hub {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	h := &hub{g: NewWithT(t), ctx: ctx, fleet: fleet.New()}
	var err error
	h.admin, err = client.New(plane.Config, client.Options{Scheme: scheme.New()})
	h.g.Expect(err).NotTo(HaveOccurred())
	informers, err := cache.New(plane.HubConfig, cache.Options{Scheme: scheme.New()})
	h.g.Expect(err).NotTo(HaveOccurred())
	go informers.Start(h.ctx)          //nolint:errcheck // It ends with the test.
	go h.fleet.Start(h.ctx, informers) //nolint:errcheck // Likewise.
	h.g.Expect(h.fleet.WaitForSync(h.ctx)).To(Succeed())

	s := &service.Server{Backend: h, Now: time.Now}
	mux := http.NewServeMux()
	mux.Handle(ichorv1alpha1connect.NewOperationServiceHandler(s))
	mux.Handle(ichorv1alpha1connect.NewClusterServiceHandler(s))
	h.server = httptest.NewUnstartedServer(mux)
	h.server.EnableHTTP2 = true
	h.server.StartTLS()
	t.Cleanup(h.server.Close)
	return h
}

// Session implements service.Backend.
func (h *hub) Session(context.Context) (*service.Session, error) {
	return &service.Session{Caller: auth.Caller{Name: "ada"}, Client: h.admin, Rights: everything{}}, nil
}

// Fleet implements service.Backend.
func (h *hub) Fleet(context.Context, ...string) (*fleet.Fleet, []*pb.Failure, error) {
	return h.fleet, nil, nil
}

// everything are the rights of whoever may read everything.
type everything struct{}

func (everything) May(context.Context, authorizationv1.ResourceAttributes) error { return nil }

func (everything) Readable(_ context.Context, _ string, namespaces []string) (map[string]bool, []*pb.Failure) {
	readable := map[string]bool{}
	for _, namespace := range namespaces {
		readable[namespace] = true
	}
	return readable, nil
}

func (h *hub) create(object client.Object) {
	h.g.ExpectWithOffset(1, h.admin.Create(h.ctx, object)).To(Succeed())
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

func operation(name, cluster string) *v1alpha1.TalosOperation {
	return &v1alpha1.TalosOperation{ObjectMeta: named(name), Spec: v1alpha1.TalosOperationSpec{ClusterName: cluster, Kind: v1alpha1.TalosKind}}
}

// A GET with JSON in its query is all that it takes to read, and events come along.
func TestGetAsJSON(t *testing.T) {
	h := startHub(t)
	op := operation("up", "elsewhere")
	h.create(op)
	h.create(&corev1.Event{
		ObjectMeta: named("up.1"), Type: corev1.EventTypeWarning, Reason: "StepFailed", Message: "the disk is full",
		InvolvedObject: corev1.ObjectReference{Kind: "TalosOperation", Namespace: namespace, Name: "up", UID: op.UID},
	})
	query := url.Values{"connect": {"v1"}, "encoding": {"json"}, "message": {`{"ref": {"namespace": "default", "name": "up"}}`}}
	answer, err := h.server.Client().Get(h.server.URL + ichorv1alpha1connect.OperationServiceGetOperationProcedure + "?" + query.Encode()) //nolint:noctx // The server ends with the test.
	h.g.Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close() //nolint:errcheck // It was only read.
	body, err := io.ReadAll(answer.Body)
	h.g.Expect(err).NotTo(HaveOccurred())
	h.g.Expect(answer.StatusCode).To(Equal(http.StatusOK), string(body))
	var read struct {
		Operation struct{ Kind, Phase, CreateTime string }
		Events    []struct {
			Reason, Message string
			Warning         bool
		}
	}
	h.g.Expect(json.Unmarshal(body, &read)).To(Succeed())
	h.g.Expect(read.Operation.Kind).To(Equal("OPERATION_KIND_TALOS"))
	h.g.Expect(read.Operation.Phase).To(Equal("OPERATION_PHASE_PENDING"))
	h.g.Expect(read.Events).To(HaveLen(1))
	h.g.Expect(read.Events[0].Message).To(Equal("the disk is full"))
	h.g.Expect(read.Events[0].Warning).To(BeTrue())
}

// What happens to objects comes by a stream of gRPC as it comes by one of Connect, from the informers to the other side.
func TestWatchOverGRPC(t *testing.T) {
	h := startHub(t)
	clusters := ichorv1alpha1connect.NewClusterServiceClient(h.server.Client(), h.server.URL, connect.WithGRPC())
	stream, err := clusters.WatchClusters(h.ctx, connect.NewRequest(&pb.WatchClustersRequest{Machines: true}))
	h.g.Expect(err).NotTo(HaveOccurred())
	defer stream.Close() //nolint:errcheck // It was only read.
	until := func(holds func(*pb.WatchClustersResponse) bool) {
		t.Helper()
		for stream.Receive() {
			if holds(stream.Msg()) {
				return
			}
		}
		t.Fatal(stream.Err())
	}
	until(func(r *pb.WatchClustersResponse) bool { return r.GetSynced() != nil })

	cluster := &v1alpha1.TalosCluster{ObjectMeta: named("c1")}
	h.create(cluster)
	until(func(r *pb.WatchClustersResponse) bool { return r.GetChanged().GetRef().GetName() == "c1" })
	machine := &v1alpha1.TalosMachine{ObjectMeta: named("c1-w-1"), Spec: v1alpha1.TalosMachineSpec{ClusterName: "c1", Role: v1alpha1.WorkerRole}}
	h.create(machine)
	until(func(r *pb.WatchClustersResponse) bool { return r.GetMachineChanged().GetRef().GetName() == "c1-w-1" })
	lease := &coordinationv1.Lease{ObjectMeta: named("c1-ichor-lock"), Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("ichor-controller/op/default/x")}}
	lease.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	h.create(lease)
	until(func(r *pb.WatchClustersResponse) bool {
		return r.GetChanged().GetLock().GetOperation().GetName() == "x"
	})
	op := operation("x", "c1")
	h.create(op)
	until(func(r *pb.WatchClustersResponse) bool { return len(r.GetChanged().GetOperations()) == 1 })
	h.g.Expect(h.admin.Delete(h.ctx, machine)).To(Succeed())
	until(func(r *pb.WatchClustersResponse) bool { return r.GetMachineRemoved().GetName() == "c1-w-1" })
	h.g.Expect(h.admin.Delete(h.ctx, cluster)).To(Succeed())
	until(func(r *pb.WatchClustersResponse) bool { return r.GetRemoved().GetName() == "c1" })
}
