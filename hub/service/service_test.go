// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

func TestMachine(t *testing.T) {
	w := newWorld(t,
		machine("c1-w-1", "c1", "w-1", "Worker"), machine("c1-w-2", "c1", "W-2.Example", "Worker"), machine("c2-w-1", "c2", "w-1", "Worker"),
		machine("c1-x", "c1", "own", "Worker"), machine("own", "c3", "c1-w-1", "Worker"),
	)
	for name, row := range map[string]struct{ cluster, ask, want, err string }{
		"by full name": {"", "c1-w-1", "c1-w-1", ""},
		"by full name, which is the Node of another, listed before": {"", "own", "own", ""},
		"by node":               {"", "w-2.example", "c1-w-2", ""},
		"by node, in a cluster": {"c2", "w-1", "c2-w-1", ""},
		"in another cluster":    {"c2", "c1-w-1", "", `there is no machine "c1-w-1"; list them with: ichor machine list`},
		"nobody":                {"", "w-9", "", `there is no machine "w-9"; list them with: ichor machine list`},
		"one of two":            {"", "w-1", "", `machine "w-1" is one of c1-w-1, c2-w-1: name the cluster with --cluster, or use a full name`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found, err := w.Machine(w.ctx, "default", row.cluster, row.ask)
			if row.err != "" {
				g.Expect(err).To(MatchError(row.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Name).To(Equal(row.want))
		})
	}
}

func TestSetHold(t *testing.T) {
	w := newWorld(t, machine("c1-w-1", "c1", "w-1", "Worker"))
	now := &v1alpha1.TalosMachine{}
	w.get(now, "c1-w-1")
	w.g.Expect(w.SetHold(w.ctx, now, true, "disk is dying")).To(Succeed())
	w.get(now, "c1-w-1")
	w.g.Expect(now.Annotations).To(HaveKeyWithValue("ichor.maesh.dev/upgrade-hold", "disk is dying"))
	w.g.Expect(w.SetHold(w.ctx, now, true, "")).To(Succeed())
	w.get(now, "c1-w-1")
	w.g.Expect(now.Held()).To(BeTrue(), "a hold needs no note")
	w.g.Expect(w.SetHold(w.ctx, now, false, "")).To(Succeed())
	w.get(now, "c1-w-1")
	w.g.Expect(now.Held()).To(BeFalse())
}

func paused(op *v1alpha1.TalosOperation) *v1alpha1.TalosOperation {
	op.Spec.Paused = ptr.To(true)
	return op
}

func failed(op *v1alpha1.TalosOperation) *v1alpha1.TalosOperation {
	op.Status.FailureReason = "machine c1-w-1: it broke"
	return op
}

func TestPauseAndResume(t *testing.T) {
	const pause, resume = "pause", "resume"
	for name, row := range map[string]struct {
		op     *v1alpha1.TalosOperation
		do     string
		did    string
		err    string
		paused bool
		retry  bool
	}{
		"pause":                 {op: operation("op", "c1"), do: pause, paused: true},
		"pause what failed":     {op: failed(operation("op", "c1")), do: pause, paused: true},
		"pause twice":           {op: paused(operation("op", "c1")), do: pause, err: "operation op is paused already: nothing to do", paused: true},
		"pause what is over":    {op: completed(operation("op", "c1")), do: pause, err: "operation op is completed: nothing to do"},
		"resume":                {op: paused(operation("op", "c1")), do: resume, did: "unpaused"},
		"resume what failed":    {op: failed(operation("op", "c1")), do: resume, did: "the failed step is retried", retry: true},
		"resume paused, failed": {op: paused(failed(operation("op", "c1"))), do: resume, did: "unpaused, and the failed step is retried", retry: true},
		"resume what goes on":   {op: operation("op", "c1"), do: resume, err: "operation op is neither paused nor failed: nothing to do"},
		"resume what is over":   {op: completed(paused(operation("op", "c1"))), do: resume, err: "operation op is completed: nothing to do", paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.op)
			op, err := w.Operation(w.ctx, client.ObjectKey{Namespace: "default", Name: "op"})
			w.g.Expect(err).NotTo(HaveOccurred())
			var did string
			if row.do == pause {
				err = w.Pause(w.ctx, op)
			} else {
				did, err = w.Resume(w.ctx, op)
			}
			w.g.Expect(did).To(Equal(row.did))
			if row.err == "" {
				w.g.Expect(err).NotTo(HaveOccurred())
			} else {
				w.g.Expect(err).To(MatchError(row.err))
				w.g.Expect(errors.Is(err, ErrNothingToDo)).To(BeTrue())
				w.g.Expect(w.writes).To(BeEmpty())
			}
			w.get(op, "op")
			w.g.Expect(op.Paused()).To(Equal(row.paused))
			retry := op.Annotations["ichor.maesh.dev/retry"] == "true"
			w.g.Expect(retry).To(Equal(row.retry))
		})
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t, operation("op", "c1"))
	w.g.Expect(w.Delete(w.ctx, operation("op", "c1"))).To(Succeed())
	_, err := w.Operation(w.ctx, client.ObjectKey{Namespace: "default", Name: "op"})
	w.g.Expect(err).To(MatchError(`there is no operation "op" in namespace "default"; list them with: ichor operation list`))
	w.g.Expect(w.Delete(w.ctx, operation("op", "c1"))).To(MatchError(HavePrefix("deleting operation op: ")))
}

// A machine is approved by whoever may change it, once.
func TestApprove(t *testing.T) {
	late := machine("c1-w-9", "c1", "w-9.example.org", "Worker")
	late.Spec.Approval = "Pending"
	w := newWorld(t, late)
	for _, name := range []string{"c1-w-9", "W-9.example.org"} {
		found, err := w.Machine(w.ctx, "default", "", name)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(found.Name).To(Equal("c1-w-9"))
	}
	w.fail = func(string) error { return errors.New("forbidden") }
	w.g.Expect(w.Approve(w.ctx, late)).To(MatchError("approving machine c1-w-9: forbidden"))
	w.fail = func(string) error { return nil }
	w.writes = nil
	w.g.Expect(w.Approve(w.ctx, late)).To(Succeed())
	w.g.Expect(w.writes).To(Equal([]string{"patch TalosMachine"}))
	after := &v1alpha1.TalosMachine{}
	w.get(after, "c1-w-9")
	w.g.Expect(after.Spec.Approval).To(BeEquivalentTo("Approved"))
	w.g.Expect(w.Approve(w.ctx, after)).To(MatchError(ErrNothingToDo))
	w.g.Expect(w.writes).To(HaveLen(1))
}
