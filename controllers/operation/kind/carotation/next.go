// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"fmt"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
)

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	of, pass := rotationplan.Parse(unit.Status.Stage)
	switch {
	case takenBack(scope, pass), scope.TurnBack && unit.Status.Stage == rotationplan.PrepareStage:
		return kind.Action{Verdict: kind.Done} // What was begun here is taken back by a stage of its own.
	case unit.Machine != nil:
		return machine(scope, unit, seen, of, pass)
	}
	return cluster(scope, unit, seen, of, pass)
}

// takenBack says whether a pass is one that somebody has asked to turn back.
func takenBack(scope kind.Scope, pass rotationplan.Pass) bool {
	switch pass {
	case rotationplan.Accept, rotationplan.Trust, rotationplan.Swap, rotationplan.AwaitCredentials:
		return scope.TurnBack
	case rotationplan.DropWorkers, rotationplan.Drop, rotationplan.BackTrust, rotationplan.BackSwap, rotationplan.BackCredentials,
		rotationplan.BackAcceptWorkers, rotationplan.BackAccept:
	}
	return false
}

// machine decides about a machine in a pass.
func machine(scope kind.Scope, unit kind.Unit, seen kind.Observation, of v1alpha1.CAAuthority, pass rotationplan.Pass) kind.Action {
	step := unit.Status.Step
	switch {
	case (step == v1alpha1.ApplyingStep || step == v1alpha1.CatchingUpStep) && unit.Failed():
		return kind.FailStep(unit, v1alpha1.VerifyingStep) // It is looked at afresh: its config may be another one by then.
	case step == v1alpha1.ApplyingStep:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until the machine proves it"}
	case seen.TalosTrouble != "":
		return kind.Unreachable(unit, seen.TalosTrouble) // For as long as it takes: no machine is left behind.
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	return looked(scope, unit, lookOf(seen), of, pass)
}

// looked decides about a machine that has answered.
func looked(scope kind.Scope, unit kind.Unit, look Look, of v1alpha1.CAAuthority, pass rotationplan.Pass) kind.Action {
	step, name := unit.Status.Step, unit.Status.Name
	switch {
	case look.Lost != "":
		return kind.Action{Verdict: kind.Fail, Message: look.Lost}
	case look.Trouble != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigKnownGate, Message: fmt.Sprintf("%s: %s", name, look.Trouble)}
	case look.At == foreign:
		return kind.Action{Verdict: kind.Fail, Message: "its machine config " + positionWords[foreign] + ": somebody else rotates"}
	case step == "" && unit.Machine.Held() && !scope.TurnBack:
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineHeldGate, Message: fmt.Sprintf(
			"machine %s is held, and a rotation leaves none out; go on with: ichor machine unhold %[1]s", name)}
	case look.Unproven != "" && !reached(pass, look.At): // Nobody has begun with it, or it goes on from where it was brought: it has no deadline.
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.RotationPassGate, Message: name + ": " + look.Unproven}
	case look.Unproven != "":
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting for " + name + ": " + look.Unproven}
	case reached(pass, look.At):
		return kind.Action{Verdict: kind.Done, Message: proved(unit, of, pass)}
	case look.Pending:
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigPendingGate, Message: fmt.Sprintf(
			"a machine config is staged or tried on %s, which a change would wipe: whoever did that lets the trial end, or reboots it: ichor node reboot %[1]s", name)}
	case look.Late && step != v1alpha1.CatchingUpStep: // It would wait for them, and they behind it.
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.CatchingUpStep}
	case len(look.Lagging) > 0:
		return lagging(look.Lagging)
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.ApplyingStep, ConfigHash: look.Desired, NodeName: unit.Machine.Status.NodeName}
}

// proofs are what a machine has shown once a pass is over on it, at its own address.
var proofs = map[rotationplan.Pass]string{
	rotationplan.Accept: "accepts clients of the new %s authority", rotationplan.Swap: "serves a client that trusts the new %s authority alone",
	rotationplan.DropWorkers: "has dropped the old %s authority", rotationplan.Drop: "refuses clients of the old %s authority",
	rotationplan.BackSwap:          "serves a client that trusts the old %s authority alone",
	rotationplan.BackAcceptWorkers: "has dropped the new %s authority", rotationplan.BackAccept: "refuses clients of the new %s authority",
}

// proved says what a machine has shown. Of a worker and the Kubernetes authority that is the client certificate of its kubelet.
func proved(unit kind.Unit, of v1alpha1.CAAuthority, pass rotationplan.Pass) string {
	if of == v1alpha1.KubernetesCA && unit.Machine.Spec.Role == v1alpha1.WorkerRole {
		return "its kubelet has a client certificate that is accepted, and its Node is Ready"
	}
	return fmt.Sprintf(proofs[pass], of) + ", asked at " + unit.Machine.Spec.Address
}

// lagging waits for machines that are not where they have to be.
func lagging(list []string) kind.Action {
	message := list[0]
	if more := len(list) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.RotationPassGate, Message: message}
}

// calls are what the stages without machines do.
var calls = map[rotationplan.Pass]v1alpha1.OperationStep{
	rotationplan.Trust: v1alpha1.TrustingStep, rotationplan.AwaitCredentials: v1alpha1.HandingOverStep,
	rotationplan.BackTrust: v1alpha1.TrustingStep, rotationplan.BackCredentials: v1alpha1.TrustingStep,
}

// cluster decides about a stage without machines.
func cluster(scope kind.Scope, unit kind.Unit, seen kind.Observation, of v1alpha1.CAAuthority, pass rotationplan.Pass) kind.Action {
	step, all := unit.Status.Step, overviewOf(seen)
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case step == v1alpha1.HandingOverStep:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.AwaitingCredentialsStep, Message: awaited(scope, of)}
	case step != "" && step != v1alpha1.AwaitingCredentialsStep && step != v1alpha1.CatchingUpStep:
		return kind.Action{Verdict: kind.Done}
	case all.Lost != "":
		return kind.Action{Verdict: kind.Fail, Message: all.Lost}
	}
	if wait := behind(all, step); wait != nil {
		return *wait
	}
	switch {
	case step == v1alpha1.AwaitingCredentialsStep:
		return awaiting(scope, unit, all, of)
	case unit.Status.Stage == rotationplan.PrepareStage:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.GeneratingStep}
	case unit.Status.Stage == rotationplan.FinishStage:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.FinishingStep}
	}
	return kind.Action{Verdict: kind.Call, Step: calls[pass]}
}

// behind says what to do about machines that are not where they have to be; nil if all are.
func behind(all Overview, step v1alpha1.OperationStep) *kind.Action {
	switch {
	case all.Trouble != "":
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.RotationPassGate, Message: all.Trouble}
	case all.Late && step != v1alpha1.CatchingUpStep:
		return &kind.Action{Verdict: kind.Call, Step: v1alpha1.CatchingUpStep}
	case len(all.Lagging) > 0:
		wait := lagging(all.Lagging)
		return &wait
	}
	return nil
}

// awaiting waits until people say that they have the new credentials, as long as nobody writes the old ones back.
func awaiting(scope kind.Scope, unit kind.Unit, all Overview, of v1alpha1.CAAuthority) kind.Action {
	switch {
	case all.Stale != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.CredentialsConfirmedGate, Message: all.Stale}
	case scope.ConfirmedStage != unit.Status.Stage:
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.CredentialsConfirmedGate, Message: awaited(scope, of)}
	}
	return kind.Action{Verdict: kind.Done}
}

func overviewOf(seen kind.Observation) Overview {
	all, ok := seen.Own.(Overview)
	if !ok {
		return Overview{Trouble: "nobody has looked at the cluster yet"}
	}
	return all
}

// awaited says what people are asked for, and how they say that it is done.
func awaited(scope kind.Scope, of v1alpha1.CAAuthority) string {
	secret, what := scope.Cluster.KubeconfigSecret, "restart what keeps the old authority in memory"
	if of == v1alpha1.TalosCA {
		secret, what = scope.Cluster.TalosconfigSecret, "give it to whoever has a copy"
	}
	_, name, _ := strings.Cut(scope.Owner, "/")
	return fmt.Sprintf("the new credentials are in Secret %s: %s, then: ichor operation confirm %s", secret, what, name)
}
