// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
	"ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1/ichorv1alpha1connect"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)

func at(seconds int) *timestamppb.Timestamp {
	return timestamppb.New(start.Add(time.Duration(seconds) * time.Second))
}

var op1 = &pb.Reference{Namespace: "default", Name: "op-1"}

func state(phase pb.OperationPhase, units ...*pb.OperationUnit) *pb.Operation {
	return &pb.Operation{Ref: op1, Cluster: &pb.Reference{Namespace: "default", Name: "c1"}, Kind: pb.OperationKind_OPERATION_KIND_TALOS, Phase: phase, Machines: units}
}

const (
	inProgress = pb.OperationPhase_OPERATION_PHASE_IN_PROGRESS
	paused     = pb.OperationPhase_OPERATION_PHASE_PAUSED
	completed  = pb.OperationPhase_OPERATION_PHASE_COMPLETED
)

func unit(name string, steps ...string) *pb.OperationUnit {
	u := &pb.OperationUnit{Name: name, Phase: pb.UnitPhase_UNIT_PHASE_IN_PROGRESS}
	for i, step := range steps {
		u.Steps = append(u.Steps, &pb.OperationStep{Name: step, StartTime: at(i)})
		u.Step, u.StepStartTime = step, at(i)
	}
	return u
}

func changed(op *pb.Operation) *pb.WatchOperationsResponse {
	return &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Changed{Changed: op}}
}

func removed() *pb.WatchOperationsResponse {
	return &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Removed{Removed: op1}}
}

func synced() *pb.WatchOperationsResponse {
	return &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Synced{Synced: &pb.Synced{}}}
}

func reset() *pb.WatchOperationsResponse {
	return &pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Reset_{Reset_: &pb.Reset{}}}
}

// numbered gives messages their tokens.
func numbered(prefix string, messages ...*pb.WatchOperationsResponse) []*pb.WatchOperationsResponse {
	for i, m := range messages {
		m.ResumeToken = prefix + string(rune('a'+i))
	}
	return messages
}

// hub serves WatchOperations: each call sends the next messages, and then breaks.
type hub struct {
	ichorv1alpha1connect.UnimplementedOperationServiceHandler

	calls  [][]*pb.WatchOperationsResponse
	tokens []string
}

func (h *hub) WatchOperations(ctx context.Context, request *connect.Request[pb.WatchOperationsRequest], stream *connect.ServerStream[pb.WatchOperationsResponse]) error {
	h.tokens = append(h.tokens, request.Msg.GetResumeToken())
	if len(h.tokens) > len(h.calls) {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, m := range h.calls[len(h.tokens)-1] {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return connect.NewError(connect.CodeUnavailable, errors.New("shutting down"))
}

// following follows op-1 through the calls, and returns what was printed.
func following(t *testing.T, calls ...[]*pb.WatchOperationsResponse) (h *hub, last *pb.Operation, out string) {
	t.Helper()
	h = &hub{calls: calls}
	_, handler := ichorv1alpha1connect.NewOperationServiceHandler(h)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	var text, remarks bytes.Buffer
	log := NewLog(&text, &remarks, func() time.Time { return start.Add(time.Hour) })
	o := &Operation{
		Client: ichorv1alpha1connect.NewOperationServiceClient(http.DefaultClient, server.URL), Ref: op1,
		Show: log.Show, Lost: func(error) {}, Back: func() {},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	last, err := o.Run(ctx)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return h, last, text.String()
}

// What happened while nobody was connected is in the log, in order and with its times: by the token where the hub knows it, and by
// comparing states where it does not.
func TestNothingIsMissed(t *testing.T) {
	over := unit("c1-cp-1", "Installing", "Draining", "Rebooting", "Verifying")
	over.Phase, over.Step = pb.UnitPhase_UNIT_PHASE_COMPLETED, ""
	over.Steps[3].EndTime = at(5)
	end := state(completed, over)
	end.StartTime, end.CompletionTime, end.Held = at(0), at(90), []string{"c1-w-1"}
	want := strings.Join([]string{
		"03:04:05  c1-cp-1  Installing", "03:04:06  c1-cp-1  Draining", "03:04:07  c1-cp-1  Rebooting", "03:04:08  c1-cp-1  Verifying",
		"03:04:10  c1-cp-1  Completed", "03:05:35  Completed within 1m30s; held: c1-w-1.", "",
	}, "\n")
	first := numbered("1", changed(state(inProgress, unit("c1-cp-1", "Installing"))), synced())
	for name, row := range map[string]struct {
		calls  [][]*pb.WatchOperationsResponse
		tokens []string
	}{
		"at once":        {[][]*pb.WatchOperationsResponse{numbered("1", changed(end), synced())}, []string{""}},
		"with the token": {[][]*pb.WatchOperationsResponse{first, numbered("2", changed(state(inProgress, unit("c1-cp-1", "Installing", "Draining")))), numbered("3", changed(end))}, []string{"", "1b", "2a"}},
		"after a reset":  {[][]*pb.WatchOperationsResponse{first, numbered("2", reset(), changed(end), synced())}, []string{"", "1b"}},
		"without tokens": {[][]*pb.WatchOperationsResponse{{changed(state(inProgress, unit("c1-cp-1", "Installing"))), synced()}, {changed(end)}}, []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h, last, out := following(t, row.calls...)
			g.Expect(out).To(Equal(want))
			g.Expect(h.tokens).To(Equal(row.tokens))
			g.Expect(Completed(last)).To(BeTrue())
		})
	}
}

// An operation that went while nobody was connected is gone, whichever way the hub tells.
func TestGone(t *testing.T) {
	there := func() []*pb.WatchOperationsResponse { return numbered("1", changed(state(inProgress)), synced()) }
	for name, calls := range map[string][][]*pb.WatchOperationsResponse{
		"removed":           {append(there(), removed())},
		"removed meanwhile": {there(), {removed()}},
		"after a reset":     {there(), {reset(), synced()}},
		"without tokens":    {{changed(state(inProgress)), synced()}, {synced()}},
		"never there":       {{synced(), message("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, last, _ := following(t, calls...)
			NewWithT(t).Expect(last).To(BeNil())
		})
	}
}

// One that was just created is not gone when the hub's memory has not got it yet.
func TestNotYetThere(t *testing.T) {
	_, last, _ := following(t, []*pb.WatchOperationsResponse{synced(), changed(state(completed)), message("x")})
	NewWithT(t).Expect(Completed(last)).To(BeTrue())
}

func answered(phase pb.OperationPhase, reason string) *pb.Operation {
	op := state(phase)
	op.Answer = &pb.Answer{Doing: "nothing", Reason: reason, Why: "why", Who: "who", Command: "ichor x"}
	return op
}

// Case E8: what only a person changes ends it, unless somebody has done so already; what changes by itself does not.
func TestNeedsPerson(t *testing.T) {
	g := NewWithT(t)
	for _, reason := range []string{"StatusLost", "StepFailed", "NoExecutor", "Refused"} {
		g.Expect(NeedsPerson(answered(paused, reason))).To(BeTrue(), reason)
		retried := answered(paused, reason)
		retried.RetryRequested = true
		g.Expect(NeedsPerson(retried)).To(BeFalse(), reason)
	}
	for _, reason := range []string{"OperatorPaused", "ClusterPaused", "WaitingForWindow", "ControlPlaneTransitioning", "ClusterLockHeld", "EtcdHealthy", ""} {
		g.Expect(NeedsPerson(answered(paused, reason))).To(BeFalse(), reason)
	}
}

// Machines that went at once while nobody looked are told as it was, and not one after the other.
func TestLogIsInOrder(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	log := NewLog(&out, &out, func() time.Time { return start })
	second := unit("c1-w-2", "Pulling", "Installing")
	second.Steps[1].StartTime = at(7)
	log.Show(state(inProgress, unit("c1-w-1", "Pulling", "Installing", "Draining"), second))
	g.Expect(out.String()).To(Equal("03:04:05  c1-w-1  Pulling\n03:04:05  c1-w-2  Pulling\n03:04:06  c1-w-1  Installing\n03:04:07  c1-w-1  Draining\n03:04:12  c1-w-2  Installing\n"))
}

func TestSummary(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Summary(state(inProgress))).To(BeEmpty(), "machines tell")
	g.Expect(Summary(answered(paused, "StepFailed"))).To(Equal("Paused: StepFailed: why. Who: who. See: ichor x"))
	g.Expect(Summary(answered(inProgress, "EtcdHealthy"))).To(Equal("Waiting: EtcdHealthy: why. Who: who. See: ichor x"))
	settling := answered(paused, "OperatorPaused")
	settling.Answer.Doing = "taking c1-w-1 to a safe point"
	g.Expect(Summary(settling)).To(Equal("Paused: OperatorPaused: why. Now: taking c1-w-1 to a safe point. Who: who. See: ichor x"))
}

// Of the steps of a unit, only the last are kept.
func TestAfter(t *testing.T) {
	g := NewWithT(t)
	all := unit("x", "a", "b", "c", "d").GetSteps()
	g.Expect(after(nil, all)).To(HaveLen(4))
	g.Expect(after(all[:2], all)).To(Equal(all[2:]))
	g.Expect(after(all[:3], all[2:])).To(Equal(all[3:]), "a and b were dropped")
	g.Expect(after(all[:1], all[2:])).To(Equal(all[2:]), "all that were known were dropped")
	g.Expect(after(all, all)).To(BeEmpty())
}
