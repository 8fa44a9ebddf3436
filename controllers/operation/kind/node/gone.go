// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
)

// goneWay is the way of a machine that was told to wipe itself to being off, or gone. It is told apart from package poweroff by what a wiped
// machine is: it knows no credentials any more, so that whatever keeps it from answering as a machine of the cluster is silence.
type goneWay struct {
	// lasting is how long the silence has to last.
	lasting time.Duration

	// wiped machines know no credentials any more.
	wiped bool

	// retryAt is where a retry begins after the machine refused.
	retryAt v1alpha1.OperationStep

	// ask is the action that asks once more, where the request certainly did not arrive.
	ask func() kind.Action

	// cameBack says what it means that the machine has booted and answers.
	cameBack string
}

// gone says whether a machine is gone, as far as one look tells: nothing answers, and its Node is not ready, or there is none.
func (w goneWay) gone(scope kind.Scope, seen kind.Observation) bool {
	silent := seen.TalosSilent || w.wiped && seen.TalosTrouble != ""
	off := seen.NodeTrouble == "" && (seen.Node == nil || !seen.Node.Ready)
	return silent && (off || scope.Blind && seen.NodeTrouble != "")
}

// next decides what comes after the request, and while the machine is gone.
func (w goneWay) next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case seen.TalosTrouble == "" && seen.Talos.BootID != unit.Status.PreRebootBootID:
		return kind.Action{Verdict: kind.Fail, Message: w.cameBack}
	case unit.Status.Step == v1alpha1.StayingOffStep:
		return w.stayingGone(scope, seen)
	}
	return w.going(scope, unit, seen)
}

func (w goneWay) going(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	visible := seen.TalosTrouble == ""
	switch {
	case unit.FailedForGood():
		return kind.FailStep(unit, w.retryAt)
	case unit.Failed() && visible && !reboot.GoingDown(seen.Talos.Stage):
		return w.ask()
	case w.gone(scope, seen):
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.StayingOffStep, Message: "waiting whether the machine stays off"}
	case visible:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("still up in stage %q; if it hangs: cut its power, and resume", seen.Talos.Stage)}
	case !seen.TalosSilent && !w.wiped:
		return kind.Action{Verdict: kind.Wait, Message: "waiting until the machine is silent: " + seen.TalosTrouble}
	case seen.NodeTrouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Kubernetes API: " + seen.NodeTrouble}
	}
	return kind.Action{Verdict: kind.Wait, Message: "waiting until the Node is not ready"}
}

// stayingGone goes back to waiting for the silence when it is broken: a network that was away for a while is no machine that is off.
func (w goneWay) stayingGone(scope kind.Scope, seen kind.Observation) kind.Action {
	switch {
	case w.gone(scope, seen):
		return kind.Action{Verdict: kind.Done, After: w.lasting}
	case seen.TalosTrouble == "":
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.ResettingStep, Message: "the machine answers again"}
	}
	return kind.Action{Verdict: kind.Wait, Message: "waiting whether the machine stays off"}
}
