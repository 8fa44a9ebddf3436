// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	"connectrpc.com/connect"
	. "github.com/onsi/gomega"

	pb "ichor.maesh.dev/hub/proto/gen/ichor/v1alpha1"
)

// Resume does what the state of an operation calls for, and says what it did.
func TestResume(t *testing.T) {
	failedAndPaused, retried := failedUpgrade(), failedUpgrade()
	failedAndPaused.Paused, retried.RetryRequested = true, true
	justPaused := upgrade(paused)
	justPaused.Paused = true
	for name, row := range map[string]struct {
		op               *pb.Operation
		unpaused         bool
		out, err         string
		retries, unpause int
	}{
		"paused":              {op: justPaused, unpaused: true, out: "Operation prod-1-talos-x: unpaused.\n", unpause: 1},
		"failed":              {op: failedUpgrade(), out: "Operation prod-1-talos-x: the failed step is retried.\n", retries: 1, unpause: 1},
		"both":                {op: failedAndPaused, unpaused: true, out: "Operation prod-1-talos-x: unpaused, and the failed step is retried.\n", retries: 1, unpause: 1},
		"retried before":      {op: retried, err: "Operation prod-1-talos-x is neither paused nor failed: nothing to do.\n", unpause: 1},
		"running":             {op: upgrade(inProgress), err: "Operation prod-1-talos-x is neither paused nor failed: nothing to do.\n", unpause: 1},
		"paused a moment ago": {op: upgrade(inProgress), unpaused: true, out: "Operation prod-1-talos-x: unpaused.\n", unpause: 1},
		"over":                {op: overUpgrade(), err: "Operation prod-1-talos-x is completed: nothing to do.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newFakeHub(t)
			h.answer(
				&pb.GetOperationResponse{Operation: row.op}, &pb.RetryOperationResponse{Operation: row.op, Changed: true},
				&pb.SetOperationPausedResponse{Operation: row.op, Changed: row.unpaused},
			)
			g.Expect(newUser(t, h).ichor("op", "resume", "prod-1-talos-x")).To(Equal(result{Out: row.out, Err: row.err}))
			g.Expect(of[*pb.RetryOperationRequest](h)).To(HaveLen(row.retries))
			g.Expect(of[*pb.SetOperationPausedRequest](h)).To(HaveLen(row.unpause))
			for _, request := range of[*pb.SetOperationPausedRequest](h) {
				g.Expect(request.GetPaused()).To(BeFalse())
			}
		})
	}
}

// Who may not retry does not lift the pause either: half of what was asked for is not what was asked for.
func TestResumeWithoutTheRight(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	op := failedUpgrade()
	op.Paused = true
	h.answer(&pb.GetOperationResponse{Operation: op}, &pb.SetOperationPausedResponse{Operation: op, Changed: true})
	h.refuse(&pb.RetryOperationResponse{}, connect.CodePermissionDenied, "bob may not start talosoperations/talos")
	r := newUser(t, h).ichor("op", "resume", "prod-1-talos-x")
	g.Expect(r).To(Equal(result{Err: "Error: retrying operation prod-1-talos-x: bob may not start talosoperations/talos\n", Code: 1}))
	g.Expect(of[*pb.SetOperationPausedRequest](h)).To(BeEmpty())
}

func TestPauseAndRetry(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	h.answer(
		&pb.SetOperationPausedResponse{Operation: upgrade(paused), Changed: true}, &pb.SetOperationPausedResponse{Operation: upgrade(paused)},
		&pb.RetryOperationResponse{Operation: failedUpgrade(), Changed: true}, &pb.RetryOperationResponse{Operation: upgrade(inProgress)},
	)
	u := newUser(t, h)
	g.Expect(u.ichor("op", "pause", "x")).To(Equal(result{Out: "Operation x pauses at the next safe point and keeps its lock. Go on with: ichor operation resume x\n"}))
	g.Expect(u.ichor("op", "pause", "x")).To(Equal(result{Err: "Operation x is paused already: nothing to do.\n"}))
	g.Expect(of[*pb.SetOperationPausedRequest](h)[0].GetPaused()).To(BeTrue())
	g.Expect(u.ichor("op", "retry", "other/x")).To(Equal(result{Out: "Operation other/x: the failed step is retried.\n"}))
	g.Expect(u.ichor("op", "retry", "x")).To(Equal(result{Err: "Operation x has not failed: nothing to do.\n"}))
	g.Expect(u.ichor("op", "pause", "x", "-o", "name")).To(Equal(result{Out: "talosoperation.ichor.maesh.dev/x\n", Err: "Operation x is paused already: nothing to do.\n"}))
}

// Letting go of machines half-way is worth a reason and a name.
func TestDelete(t *testing.T) {
	g := NewWithT(t)
	h := newFakeHub(t)
	h.answer(&pb.DeleteOperationResponse{}, &pb.DeleteOperationResponse{Gone: true})
	u := newUser(t, h)
	g.Expect(u.ichor("op", "delete", "x").Out).To(Equal("Operation x is being deleted: it settles first, and gives its lock back.\n"))
	for _, args := range [][]string{{"--force"}, {"--force", "--reason", "r"}, {"--force", "--reason", "r", "--confirm", "y"}} {
		g.Expect(u.ichor(with([]string{"op", "delete", "x"}, args...)...).Code).To(Equal(2))
	}
	g.Expect(of[*pb.DeleteOperationRequest](h)).To(HaveLen(1))
	g.Expect(u.ichor("op", "delete", "x", "--force", "--reason", "disk died", "--confirm", "x").Out).To(Equal("Operation x is deleted.\n"))
	g.Expect(of[*pb.DeleteOperationRequest](h)[1]).To(BeComparableTo(&pb.DeleteOperationRequest{Ref: ref("default", "x"), Force: true, Reason: "disk died"}, protoEqual))
}
