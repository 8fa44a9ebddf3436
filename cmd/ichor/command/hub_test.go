// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

// fakeHub takes orders and records calls: it answers a message of each type with what a test has laid down.
type fakeHub struct {
	url string

	mu      sync.Mutex
	asked   []proto.Message
	headers []http.Header
	lay     map[string][]func() (proto.Message, error) // By the name of the answer; the last is repeated.
	streams []func(*connect.ServerStream[pb.WatchOperationsResponse]) error
	audits  []func(*connect.ServerStream[pb.WatchAuditResponse]) error
}

func newFakeHub(t *testing.T) *fakeHub {
	t.Helper()
	h := &fakeHub{lay: map[string][]func() (proto.Message, error){}}
	h.answer(&pb.GetHubResponse{Version: "dev", Name: "test", SignIn: &pb.SignIn{Token: true}})
	server := httptest.NewServer(h.handler())
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *fakeHub) handler() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(ichorv1alpha1connect.NewOperationServiceHandler(operations{fakeHub: h}))
	mux.Handle(ichorv1alpha1connect.NewClusterServiceHandler(clusters{fakeHub: h}))
	mux.Handle(ichorv1alpha1connect.NewHubServiceHandler(hubs{fakeHub: h}))
	mux.Handle(ichorv1alpha1connect.NewAuditServiceHandler(audits{fakeHub: h}))
	return mux
}

// answer lays down what a call of the message's type is answered with; several are answered one after the other.
func (h *fakeHub) answer(messages ...proto.Message) {
	for _, m := range messages {
		name := string(m.ProtoReflect().Descriptor().Name())
		h.lay[name] = append(h.lay[name], func() (proto.Message, error) { return m, nil })
	}
}

// refuse lays down an error for calls that would be answered with the message.
func (h *fakeHub) refuse(instead proto.Message, code connect.Code, text string, details ...proto.Message) {
	name := string(instead.ProtoReflect().Descriptor().Name())
	h.lay[name] = append(h.lay[name], func() (proto.Message, error) {
		err := connect.NewError(code, fmt.Errorf("%s", text))
		for _, d := range details {
			detail, _ := connect.NewErrorDetail(d) // Messages of ours can be encoded.
			err.AddDetail(detail)
		}
		return nil, err
	})
}

// of are the requests of a type, in order.
func of[M proto.Message](h *fakeHub) (found []M) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.asked {
		if typed, ok := m.(M); ok {
			found = append(found, typed)
		}
	}
	return found
}

func reply[Req, Res any](h *fakeHub, request *connect.Request[Req]) (*connect.Response[Res], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, any(request.Msg).(proto.Message))
	h.headers = append(h.headers, request.Header())
	empty := any(new(Res)).(proto.Message)
	name := string(empty.ProtoReflect().Descriptor().Name())
	laid := h.lay[name]
	if len(laid) == 0 {
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("nothing is laid down for %s", name))
	}
	if len(laid) > 1 {
		h.lay[name] = laid[1:]
	}
	message, err := laid[0]()
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(any(message).(*Res)), nil
}

type operations struct {
	ichorv1alpha1connect.UnimplementedOperationServiceHandler
	*fakeHub
}

func (o operations) ListOperations(_ context.Context, r *connect.Request[pb.ListOperationsRequest]) (*connect.Response[pb.ListOperationsResponse], error) {
	return reply[pb.ListOperationsRequest, pb.ListOperationsResponse](o.fakeHub, r)
}

func (o operations) GetOperation(_ context.Context, r *connect.Request[pb.GetOperationRequest]) (*connect.Response[pb.GetOperationResponse], error) {
	return reply[pb.GetOperationRequest, pb.GetOperationResponse](o.fakeHub, r)
}

func (o operations) PlanOperation(_ context.Context, r *connect.Request[pb.PlanOperationRequest]) (*connect.Response[pb.PlanOperationResponse], error) {
	return reply[pb.PlanOperationRequest, pb.PlanOperationResponse](o.fakeHub, r)
}

func (o operations) CreateOperation(_ context.Context, r *connect.Request[pb.CreateOperationRequest]) (*connect.Response[pb.CreateOperationResponse], error) {
	return reply[pb.CreateOperationRequest, pb.CreateOperationResponse](o.fakeHub, r)
}

func (o operations) SetOperationPaused(_ context.Context, r *connect.Request[pb.SetOperationPausedRequest]) (*connect.Response[pb.SetOperationPausedResponse], error) {
	return reply[pb.SetOperationPausedRequest, pb.SetOperationPausedResponse](o.fakeHub, r)
}

func (o operations) RetryOperation(_ context.Context, r *connect.Request[pb.RetryOperationRequest]) (*connect.Response[pb.RetryOperationResponse], error) {
	return reply[pb.RetryOperationRequest, pb.RetryOperationResponse](o.fakeHub, r)
}

func (o operations) TurnBackOperation(_ context.Context, r *connect.Request[pb.TurnBackOperationRequest]) (*connect.Response[pb.TurnBackOperationResponse], error) {
	return reply[pb.TurnBackOperationRequest, pb.TurnBackOperationResponse](o.fakeHub, r)
}

func (o operations) ConfirmOperation(_ context.Context, r *connect.Request[pb.ConfirmOperationRequest]) (*connect.Response[pb.ConfirmOperationResponse], error) {
	return reply[pb.ConfirmOperationRequest, pb.ConfirmOperationResponse](o.fakeHub, r)
}

func (o operations) DeleteOperation(_ context.Context, r *connect.Request[pb.DeleteOperationRequest]) (*connect.Response[pb.DeleteOperationResponse], error) {
	return reply[pb.DeleteOperationRequest, pb.DeleteOperationResponse](o.fakeHub, r)
}

func (o operations) WatchOperations(ctx context.Context, r *connect.Request[pb.WatchOperationsRequest], s *connect.ServerStream[pb.WatchOperationsResponse]) error {
	o.mu.Lock()
	o.asked = append(o.asked, r.Msg)
	var next func(*connect.ServerStream[pb.WatchOperationsResponse]) error
	if len(o.streams) > 0 {
		next, o.fakeHub.streams = o.streams[0], o.streams[1:]
	}
	o.mu.Unlock()
	if next != nil {
		return next(s)
	}
	if err := s.Send(&pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Heartbeat{Heartbeat: &pb.Heartbeat{}}}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

type clusters struct {
	ichorv1alpha1connect.UnimplementedClusterServiceHandler
	*fakeHub
}

func (c clusters) ListClusters(_ context.Context, r *connect.Request[pb.ListClustersRequest]) (*connect.Response[pb.ListClustersResponse], error) {
	return reply[pb.ListClustersRequest, pb.ListClustersResponse](c.fakeHub, r)
}

func (c clusters) GetCluster(_ context.Context, r *connect.Request[pb.GetClusterRequest]) (*connect.Response[pb.GetClusterResponse], error) {
	return reply[pb.GetClusterRequest, pb.GetClusterResponse](c.fakeHub, r)
}

func (c clusters) DiffConfig(_ context.Context, r *connect.Request[pb.DiffConfigRequest]) (*connect.Response[pb.DiffConfigResponse], error) {
	return reply[pb.DiffConfigRequest, pb.DiffConfigResponse](c.fakeHub, r)
}

func (c clusters) ExportCluster(_ context.Context, r *connect.Request[pb.ExportClusterRequest]) (*connect.Response[pb.ExportClusterResponse], error) {
	return reply[pb.ExportClusterRequest, pb.ExportClusterResponse](c.fakeHub, r)
}

func (c clusters) ListMachines(_ context.Context, r *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	return reply[pb.ListMachinesRequest, pb.ListMachinesResponse](c.fakeHub, r)
}

func (c clusters) ImportCluster(_ context.Context, r *connect.Request[pb.ImportClusterRequest]) (*connect.Response[pb.ImportClusterResponse], error) {
	return reply[pb.ImportClusterRequest, pb.ImportClusterResponse](c.fakeHub, r)
}

func (c clusters) ForgetCluster(_ context.Context, r *connect.Request[pb.ForgetClusterRequest]) (*connect.Response[pb.ForgetClusterResponse], error) {
	return reply[pb.ForgetClusterRequest, pb.ForgetClusterResponse](c.fakeHub, r)
}

func (c clusters) ExportBundle(_ context.Context, r *connect.Request[pb.ExportBundleRequest]) (*connect.Response[pb.ExportBundleResponse], error) {
	return reply[pb.ExportBundleRequest, pb.ExportBundleResponse](c.fakeHub, r)
}

func (c clusters) HoldMachine(_ context.Context, r *connect.Request[pb.HoldMachineRequest]) (*connect.Response[pb.HoldMachineResponse], error) {
	return reply[pb.HoldMachineRequest, pb.HoldMachineResponse](c.fakeHub, r)
}

func (c clusters) ApproveMachine(_ context.Context, r *connect.Request[pb.ApproveMachineRequest]) (*connect.Response[pb.ApproveMachineResponse], error) {
	return reply[pb.ApproveMachineRequest, pb.ApproveMachineResponse](c.fakeHub, r)
}

func (c clusters) JoinMachine(_ context.Context, r *connect.Request[pb.JoinMachineRequest]) (*connect.Response[pb.JoinMachineResponse], error) {
	return reply[pb.JoinMachineRequest, pb.JoinMachineResponse](c.fakeHub, r)
}

type hubs struct {
	ichorv1alpha1connect.UnimplementedHubServiceHandler
	*fakeHub
}

func (h hubs) GetHub(_ context.Context, r *connect.Request[pb.GetHubRequest]) (*connect.Response[pb.GetHubResponse], error) {
	return reply[pb.GetHubRequest, pb.GetHubResponse](h.fakeHub, r)
}

func (h hubs) GetSession(_ context.Context, r *connect.Request[pb.GetSessionRequest]) (*connect.Response[pb.GetSessionResponse], error) {
	return reply[pb.GetSessionRequest, pb.GetSessionResponse](h.fakeHub, r)
}

type audits struct {
	ichorv1alpha1connect.UnimplementedAuditServiceHandler
	*fakeHub
}

func (a audits) ListAudit(_ context.Context, r *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
	return reply[pb.ListAuditRequest, pb.ListAuditResponse](a.fakeHub, r)
}

func (a audits) WatchAudit(ctx context.Context, r *connect.Request[pb.WatchAuditRequest], s *connect.ServerStream[pb.WatchAuditResponse]) error {
	a.mu.Lock()
	a.asked = append(a.asked, r.Msg)
	var next func(*connect.ServerStream[pb.WatchAuditResponse]) error
	if len(a.fakeHub.audits) > 0 {
		next, a.fakeHub.audits = a.fakeHub.audits[0], a.fakeHub.audits[1:]
	}
	a.mu.Unlock()
	if next != nil {
		return next(s)
	}
	<-ctx.Done()
	return ctx.Err()
}

// user is somebody at a command line.
type user struct {
	t *testing.T

	in        io.Reader
	terminal  bool // Of standard input and output.
	env       map[string]string
	version   string
	browse    func(string) error
	plugin    bool
	interrupt context.Context // It stands for the user's hand.
}

// newUser is a user who has signed in to a hub; or nowhere, if there is none.
func newUser(t *testing.T, h *fakeHub) *user {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	u := &user{t: t, in: strings.NewReader(""), env: map[string]string{"ICHOR_CONFIG": filepath.Join(t.TempDir(), "config.yaml")}, version: "dev", interrupt: t.Context()}
	if h != nil {
		u.config(fmt.Sprintf("current: test\ncontexts:\n- {name: test, hub: %q, credentials: {method: token, token: secret}}\n", h.url))
	}
	return u
}

// config writes the user's file of contexts.
func (u *user) config(text string) {
	u.t.Helper()
	NewWithT(u.t).Expect(os.WriteFile(u.env["ICHOR_CONFIG"], []byte(text), 0o600)).To(Succeed())
}

func (u *user) configured() string {
	u.t.Helper()
	data, err := os.ReadFile(u.env["ICHOR_CONFIG"])
	NewWithT(u.t).Expect(err).NotTo(HaveOccurred())
	return string(data)
}

// result is how a command ended.
type result struct {
	Out, Err string
	Code     int
}

// ichor runs a command to its end.
func (u *user) ichor(args ...string) result {
	u.t.Helper()
	var out, errOut bytes.Buffer
	cmd := New(Surroundings{
		In: u.in, Out: &out, Err: &errOut, InTerminal: u.terminal, OutTerminal: u.terminal,
		Size: func() (int, int) { return 100, 30 }, Getenv: func(name string) string { return u.env[name] },
		Now: func() time.Time { return now }, Version: u.version, Browse: u.browse,
	}, u.plugin)
	cmd.SetArgs(args)
	code := Report(cmd.ExecuteContext(u.interrupt), &errOut)
	return result{out.String(), errOut.String(), code}
}

// golden compares a text with a file; UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	g := NewWithT(t)
	file := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal(string(want)))
}
