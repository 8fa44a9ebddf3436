// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// sends makes a watch send states of an operation, and break then.
func (h *fakeHub) sends(states ...*pb.Operation) {
	h.streams = append(h.streams, func(s *connect.ServerStream[pb.WatchOperationsResponse]) error {
		for _, op := range states {
			if err := s.Send(&pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Changed{Changed: op}, ResumeToken: "t"}); err != nil {
				return err
			}
		}
		return connect.NewError(connect.CodeUnavailable, errors.New("the hub is shutting down"))
	})
}

func watching(t *testing.T, states ...*pb.Operation) (*fakeHub, *user) {
	t.Helper()
	h := world(t)
	if len(states) > 0 {
		h.sends(states...)
	}
	return h, newUser(t, h)
}

var watchArgs = []string{"operation", "watch", "prod-1-talos-x"}

func TestFollowUntilItIsOver(t *testing.T) {
	g := NewWithT(t)
	_, u := watching(t, upgrade(inProgress), overUpgrade())
	r := u.ichor(watchArgs...)
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Out).To(And(ContainSubstring("prod-1-w-1  Draining: a budget keeps pods\n"), HaveSuffix("  Completed within 8m0s; held: prod-1-w-2.\n")))
}

// Exit code 3: somebody has to do something, and is told what.
func TestFollowUntilAPersonIsNeeded(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, upgradePlan())
	h.sends(upgrade(inProgress), failedUpgrade())
	r := u.ichor(with(upgradeArgs, "--yes", "--follow")...)
	g.Expect(r.Code).To(Equal(3))
	g.Expect(r.Err).To(HaveSuffix("Error: operation prod-1-talos-x needs a person: StepFailed: step Installing of prod-1-w-1 failed: exit code 6; " +
		"an operator, once the cause is mended: ichor operation resume prod-1-talos-x -n default\n"))
	g.Expect(r.Out).To(HavePrefix("Operation prod-1-talos-x is created.\n"))
}

func TestFollowWhatIsDeleted(t *testing.T) {
	g := NewWithT(t)
	h, u := watching(t)
	h.streams = append(h.streams, func(s *connect.ServerStream[pb.WatchOperationsResponse]) error {
		return s.Send(&pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Removed{Removed: ref("default", "prod-1-talos-x")}})
	})
	r := u.ichor(watchArgs...)
	g.Expect(r).To(And(HaveField("Code", 3), HaveField("Err", Equal("Error: operation prod-1-talos-x was deleted\n"))))
}

// An outage is said once, and what follows it is not missed.
func TestFollowThroughAnOutage(t *testing.T) {
	g := NewWithT(t)
	h, u := watching(t, upgrade(inProgress))
	h.sends()
	h.sends()
	h.sends(overUpgrade())
	r := u.ichor(watchArgs...)
	g.Expect(r.Code).To(BeZero(), r.Err)
	g.Expect(r.Err).To(Equal("The hub " + h.url + " does not answer (the hub is shutting down); trying again for 10m0s.\nThe hub " + h.url + " answers again.\n"))
	g.Expect(r.Out).To(HaveSuffix("Completed within 8m0s; held: prod-1-w-2.\n"))
	g.Expect(of[*pb.WatchOperationsRequest](h)[1].GetResumeToken()).To(Equal("t"))
}

// Exit code 5: the operation still goes on.
func TestFollowForSoLong(t *testing.T) {
	g := NewWithT(t)
	_, u := watching(t)
	r := u.ichor(with(watchArgs, "--timeout", "50ms")...)
	g.Expect(r).To(And(HaveField("Code", 5), HaveField("Err", Equal("Error: operation prod-1-talos-x still goes on after 50ms; follow it again with: ichor operation watch prod-1-talos-x\n"))))
}

// --timeout is about the end of what is followed, and not about how fast it is started.
func TestFollowForSoLongFromTheStart(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, upgradePlan())
	h.lay["CreateOperationResponse"] = []func() (proto.Message, error){func() (proto.Message, error) {
		<-time.After(60 * time.Millisecond) // A hub that is slow.
		return &pb.CreateOperationResponse{Operation: upgrade(inProgress)}, nil
	}}
	r := u.ichor(with(upgradeArgs, "--yes", "--follow", "--timeout", "20ms")...)
	g.Expect(r.Code).To(Equal(5), r.Err)
	h.lay["GetOperationResponse"] = []func() (proto.Message, error){func() (proto.Message, error) {
		<-time.After(60 * time.Millisecond)
		return &pb.GetOperationResponse{Operation: upgrade(inProgress)}, nil
	}}
	g.Expect(u.ichor("op", "get", "x", "--timeout", "20ms")).To(And(HaveField("Code", 1), HaveField("Err", ContainSubstring("has not answered in time"))))
	g.Expect(u.ichor(with(watchArgs, "--timeout", "20ms")...).Code).To(Equal(5))
}

// Ctrl-C ends the command, not the operation.
func TestDetach(t *testing.T) {
	g := NewWithT(t)
	h, u := watching(t)
	ctx, interrupt := context.WithCancel(t.Context())
	u.interrupt = ctx
	h.streams = append(h.streams, func(s *connect.ServerStream[pb.WatchOperationsResponse]) error {
		err := s.Send(&pb.WatchOperationsResponse{Event: &pb.WatchOperationsResponse_Changed{Changed: upgrade(inProgress)}})
		interrupt()
		return err
	})
	r := u.ichor(watchArgs...)
	g.Expect(r).To(And(HaveField("Code", 130),
		HaveField("Err", ContainSubstring("Detached; the operation goes on. Follow it again with: ichor operation watch prod-1-talos-x\n"))))
}

// A name that does not exist is an error at once.
func TestWatchWhatIsNotThere(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	h.refuse(&pb.GetOperationResponse{}, connect.CodeNotFound, "there is no operation")
	r := newUser(t, h).ichor(watchArgs...)
	g.Expect(r).To(Equal(result{Err: "Error: there is no operation\n", Code: 1}))
}

// Programs get states and nothing else on standard output: one by one, or the last.
func TestFollowForPrograms(t *testing.T) {
	g := NewWithT(t)
	_, u := watching(t, upgrade(inProgress), overUpgrade())
	r := u.ichor(with(watchArgs, "-o", "jsonl")...)
	g.Expect(r.Code).To(BeZero(), r.Err)
	var phases []string
	lines := bufio.NewScanner(strings.NewReader(r.Out))
	for lines.Scan() {
		var op struct{ Phase string }
		g.Expect(json.Unmarshal(lines.Bytes(), &op)).To(Succeed())
		phases = append(phases, op.Phase)
	}
	g.Expect(phases).To(Equal([]string{"OPERATION_PHASE_IN_PROGRESS", "OPERATION_PHASE_COMPLETED"}))

	h, u := planning(t, upgradePlan())
	h.sends(upgrade(inProgress), failedUpgrade())
	r = u.ichor(with(upgradeArgs, "--yes", "--follow", "-o", "json")...)
	g.Expect(r.Code).To(Equal(3))
	var last struct{ Phase string }
	g.Expect(json.Unmarshal([]byte(r.Out), &last)).To(Succeed(), r.Out)
	g.Expect(last.Phase).To(Equal("OPERATION_PHASE_PAUSED"))
	g.Expect(r.Err).To(ContainSubstring("prod-1-w-1  Draining"))

	h, u = planning(t, upgradePlan())
	h.sends(overUpgrade())
	r = u.ichor(with(upgradeArgs, "--yes", "--follow", "-o", "name")...)
	g.Expect(r).To(And(HaveField("Code", 0), HaveField("Out", Equal("talosoperation.ichor.maesh.dev/prod-1-talos-x\n"))))
}

// A terminal gets a tree that changes; one that cannot move its cursor gets the log, and nobody gets colours who does not want them.
func TestFollowOnATerminal(t *testing.T) {
	for name, row := range map[string]struct {
		env             map[string]string
		args            []string
		redraws, colour bool
	}{
		"terminal": {redraws: true, colour: true}, "NO_COLOR": {env: map[string]string{"NO_COLOR": "1"}, redraws: true},
		"--no-color": {args: []string{"--no-color"}, redraws: true}, "dumb": {env: map[string]string{"TERM": "dumb"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, u := watching(t, upgrade(inProgress), overUpgrade())
			u.terminal = true
			for key, value := range row.env {
				u.env[key] = value
			}
			r := u.ichor(with(watchArgs, row.args...)...)
			g.Expect(r.Code).To(BeZero(), r.Err)
			g.Expect(strings.Contains(r.Out, "\x1b[J")).To(Equal(row.redraws))
			g.Expect(strings.Contains(r.Out, "\x1b[32m")).To(Equal(row.colour))
			g.Expect(strings.Contains(r.Out, "├─ ")).To(Equal(row.redraws))
			g.Expect(r.Out).To(ContainSubstring("Completed within 8m0s"))
		})
	}
}

// An interrupt ends a question, and what is asked of a hub that does not answer; and it is told what may have happened.
func TestInterrupt(t *testing.T) {
	g := NewWithT(t)
	h, u := planning(t, upgradePlan())
	ctx, interrupt := context.WithCancel(t.Context())
	u.interrupt, u.terminal = ctx, true
	in, typing := io.Pipe()
	t.Cleanup(func() { typing.Close() }) //nolint:errcheck // It never fails.
	u.in = interrupting{in, interrupt}
	r := u.ichor(upgradeArgs...)
	g.Expect(r).To(And(HaveField("Code", 130), HaveField("Err", HaveSuffix("Error: interrupted, nothing was changed\n"))))
	g.Expect(of[*pb.CreateOperationRequest](h)).To(BeEmpty())

	h, u = planning(t, upgradePlan())
	ctx, interrupt = context.WithCancel(t.Context())
	u.interrupt = ctx
	h.lay["CreateOperationResponse"] = []func() (proto.Message, error){func() (proto.Message, error) {
		interrupt()
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("away"))
	}}
	r = u.ichor(with(upgradeArgs, "--yes")...)
	g.Expect(r).To(And(HaveField("Code", 130), HaveField("Err", HaveSuffix("Error: interrupted; it may have been started, see: ichor operation list --cluster prod-1 -n default\n"))))
}

// interrupting is a keyboard whose user thinks, and then presses Ctrl-C.
type interrupting struct {
	io.Reader

	interrupt func()
}

func (i interrupting) Read(p []byte) (int, error) {
	i.interrupt()
	return i.Reader.Read(p)
}
