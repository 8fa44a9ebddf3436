// SPDX-License-Identifier: Apache-2.0

// Package config is the executor of kind config: it gives machines the machine config that the spec of their cluster asks for.
//
// The config is rendered for each machine when its turn comes, and its hash is claimed before the machine hears of it: what the machine has
// to show afterwards is that hash, whatever is declared since. A change that needs a reboot is staged, so that nothing of it is in force
// before the machine is drained; see package reboot. A staged config that no reboot follows is taken back.
package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	configplan "ichor.maesh.dev/hub/controllers/operation/kind/config/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// callTimeout bounds the calls: a machine answers at once. It is longer than a trial of a config, which is waited for.
const callTimeout = 2 * time.Minute

// Executor rolls machine configs out.
type Executor struct {
	configplan.Planner
	reboot.Sequence

	clusters client.Reader
	configs  *bases.Comparer
}

// New returns the executor. clusters reads TalosClusters.
func New(t talos.Provider, k kube.Provider, clusters client.Reader, configs *bases.Comparer) *Executor {
	return &Executor{Sequence: reboot.New(t, k), clusters: clusters, configs: configs}
}

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step {
	return append([]kind.Step{
		{Name: v1alpha1.CheckingStep, Repeat: kind.Safe, Blind: true, Cancel: true, Timeout: callTimeout},
		{Name: v1alpha1.StagingStep, Repeat: kind.Safe, Gated: true, Timeout: callTimeout},
		{Name: v1alpha1.ApplyingStep, Repeat: kind.Safe, Gated: true, Timeout: callTimeout},
	}, reboot.Steps()...)
}

// Look is what the executor itself looks at: how the config of a machine stands to the one that is asked for.
type Look struct {
	// Unread says why nothing is known.
	Unread string

	// Superseded says that the spec of the cluster asks for something else than the operation brings.
	Superseded bool

	// Compared is the comparison.
	Compared machineconfig.Comparison
}

// Observe implements kind.Executor.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	seen := e.Sequence.Observe(ctx, scope, unit)
	if seen.TalosTrouble == "" && unit.Status.Step != v1alpha1.RebootingStep {
		seen.Own = e.look(ctx, scope, unit, seen.Talos)
	}
	return seen
}

func (e *Executor) look(ctx context.Context, scope kind.Scope, unit kind.Unit, running talos.Machine) Look {
	reader, err := e.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return Look{Unread: talos.Trouble(err)}
	}
	own, err := reader.Config(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return Look{Unread: "its machine config cannot be read: " + talos.Trouble(err)}
	}
	cluster, err := e.cluster(ctx, scope)
	if err != nil {
		return Look{Unread: err.Error()}
	}
	seen := Look{Superseded: cluster.MachineConfigHash() != scope.Target.MachineConfigHash}
	if seen.Compared, err = e.configs.Compare(ctx, cluster, unit.Machine, own, running.Version); err != nil {
		seen.Compared = machineconfig.Comparison{
			ActiveHash: machineconfig.Hash(own.Active), PersistentHash: machineconfig.Hash(own.Persistent), Trouble: err.Error(),
		}
	}
	seen.Compared.Diff = "" // It is in the status of the machine.
	return seen
}

func (e *Executor) cluster(ctx context.Context, scope kind.Scope) (*v1alpha1.TalosCluster, error) {
	cluster := &v1alpha1.TalosCluster{}
	if err := e.clusters.Get(ctx, scope.Cluster.NamespacedName, cluster); err != nil {
		return nil, fmt.Errorf("reading TalosCluster %s: %w", scope.Cluster.Name, err)
	}
	return cluster, nil
}

// lookOf is what was looked at.
func lookOf(seen kind.Observation) Look {
	look, ok := seen.Own.(Look)
	if !ok {
		return Look{Unread: "nobody has looked at its machine config yet"}
	}
	return look
}

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch step := unit.Status.Step; {
	case step == "":
		return e.begin(scope, unit, seen)
	case unit.Failed() && beforeReboot(step):
		return kind.FailStep(unit, v1alpha1.StagingStep) // What was staged is taken back; see Undo.
	case step == v1alpha1.CheckingStep && unit.Failed(), step == v1alpha1.ApplyingStep && unit.Failed():
		return kind.FailStep(unit, "")
	case step == v1alpha1.CheckingStep:
		return kind.Action{Verdict: kind.Done}
	case step == v1alpha1.ApplyingStep:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until the machine is well with its new config"}
	case step == v1alpha1.StagingStep:
		return e.staged(scope, unit, seen)
	case step == v1alpha1.DrainingStep && seen.TalosTrouble == "" && lookOf(seen).Unread == "":
		if gone := stagedNoMore(unit, lookOf(seen)); gone != nil {
			return *gone
		}
	}
	return recoverable(unit, reboot.Next(scope, unit, seen, way))
}

// beforeReboot says whether a step is one after which the staged config can still be taken back.
func beforeReboot(step v1alpha1.OperationStep) bool {
	switch step { //nolint:exhaustive // The others have staged nothing, or have asked for the reboot.
	case v1alpha1.StagingStep, v1alpha1.ForfeitingStep, v1alpha1.EvacuatingStep, v1alpha1.DrainingStep:
		return true
	}
	return false
}

func (e *Executor) begin(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if seen.TalosTrouble != "" {
		return kind.Unreachable(unit, seen.TalosTrouble)
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	look, name := lookOf(seen), unit.Status.Name
	compared := look.Compared
	switch {
	case look.Unread != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigKnownGate, Message: fmt.Sprintf("%s: %s", name, look.Unread)}
	case look.Superseded:
		return kind.Action{Verdict: kind.Fail, Message: fmt.Sprintf(
			"TalosCluster %s asks for another machine config by now, which no machine has tried: delete this operation and start another", scope.Cluster.Name)}
	case compared.Trouble != "":
		return kind.Action{Verdict: kind.Fail, Message: compared.Trouble}
	case compared.Pending != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigPendingGate, Message: fmt.Sprintf("%s: %s", name, compared.Pending)}
	case compared.Effect == v1alpha1.ConfigEffectNone && unit.Status.Stage == configplan.CheckStage:
		return kind.Action{Verdict: kind.Done}
	case compared.Effect == v1alpha1.ConfigEffectNone:
		return reboot.TakeBack(scope, seen)
	case unit.Status.Stage == configplan.CheckStage && e.AtTarget(unit.Machine, scope.Target):
		return notNoted(name, "has another machine config than before") // No stage that would change it is planned for it.
	case unit.Status.Stage == configplan.CheckStage:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.CheckingStep, ConfigHash: compared.DesiredHash}
	case compared.Effect != v1alpha1.ConfigEffectReboot:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.ApplyingStep, ConfigHash: compared.DesiredHash, NodeName: unit.Machine.Status.NodeName}
	case !configplan.Reboots(unit.Machine, scope.Target):
		return notNoted(name, "needs a reboot for its machine config") // No gate that guards reboots would be asked.
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.StagingStep, ConfigHash: compared.DesiredHash}
}

// notNoted waits until the status of the machine, and so the plan, says what a look at the machine says already.
func notNoted(name, what string) kind.Action {
	return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigKnownGate, Message: fmt.Sprintf(
		"%s %s by now, which the hub has yet to take note of", name, what)}
}

// staged goes on to the reboot once the machine has proved that it keeps the config for its next boot.
func (e *Executor) staged(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	look, claimed := lookOf(seen), unit.Status.ConfigHash
	switch {
	case seen.TalosTrouble != "":
		return kind.Unreachable(unit, seen.TalosTrouble)
	case look.Unread != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigKnownGate, Message: fmt.Sprintf("%s: %s", unit.Status.Name, look.Unread)}
	case look.Compared.ActiveHash == claimed: // Something has rebooted it.
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until the machine is ready"}
	case look.Compared.PersistentHash != claimed:
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.StagingStep, Message: errOther.Error()}
	}
	return reboot.Begin(scope, unit, seen, way)
}

// stagedNoMore goes back for a machine that keeps nothing for its next boot: it was taken back with a drain that was told to end, and the
// drain was begun again since. What somebody else has staged is not overwritten.
func stagedNoMore(unit kind.Unit, look Look) *kind.Action {
	switch claimed := unit.Status.ConfigHash; {
	case look.Compared.PersistentHash == claimed || look.Compared.ActiveHash == claimed:
		return nil
	case look.Compared.PersistentHash == look.Compared.ActiveHash:
		return &kind.Action{Verdict: kind.Call, Step: v1alpha1.StagingStep, ConfigHash: claimed}
	}
	return &kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.StagingStep, Message: errOther.Error()}
}

// way asks of a machine that is back that the config which was claimed is in force there.
var way = reboot.Way{Proof: func(unit kind.Unit, seen kind.Observation) *kind.Action {
	look := lookOf(seen)
	switch {
	case seen.Talos.Stage != talos.StageRunning:
		return nil // What it has is final once it has booted.
	case look.Unread != "":
		return &kind.Action{Verdict: kind.Wait, Message: "waiting for its machine config: " + look.Unread}
	case look.Compared.ActiveHash == unit.Status.ConfigHash:
		return nil
	}
	return &kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.StagingStep, Message: "another machine config is in force than the one that was applied: somebody else has changed it"}
}}

// recoverable adds, to what is said of a machine that does not come back, what a person can do: a config has no second slot to fall back to.
func recoverable(unit kind.Unit, action kind.Action) kind.Action {
	step := unit.Status.Step
	switch {
	case action.Verdict == kind.Fail && step == v1alpha1.RebootingStep && unit.FailedForGood():
		action.RetryStep = v1alpha1.StagingStep // What was staged is taken back; see Undo.
	case action.Verdict == kind.Wait && (action.Step == "" || action.Step == step) && (step == v1alpha1.VerifyingStep || step == v1alpha1.RebootingStep):
		action.Message += fmt.Sprintf("; if it stays away, its new config may be why: apply another one with talosctl apply-config -n %s, or at its console", unit.Machine.Spec.Address)
	}
	return action
}

// Settle implements kind.Executor: what is staged is taken back before the reboot was asked for, and seen through after it. What was applied
// without a reboot is in force, and is seen through as well.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch step := unit.Status.Step; {
	case !unit.Status.FailureTime.IsZero():
		return giveUp(scope, unit, seen)
	case step == v1alpha1.CheckingStep:
		return kind.Action{Verdict: kind.Park}
	case step == "", beforeReboot(step), step == v1alpha1.ApplyingStep && unit.Failed():
		return giveUp(scope, unit, seen)
	}
	return e.Next(scope, unit, seen)
}

// giveUp takes the staged config back, and the operation's marks off the Node.
func giveUp(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	look := lookOf(seen)
	mayBeStaged := unit.Status.ConfigHash != "" && beforeReboot(unit.Status.Step)
	switch {
	case unit.Status.Step == v1alpha1.UncordoningStep && !unit.Failed():
		return kind.Action{Verdict: kind.Park}
	case mayBeStaged && seen.TalosTrouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API, to take the staged machine config back: " + seen.TalosTrouble}
	case mayBeStaged && look.Unread != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for its machine config, to take the staged one back: " + look.Unread}
	case mayBeStaged && isStaged(unit, look.Compared.ActiveHash, look.Compared.PersistentHash):
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.UncordoningStep}
	}
	return reboot.GiveUp(scope, unit, seen)
}

// isStaged says whether the config that a unit has claimed waits for the next boot.
func isStaged(unit kind.Unit, active, persistent string) bool {
	return unit.Status.ConfigHash != "" && persistent == unit.Status.ConfigHash && active != persistent
}

// Unsafe implements kind.Executor: from the moment that a config is staged, any reboot brings it in force, until it is taken back, which is
// what becomes of a step that failed.
func (e *Executor) Unsafe(unit kind.Unit) string {
	switch step := unit.Status.Step; {
	case beforeReboot(step) && !unit.Failed():
		return "has a machine config staged, which its next reboot brings in force"
	case step == v1alpha1.VerifyingStep && unit.Status.PreRebootBootID == "":
		return "" // It did not reboot.
	}
	return reboot.Unsafe(unit)
}

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step { //nolint:exhaustive // The rest is the way through the reboot.
	case v1alpha1.CheckingStep:
		return kind.Outcome{}, e.bring(ctx, scope, unit, talos.Writer.CheckConfig)
	case v1alpha1.StagingStep:
		return kind.Outcome{}, e.bring(ctx, scope, unit, talos.Writer.ApplyConfig)
	case v1alpha1.ApplyingStep:
		return kind.Outcome{}, e.bring(ctx, scope, unit, talos.Writer.ApplyConfig)
	case v1alpha1.RebootingStep:
		if err := e.stillStaged(ctx, scope, unit); err != nil {
			return kind.Outcome{}, err
		}
	case v1alpha1.UncordoningStep:
		if unit.Status.PreRebootBootID == "" {
			if err := e.unstage(ctx, scope, unit); err != nil {
				return kind.Outcome{}, err
			}
		}
	}
	return e.Sequence.Do(ctx, scope, unit, step)
}

// errPending means that somebody else has a config staged or tried on the machine.
var errPending = errors.New(machineconfig.PendingWords)

// errOther means that the next boot would bring another config in force than the one that was staged.
var errOther = errors.New("the machine keeps another config for its next boot than the one that was staged: somebody else has applied one")

// errAnother means that another config is asked for than was claimed.
var errAnother = errors.New("another machine config is asked for by now: its base or the patches have changed")

// renderError means that what is asked for cannot be rendered.
type renderError struct{ error }

// bring hands the machine its config, unless it has it. A config that somebody tries is waited for: no call of ours ends a trial.
func (e *Executor) bring(
	ctx context.Context, scope kind.Scope, unit kind.Unit, call func(talos.Writer, context.Context, string, []byte, talos.ApplyMode) error,
) error {
	writer, facts, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	address := unit.Machine.Spec.Address
	own, err := writer.Config(ctx, address)
	if err != nil {
		return err
	}
	cluster, err := e.cluster(ctx, scope)
	if err != nil {
		return err
	}
	active, persistent, claimed := machineconfig.Hash(own.Active), machineconfig.Hash(own.Persistent), unit.Status.ConfigHash
	if mode := modeOf(unit); (mode == talos.ApplyStaged || active == claimed) && persistent == claimed {
		return nil
	}
	desired, err := e.configs.Render(ctx, cluster, unit.Machine, own, facts.Version)
	switch {
	case err != nil:
		return &renderError{err}
	case machineconfig.Hash(desired) != claimed || cluster.MachineConfigHash() != scope.Target.MachineConfigHash:
		return errAnother
	case active != persistent && persistent != claimed:
		return errPending
	}
	return kind.Told(call(writer, ctx, address, desired, modeOf(unit)), desired, own.Active)
}

// modeOf is how a machine takes the config: for the step that is claimed or, when it is only checked, as it would be.
func modeOf(unit kind.Unit) talos.ApplyMode {
	if unit.Status.Step == v1alpha1.StagingStep {
		return talos.ApplyStaged
	}
	if config := unit.Machine.Status.Config; unit.Status.Step == v1alpha1.CheckingStep && (config == nil || config.Effect == v1alpha1.ConfigEffectReboot) {
		return talos.ApplyStaged
	}
	return talos.ApplyLive
}

// stillStaged makes sure, right before the reboot, that it brings in force what was claimed.
func (e *Executor) stillStaged(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, facts, err := e.Writer(ctx, scope, unit)
	if err != nil || facts.BootID != unit.Status.PreRebootBootID {
		return err // It has rebooted since the claim: what it brought in force is for the proof.
	}
	own, err := writer.Config(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return err
	}
	if machineconfig.Hash(own.Persistent) != unit.Status.ConfigHash {
		return errOther
	}
	return nil
}

// unstage has the machine keep for its next boot what is in force, if it keeps what was staged.
func (e *Executor) unstage(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, _, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	address := unit.Machine.Spec.Address
	own, err := writer.Config(ctx, address)
	if err != nil || !isStaged(unit, machineconfig.Hash(own.Active), machineconfig.Hash(own.Persistent)) {
		return err
	}
	return kind.Told(writer.ApplyConfig(ctx, address, own.Active, talos.ApplyStaged), own.Active)
}

// Undo implements kind.Executor: what was staged is taken back with the rest.
func (e *Executor) Undo(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep, cause error) error {
	var identity *reboot.IdentityError
	if step == v1alpha1.RebootingStep && (errors.Is(cause, errOther) || talos.Refused(cause) || errors.As(cause, &identity)) {
		step = v1alpha1.DrainingStep // Nothing reboots: what is left is what came before.
	}
	err := e.Sequence.Undo(ctx, scope, unit, step, cause)
	if !beforeReboot(step) || errors.As(cause, &identity) {
		return err
	}
	return errors.Join(err, e.unstage(ctx, scope, unit))
}

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	var rendering *renderError
	switch {
	case errors.Is(err, errPending):
		return v1alpha1.ErrorInProgress
	case errors.Is(err, errOther), errors.Is(err, errAnother), errors.As(err, &rendering):
		return v1alpha1.ErrorPermanent
	}
	return reboot.Classify(err)
}
