// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"ichor.maesh.dev/hub/hub/standalone/pki"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

// fake answers as it is told to.
type fake struct {
	ichorv1alpha1connect.UnimplementedOperationServiceHandler
	ichorv1alpha1connect.UnimplementedClusterServiceHandler
	ichorv1alpha1connect.UnimplementedHubServiceHandler
	ichorv1alpha1connect.UnimplementedAuditServiceHandler
	ichorv1alpha1connect.UnimplementedSnapshotServiceHandler

	get   func(context.Context) error
	watch func(context.Context, *connect.ServerStream[pb.WatchOperationsResponse]) error
}

func (f *fake) GetHub(context.Context, *connect.Request[pb.GetHubRequest]) (*connect.Response[pb.GetHubResponse], error) {
	return connect.NewResponse(&pb.GetHubResponse{Version: "v1.2.3"}), nil
}

func (f *fake) ListOperations(_ context.Context, r *connect.Request[pb.ListOperationsRequest]) (*connect.Response[pb.ListOperationsResponse], error) {
	return connect.NewResponse(&pb.ListOperationsResponse{TotalSize: int32(len(r.Msg.GetFilter().GetText()))}), nil
}

func (f *fake) GetOperation(ctx context.Context, _ *connect.Request[pb.GetOperationRequest]) (*connect.Response[pb.GetOperationResponse], error) {
	return connect.NewResponse(&pb.GetOperationResponse{}), f.get(ctx)
}

func (f *fake) ImportCluster(_ context.Context, r *connect.Request[pb.ImportClusterRequest]) (*connect.Response[pb.ImportClusterResponse], error) {
	return connect.NewResponse(&pb.ImportClusterResponse{Cluster: &pb.Cluster{ControlPlanes: int32(len(r.Msg.GetKubeconfig()))}}), nil
}

func (f *fake) WatchOperations(
	ctx context.Context, _ *connect.Request[pb.WatchOperationsRequest], stream *connect.ServerStream[pb.WatchOperationsResponse],
) error {
	return f.watch(ctx, stream)
}

// beat is a message that says no more than that the stream is open.
func beat() *pb.WatchOperationsResponse {
	return &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Heartbeat{Heartbeat: &pb.Heartbeat{}}}
}

// untilTheEnd watches, as a handler does that sends one message and waits for what comes next.
func untilTheEnd(ctx context.Context, stream *connect.ServerStream[pb.WatchOperationsResponse]) error {
	if err := stream.Send(beat()); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// world is a server that runs until the test ends, or until stop.
type world struct {
	*Server

	files pki.SelfSigned
	cut   context.CancelFunc
	ended chan error
}

// run starts a server. Bounds that are zero are the usual ones.
func run(t *testing.T, o Options, b bounds) *world {
	t.Helper()
	g := NewWithT(t)
	w := &world{files: pki.SelfSignedIn(t.TempDir()), ended: make(chan error, 1)}
	g.Expect(w.files.Ensure([]string{"127.0.0.1"}, time.Now())).To(Succeed())
	certificates, err := certwatcher.New(w.files.Pair, w.files.Pair)
	g.Expect(err).NotTo(HaveOccurred())
	o.Certificates = certificates
	return w.start(t, o, b)
}

// altered are the usual bounds but for some.
func altered(change func(*bounds)) bounds {
	b := usual
	change(&b)
	return b
}

func (w *world) start(t *testing.T, o Options, b bounds) *world {
	t.Helper()
	g := NewWithT(t)
	if o.Services == nil {
		o.Services = &fake{}
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	if b == (bounds{}) {
		b = usual
	}
	var err error
	o.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	w.Server, err = newServer(o, b)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	w.cut = cancel
	go func() { w.ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		w.ended <- <-w.ended
	})
	return w
}

// stop ends the server in good order, and returns how that went.
func (w *world) stop() error {
	w.cut()
	err := <-w.ended
	w.ended <- err
	return err
}

// client trusts the server's certificate, as it is now.
func (w *world) client(t *testing.T, version int) *http.Client {
	t.Helper()
	g := NewWithT(t)
	given, err := os.ReadFile(w.files.Certificate)
	g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(given)).To(BeTrue())
	protocols := &http.Protocols{}
	protocols.SetHTTP1(version == 1)
	protocols.SetHTTP2(version == 2)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// operations is a client of the service, over HTTP/2 if nothing else is said.
func (w *world) operations(t *testing.T, options ...connect.ClientOption) ichorv1alpha1connect.OperationServiceClient {
	t.Helper()
	return ichorv1alpha1connect.NewOperationServiceClient(w.client(t, 2), w.URL(), options...)
}

// get asks for a path.
func (w *world) get(t *testing.T, path string) reply {
	t.Helper()
	return do(t, w.client(t, 1), http.MethodGet, w.URL()+path, "", nil)
}
