// SPDX-License-Identifier: Apache-2.0

// Package talos is the executor of kind talos: it upgrades Talos.
//
// Talos 1.13 and later have an API that runs the installer and nothing else. The order, etcd's health, the drain, the reboot and the proof
// that the machine came back as what it should be are the hub's; see package reboot. Older ones have one call that pulls, installs and
// reboots; it takes the place of the reboot in that sequence. What a machine runs decides, so a cluster may have both.
package talos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/controllers/operation/kind/talos/installer"
	talosplan "ichor.maesh.dev/hub/controllers/operation/kind/talos/plan"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

const (
	// callTimeout bounds the long calls: they pull or write a system image.
	callTimeout = 10 * time.Minute

	// snapshotTimeout bounds a snapshot of etcd, with all attempts to take it.
	snapshotTimeout = 30 * time.Minute

	// upgradeTimeout bounds the call that pulls, writes a system image and reboots.
	upgradeTimeout = 35 * time.Minute
)

// Executor upgrades Talos.
type Executor struct {
	talosplan.Planner
	reboot.Sequence

	factory   string
	snapshots kind.Snapshots
}

// New returns the executor. factory is the host, and path if any, of the Image Factory whose installers machines pull; snapshots stores what
// is taken of etcd before the first control plane.
func New(t talos.Provider, k kube.Provider, factory string, snapshots kind.Snapshots) *Executor {
	return &Executor{Sequence: reboot.New(t, k), factory: factory, snapshots: snapshots}
}

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step {
	return append([]kind.Step{
		{Name: v1alpha1.PullingStep, Repeat: kind.Safe, Blind: true, Cancel: true, Timeout: callTimeout},
		{Name: v1alpha1.SnapshottingStep, Repeat: kind.Safe, Blind: true, Cancel: true, Timeout: snapshotTimeout},
		{Name: v1alpha1.InstallingStep, Repeat: kind.Safe, Gated: true, Timeout: callTimeout},
		{Name: v1alpha1.UpgradingStep, Repeat: kind.BootIDGuarded, Gated: true, Timeout: upgradeTimeout},
	}, installed(reboot.Steps())...)
}

// installed marks the steps before the reboot as not to be turned back from: the new system is the one that the next boot takes,
// whatever causes it.
func installed(steps []kind.Step) []kind.Step {
	for i := range steps {
		if leaving(steps[i].Name) {
			steps[i].Cancel = false
		}
	}
	return steps
}

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if ofSnapshot(unit) {
		return kind.NextSnapshot(unit)
	}
	switch step := unit.Status.Step; {
	case step == "":
		return e.begin(scope, unit, seen)
	case step == v1alpha1.PullingStep && !unit.Failed() && unit.Status.Stage == talosplan.UpgradeStage:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.InstallingStep}
	case step == v1alpha1.PullingStep && !unit.Failed():
		return kind.Action{Verdict: kind.Done}
	case step == v1alpha1.InstallingStep && !unit.Failed():
		return e.afterInstall(scope, unit, seen)
	case step == v1alpha1.InstallingStep && unit.Status.ResolvedImage == "":
		return kind.FailStep(unit, v1alpha1.PullingStep)
	case step == v1alpha1.PullingStep, step == v1alpha1.InstallingStep:
		return kind.FailStep(unit, "")
	}
	return reboot.Next(scope, unit, seen, e.way(scope, unit, seen))
}

// way is how a machine reboots into the new system: it boots what is installed, or is told to upgrade, if it is too old to be told less.
func (e *Executor) way(scope kind.Scope, unit kind.Unit, seen kind.Observation) reboot.Way {
	way := reboot.Way{Proof: proof(scope)}
	switch {
	case unit.Status.Step == v1alpha1.UpgradingStep:
		way.Step, way.Image = v1alpha1.UpgradingStep, unit.Status.ResolvedImage
	case old(seen.Talos.Version):
		way.Step, way.Image = v1alpha1.UpgradingStep, Image(e.factory, seen.Talos, scope.Target)
	}
	return way
}

// old says whether a machine that runs a version is upgraded by one call.
func old(version string) bool {
	running, err := versions.Parse(version)
	return err == nil && !versions.HasLifecycleAPI(running)
}

func (e *Executor) begin(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if seen.TalosTrouble != "" {
		return kind.Unreachable(unit, seen.TalosTrouble)
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	running, name := seen.Talos, unit.Status.Name
	if talosplan.AtTarget(running.Version, running.SchematicID, scope.Target) {
		if running.UpgradePending { // Installing now would overwrite the system to fall back to.
			return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineSettledGate, Message: name + " has not found its new system good yet"}
		}
		return reboot.TakeBack(scope, seen)
	}
	if r := talosplan.HostObjection(name, running.Version); r != nil {
		return kind.Action{Verdict: kind.Fail, Message: r.Message}
	}
	if r := talosplan.PathObjection(name, running.Version, scope.Target); r != nil && !(r.Overridable && overridden(scope, r.Gate)) {
		return kind.Action{Verdict: kind.Fail, Message: r.Message}
	}
	if scope.Target.SchematicID == "" && running.SchematicID == "" {
		return kind.Action{Verdict: kind.Fail, Message: name + " does not tell its schematic: set spec.schematicID of the TalosCluster"}
	}
	if running.Platform == "" {
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineSettledGate, Message: name + " does not tell its platform yet"}
	}
	if old(running.Version) {
		return e.beginOld(scope, unit, seen)
	}
	if unit.Status.Stage == talosplan.PullStage || unit.Status.ResolvedImage == "" { // It may have come too late for the first stage.
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.PullingStep}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.InstallingStep}
}

// beginOld leaves the first stage out: there is no call that only pulls.
func (e *Executor) beginOld(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Status.Stage == talosplan.PullStage {
		return kind.Action{Verdict: kind.Done}
	}
	return reboot.Begin(scope, unit, seen, e.way(scope, unit, seen))
}

func overridden(scope kind.Scope, gate string) bool {
	return slices.ContainsFunc(scope.Spec.Overrides, func(o v1alpha1.GateOverride) bool { return o.Gate == gate })
}

func (e *Executor) afterInstall(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case seen.TalosTrouble != "":
		return kind.Unreachable(unit, seen.TalosTrouble)
	case talosplan.AtTarget(seen.Talos.Version, seen.Talos.SchematicID, scope.Target): // Something has rebooted it into the new system.
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until the machine is ready"}
	}
	return reboot.Begin(scope, unit, seen, e.way(scope, unit, seen))
}

// proof holds a machine that is back against the target. Talos boots the old system again if the new one fails; that is a
// failure, and only a person may decide to try once more.
func proof(scope kind.Scope) reboot.Proof {
	return func(unit kind.Unit, seen kind.Observation) *kind.Action {
		running, wanted := seen.Talos, scope.Target
		if wanted.SchematicID == "" {
			wanted.SchematicID = installer.Schematic(unit.Status.ResolvedImage)
		}
		switch {
		case running.Version != wanted.TalosVersion:
			return &kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.InstallingStep, Message: fmt.Sprintf(
				"rebooted and runs %s instead of %s: it did not reach the new system, or fell back to the old one", running.Version, wanted.TalosVersion)}
		case running.Stage == talos.StageRunning && wanted.SchematicID != "" && running.SchematicID != wanted.SchematicID:
			return &kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.InstallingStep, Message: fmt.Sprintf(
				"runs %s with schematic %s instead of %s: it did not reach the new system, or fell back to the old one", running.Version, running.SchematicID, wanted.SchematicID)}
		case running.Stage == talos.StageRunning && running.Ready && running.UpgradePending:
			return &kind.Action{Verdict: kind.Wait, Message: "waiting until Talos has found the new system good"}
		}
		return nil
	}
}

// Settle implements kind.Executor: an installed system is on the way to the next boot, so only completion is safe. A machine that is upgraded
// by one call has nothing installed before that call.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if ofSnapshot(unit) {
		return kind.SettleSnapshot(unit)
	}
	switch step := unit.Status.Step; {
	case !unit.Status.FailureTime.IsZero():
		return reboot.GiveUp(scope, unit, seen)
	case step == "", step == v1alpha1.PullingStep && unit.Status.Stage == talosplan.UpgradeStage:
		return reboot.GiveUp(scope, unit, seen) // Before a retry, the machine may have been further.
	case step == v1alpha1.PullingStep:
		return kind.Action{Verdict: kind.Park}
	case step == v1alpha1.InstallingStep && unit.Failed() && !unit.FailedForGood():
		return kind.Action{Verdict: kind.Call, Step: step} // Nobody knows what it wrote: written once more, that is known.
	case nothingInstalled(unit):
		return reboot.Settle(scope, unit, seen, e.way(scope, unit, seen))
	case leaving(step) && unit.Failed() && unit.Status.Outcome.Class == v1alpha1.ErrorInterrupted:
		return kind.Action{Verdict: kind.Call, Step: step} // It was kept from being made, and is part of the only way.
	}
	return e.Next(scope, unit, seen)
}

// leaving says whether a step empties a machine: after an installation, or before the one call.
func leaving(step v1alpha1.OperationStep) bool {
	return step == v1alpha1.ForfeitingStep || step == v1alpha1.EvacuatingStep || step == v1alpha1.DrainingStep
}

// nothingInstalled says whether a machine on its way to the reboot has only been told to leave: it is upgraded by one call, which is still
// to come. Its steps so far tell; where the oldest are forgotten, it may have been one of those.
func nothingInstalled(unit kind.Unit) bool {
	if !leaving(unit.Status.Step) {
		return false
	}
	for _, record := range slices.Backward(unit.Status.Steps) {
		switch record.Step { //nolint:exhaustive // As above: the others are part of the same way.
		case v1alpha1.InstallingStep:
			return false
		case v1alpha1.UpgradingStep, v1alpha1.VerifyingStep:
			return true
		}
	}
	return len(unit.Status.Steps) < v1alpha1.MaxStepRecords
}

// Unsafe implements kind.Executor: from the installer's start until the machine has booted what it wrote, any reboot upgrades the
// machine. An installer that was refused, or that ended in failure, has left the next boot as it was.
func (e *Executor) Unsafe(unit kind.Unit) string {
	switch unit.Status.Step { //nolint:exhaustive // The rest is the way through the reboot.
	case v1alpha1.InstallingStep:
		if unit.FailedForGood() {
			return ""
		}
		return "may have a new system installed, which its next reboot starts"
	case v1alpha1.UpgradingStep:
		if unit.FailedForGood() {
			return ""
		}
		return "is told to upgrade, and installs and reboots when it is ready to"
	case v1alpha1.ForfeitingStep, v1alpha1.EvacuatingStep, v1alpha1.DrainingStep:
		if nothingInstalled(unit) {
			return ""
		}
		return installedUnsafe
	case v1alpha1.RebootingStep:
		return cmp.Or(reboot.Unsafe(unit), installedUnsafe)
	}
	return reboot.Unsafe(unit)
}

// installedUnsafe is why a machine that has not booted its new system is nobody else's.
const installedUnsafe = "has a new system installed, which its next reboot starts"

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	switch step { //nolint:exhaustive // The rest is the way through the reboot.
	case v1alpha1.PullingStep:
		return e.pull(ctx, scope, unit)
	case v1alpha1.SnapshottingStep:
		return kind.Outcome{}, e.snapshots.Take(ctx, scope.Cluster, scope.Guard, kind.SnapshotName(scope))
	case v1alpha1.InstallingStep:
		return e.install(ctx, scope, unit)
	case v1alpha1.UpgradingStep:
		return kind.Outcome{}, e.upgrade(ctx, scope, unit)
	}
	return e.Sequence.Do(ctx, scope, unit, step)
}

// Undo implements kind.Executor. An upgrade that was refused, whatever of, has not begun.
func (e *Executor) Undo(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep, cause error) error {
	if step == v1alpha1.SnapshottingStep {
		return nil // A snapshot that comes late does no harm.
	}
	if step == v1alpha1.UpgradingStep && e.Classify(cause) == v1alpha1.ErrorPermanent {
		step = v1alpha1.DrainingStep // What is left is what the drain left.
	}
	return e.Sequence.Undo(ctx, scope, unit, step, cause)
}

// Classify implements kind.Executor. An installer that ended has answered: whether it runs once more is for a person to say.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	var installer *InstallerError
	if errors.As(err, &installer) || errors.Is(err, errNoImage) || errors.Is(err, kind.ErrNotStored) {
		return v1alpha1.ErrorPermanent
	}
	return reboot.Classify(err)
}

func (e *Executor) pull(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	writer, facts, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	resolved, err := writer.PullImage(ctx, unit.Machine.Spec.Address, Image(e.factory, facts, scope.Target))
	return kind.Outcome{ResolvedImage: resolved}, err
}

// Image names the installer for a machine: its own platform, flavour and, unless the target says otherwise, schematic.
func Image(factory string, running talos.Machine, target v1alpha1.OperationTarget) string {
	return installer.Image(factory, running.Platform, running.SecureBoot, cmp.Or(target.SchematicID, running.SchematicID), target.TalosVersion)
}

// install runs the installer. Its exit code is the answer: the call itself succeeds whatever the installer did.
func (e *Executor) install(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	writer, facts, err := e.Writer(ctx, scope, unit)
	switch {
	case err != nil:
		return kind.Outcome{}, err
	case talosplan.AtTarget(facts.Version, facts.SchematicID, scope.Target): // Installing now would overwrite the system to fall back to.
		return kind.Outcome{Message: "the machine runs the new system already"}, nil
	case unit.Status.ResolvedImage == "":
		return kind.Outcome{}, errNoImage
	}
	code, err := writer.InstallImage(ctx, unit.Machine.Spec.Address, unit.Status.ResolvedImage)
	if err != nil {
		return kind.Outcome{}, err
	}
	if code != 0 {
		return kind.Outcome{ExitCode: &code}, &InstallerError{ExitCode: code}
	}
	return kind.Outcome{ExitCode: &code}, nil
}

// upgrade tells a machine to upgrade, unless it has heard that already. The machine pulls the image before it answers.
func (e *Executor) upgrade(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, facts, err := e.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	if facts.BootID != unit.Status.PreRebootBootID || reboot.GoingDown(facts.Stage) {
		return nil
	}
	return writer.Upgrade(ctx, unit.Machine.Spec.Address, unit.Status.ResolvedImage)
}

// errNoImage means that status lost the name of the image that the machine pulled.
var errNoImage = errors.New("it is not known which image the machine has pulled")

// InstallerError means that the installer ended with an exit code other than 0. The machine still boots what it booted before.
type InstallerError struct{ ExitCode int32 }

// installerExits says what the exit codes of installers from Talos 1.14 on mean; older ones say 1 for everything.
var installerExits = map[int32]string{
	2: "invalid input", 3: "not supported", 4: "the environment does not allow it", 5: "a dependency failed", 6: "input or output failed", 7: "the installation failed",
}

// Error says what the exit code means.
func (e *InstallerError) Error() string {
	if meaning := installerExits[e.ExitCode]; meaning != "" {
		return fmt.Sprintf("the installer ended with exit code %d: %s", e.ExitCode, meaning)
	}
	return fmt.Sprintf("the installer ended with exit code %d", e.ExitCode)
}
