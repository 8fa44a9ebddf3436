// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/cmd/ichor/dial"
	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// line is one connection: what it sends, and how it ends. hang keeps it open without a word.
type line struct {
	refused error
	sends   []*pb.WatchOperationsResponse
	ends    error
	hang    bool
}

type lineReceiver struct {
	ctx  context.Context
	line line
	at   int
}

func (r *lineReceiver) Receive() bool {
	if r.at == len(r.line.sends) {
		if r.line.hang {
			<-r.ctx.Done()
		}
		return false
	}
	r.at++
	return true
}

func (r *lineReceiver) Msg() *pb.WatchOperationsResponse { return r.line.sends[r.at-1] }
func (r *lineReceiver) Err() error                       { return r.line.ends }
func (r *lineReceiver) Close() error                     { return nil }

// lines is a hub that answers each connection with the next line, and the last of them for ever.
type lines struct {
	lines  []line
	tokens []string // That it was asked to go on from.
	events []string
}

func (l *lines) stream(until int) *Stream[pb.WatchOperationsResponse] {
	handled := 0
	return &Stream[pb.WatchOperationsResponse]{
		Open: func(ctx context.Context, token string) (Receiver[pb.WatchOperationsResponse], error) {
			current := l.lines[min(len(l.tokens), len(l.lines)-1)]
			l.tokens = append(l.tokens, token)
			if current.refused != nil {
				return nil, current.refused
			}
			return &lineReceiver{ctx: ctx, line: current}, nil
		},
		Token: (*pb.WatchOperationsResponse).GetResumeToken,
		Handle: func(m *pb.WatchOperationsResponse) (bool, error) {
			handled++
			l.events = append(l.events, "message "+m.GetResumeToken())
			return handled == until, nil
		},
		Lost: func(err error) { l.events = append(l.events, "lost: "+err.Error()) },
		Back: func() { l.events = append(l.events, "back") },
	}
}

func message(token string) *pb.WatchOperationsResponse {
	return &pb.WatchOperationsResponse{ResumeToken: token, Event: &pb.WatchOperationsResponse_Heartbeat{Heartbeat: &pb.Heartbeat{}}}
}

var away = connect.NewError(connect.CodeUnavailable, errors.New("connection refused"))

// A stream that ends goes on where it was. An outage is said once, however often nobody answers.
func TestGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hub := &lines{lines: []line{
			{sends: []*pb.WatchOperationsResponse{message("1"), message("2")}, ends: away},
			{refused: away}, {refused: away}, {refused: away},
			{sends: []*pb.WatchOperationsResponse{message("3")}},
			{sends: []*pb.WatchOperationsResponse{message(""), message("5")}},
		}}
		g.Expect(hub.stream(5).Run(t.Context())).To(Succeed())
		g.Expect(hub.tokens).To(Equal([]string{"", "2", "2", "2", "2", "3"}))
		g.Expect(hub.events).To(Equal([]string{
			"message 1", "message 2", "lost: unavailable: connection refused", "back", "message 3", "message ", "message 5",
		}))
	})
}

// After ten minutes without an answer there is no point in waiting; before, there is.
func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hub := &lines{lines: []line{{refused: away}}}
		start := time.Now()
		err := hub.stream(1).Run(t.Context())
		g.Expect(err).To(MatchError("nobody has answered for 10m0s: unavailable: connection refused"))
		g.Expect(time.Since(start)).To(And(BeNumerically(">", Patience), BeNumerically("<", Patience+2*longestPause)))
		g.Expect(hub.events).To(HaveLen(1))
		g.Expect(len(hub.tokens)).To(BeNumerically("<", 80), "it backs off")
	})
}

// Every outage has ten minutes of its own.
func TestPatienceBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hub := &lines{}
		for i := range 3 {
			for range 50 { // About eight minutes.
				hub.lines = append(hub.lines, line{refused: away})
			}
			hub.lines = append(hub.lines, line{sends: []*pb.WatchOperationsResponse{message(fmt.Sprint(i))}, ends: away})
		}
		start := time.Now()
		g.Expect(hub.stream(3).Run(t.Context())).To(Succeed())
		g.Expect(time.Since(start)).To(BeNumerically(">", 2*Patience))
	})
}

// That a replica goes and another answers is nothing to tell.
func TestAnotherReplicaTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hub := &lines{lines: []line{{sends: []*pb.WatchOperationsResponse{message("1")}, ends: away}, {sends: []*pb.WatchOperationsResponse{message("2")}}}}
		g.Expect(hub.stream(2).Run(t.Context())).To(Succeed())
		g.Expect(hub.events).To(Equal([]string{"message 1", "message 2"}))
	})
}

// A stream without heartbeats is dead, whatever TCP believes.
func TestSilenceIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hub := &lines{lines: []line{
			{sends: []*pb.WatchOperationsResponse{message("1")}, hang: true},
			{sends: []*pb.WatchOperationsResponse{message("2")}},
		}}
		start := time.Now()
		g.Expect(hub.stream(2).Run(t.Context())).To(Succeed())
		g.Expect(hub.events).To(Equal([]string{"message 1", "message 2"}))
		g.Expect(time.Since(start)).To(BeNumerically("~", silence, time.Second))
	})
}

// What trying again cannot change ends it at once.
func TestFinalErrors(t *testing.T) {
	for name, err := range map[string]error{
		"no right": connect.NewError(connect.CodePermissionDenied, errors.New("no")), "not signed in": connect.NewError(connect.CodeUnauthenticated, errors.New("no")),
		"signed out": connect.NewError(connect.CodeUnavailable, &dial.SignInError{Err: errors.New("expired")}),
		"not there":  connect.NewError(connect.CodeNotFound, errors.New("no")), "another certificate": connect.NewError(connect.CodeUnavailable, &dial.FingerprintError{}),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			hub := &lines{lines: []line{{refused: err}}}
			g.Expect(hub.stream(1).Run(t.Context())).To(MatchError(err))
			g.Expect(hub.tokens).To(HaveLen(1))
			g.Expect(hub.events).To(BeEmpty())
		})
	}
}

// A hub ends a stream whose credentials have ended. Where there are others by now, it goes on without a word.
func TestCredentialsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ended := connect.NewError(connect.CodeUnauthenticated, errors.New("the token has expired"))
		hub := &lines{lines: []line{{sends: []*pb.WatchOperationsResponse{message("1")}, ends: ended}, {sends: []*pb.WatchOperationsResponse{message("2")}}}}
		g.Expect(hub.stream(2).Run(t.Context())).To(Succeed())
		g.Expect(hub.events).To(Equal([]string{"message 1", "message 2"}))

		hub = &lines{lines: []line{{sends: []*pb.WatchOperationsResponse{message("1")}, ends: ended}, {refused: ended}}}
		g.Expect(hub.stream(2).Run(t.Context())).To(MatchError(ended))
		g.Expect(hub.tokens).To(HaveLen(2))
	})
}

func TestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for _, hub := range []*lines{{lines: []line{{refused: away}}}, {lines: []line{{hang: true, ends: context.Canceled}}}} {
			g.Expect(hub.stream(1).Run(ctx)).To(MatchError(context.DeadlineExceeded))
		}
	})
}

// A hub that ends a stream at once, again and again, is not asked without a pause.
func TestEmptyStreamsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hub := &lines{lines: []line{{}}}
		g.Expect(hub.stream(1).Run(t.Context())).To(MatchError(ContainSubstring("nobody has answered")))
		g.Expect(hub.events).To(Equal([]string{"lost: it ended the stream at once"}))
		g.Expect(len(hub.tokens)).To(BeNumerically("<", 80))
	})
}
