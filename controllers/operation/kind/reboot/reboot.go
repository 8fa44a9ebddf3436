// SPDX-License-Identifier: Apache-2.0

// Package reboot is the one way of a machine through a reboot: etcd's leadership moves away, storage moves its replicas off, the Node is
// drained, the machine reboots, proves that it is back, and is uncordoned. Every kind that reboots machines goes through here.
package reboot

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/storage"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

// Storage moves the replicas of volumes off a Node that is about to go away.
type Storage interface {
	// Look says what is on a Node that was just read. It reads only.
	Look(ctx context.Context, t target.Target, node kube.Node) (storage.State, error)

	// Evacuate has the replicas moved off a Node, marks it as owner's, and fails as long as some are left. Repeating it is harmless.
	Evacuate(ctx context.Context, t target.Target, g guard.Func, node, owner string) error

	// Restore lets the storage use a Node again if owner evacuated it, and leaves it as it is otherwise.
	Restore(ctx context.Context, t target.Target, g guard.Func, node, owner string) error
}

// Sequence takes machines through a reboot.
type Sequence struct {
	Talos   talos.Provider
	Kube    kube.Provider
	Storage Storage
}

// New returns the sequence for targets that the providers reach, whose storage says on their Nodes what it has there.
func New(t talos.Provider, k kube.Provider) Sequence {
	return Sequence{Talos: t, Kube: k, Storage: storage.New(k)}
}

// Steps declares the steps of the sequence.
func Steps() []kind.Step {
	return []kind.Step{
		{Name: v1alpha1.ForfeitingStep, Repeat: kind.Safe, Timeout: 2 * time.Minute},
		{Name: v1alpha1.EvacuatingStep, Repeat: kind.Safe, Cancel: true, Timeout: 30 * time.Minute},
		{Name: v1alpha1.DrainingStep, Repeat: kind.Safe, Cancel: true, Timeout: 10 * time.Minute},
		{Name: v1alpha1.RebootingStep, Repeat: kind.BootIDGuarded, Gated: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.VerifyingStep, Waits: true, Timeout: 15 * time.Minute},
		{Name: v1alpha1.UncordoningStep, Repeat: kind.Safe, Blind: true, Harmless: true, Timeout: 2 * time.Minute},
	}
}

// Way is what is a kind's own on the way through a reboot.
type Way struct {
	// Proof says what a machine that is back must show beyond being well.
	Proof Proof

	// Step is the step whose call ends in a reboot, where that is not Rebooting.
	Step v1alpha1.OperationStep

	// Image is what that call installs, to be persisted with its claim.
	Image string

	// After decides what comes after that call, where it does not end in a reboot; nil where it does.
	After func(kind.Scope, kind.Unit, kind.Observation) kind.Action

	// Ask makes another action of the one that makes that call, where something comes between; nil leaves it as it is.
	Ask func(kind.Unit, kind.Observation, kind.Action) kind.Action
}

// Proof says what a machine that is back must show beyond being well: nil if it does, else what to do.
type Proof func(kind.Unit, kind.Observation) *kind.Action

// step is the step whose call ends in a reboot.
func (w Way) step() v1alpha1.OperationStep { return cmp.Or(w.Step, v1alpha1.RebootingStep) }

// Begin is the first action of the sequence for a machine that answers.
func Begin(scope kind.Scope, unit kind.Unit, seen kind.Observation, way Way) kind.Action {
	if bad := CheckNode(unit, seen); bad != nil {
		return *bad
	}
	if leads(seen) {
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.ForfeitingStep}
	}
	return leave(scope, unit, seen, way)
}

// leads says whether the machine's etcd member leads others.
func leads(seen kind.Observation) bool {
	return seen.Etcd != nil && len(seen.Etcd.Members) > 1 && seen.Etcd.Leader == seen.Etcd.MemberID
}

// full says whether a machine goes with its pods and replicas: in a cluster of one machine they have nowhere to go, and who forces a reboot
// or a reset cannot wait for them.
func full(scope kind.Scope) bool {
	node := scope.Spec.Node
	return scope.Machines == 1 || node != nil && (node.RebootMode == v1alpha1.RebootModeForce || node.Forced())
}

// leave empties a machine, and asks for its reboot.
func leave(scope kind.Scope, unit kind.Unit, seen kind.Observation, way Way) kind.Action {
	if full(scope) || goesBlind(scope, seen) {
		return askForReboot(scope, unit, seen, way)
	}
	return Empty(scope, seen, kind.Action{})
}

// Empty is the first action of who empties a machine, and then does what needs it empty. In a cluster of one machine neither pods nor replicas
// have anywhere to go.
func Empty(scope kind.Scope, seen kind.Observation, then kind.Action) kind.Action {
	if full(scope) {
		return then
	}
	if wait := sightless(scope, seen); wait != nil {
		return *wait
	}
	if seen.Storage.Replicas > 0 {
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.EvacuatingStep}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.DrainingStep}
}

// Emptied does then on a machine that is cordoned and holds no replicas, and sees to that where somebody has changed it meanwhile.
func Emptied(scope kind.Scope, seen kind.Observation, then kind.Action) kind.Action {
	if full(scope) {
		return then
	}
	wait := sightless(scope, seen)
	switch {
	case wait != nil:
		return *wait
	case seen.Storage.Replicas > 0:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.EvacuatingStep}
	case seen.Node != nil && !seen.Node.Unschedulable:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.DrainingStep}
	}
	return then
}

// goesBlind says whether a machine may go although the Kubernetes API does not tell of its Node.
func goesBlind(scope kind.Scope, seen kind.Observation) bool {
	return scope.Blind && seen.NodeTrouble != ""
}

// sightless waits where the Kubernetes API does not tell what is on the machine's Node.
func sightless(scope kind.Scope, seen kind.Observation) *kind.Action {
	switch {
	case goesBlind(scope, seen):
		return nil
	case seen.NodeTrouble != "":
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: "the Kubernetes API of the cluster cannot be read: " + seen.NodeTrouble}
	case seen.StorageTrouble != "":
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: "the storage of the cluster cannot be read: " + seen.StorageTrouble}
	}
	return nil
}

// Ask is askForReboot for who decides by itself what comes after the call of a way.
func Ask(scope kind.Scope, unit kind.Unit, seen kind.Observation, way Way) kind.Action {
	return askForReboot(scope, unit, seen, way)
}

// askForReboot asks only for a machine that is cordoned and holds no replicas, whoever changed that meanwhile.
func askForReboot(scope kind.Scope, unit kind.Unit, seen kind.Observation, way Way) kind.Action {
	if seen.TalosTrouble != "" {
		return kind.Unreachable(unit, seen.TalosTrouble)
	}
	ask := kind.Action{
		Verdict: kind.Call, Step: way.step(), PreRebootBootID: seen.Talos.BootID, NodeName: unit.Machine.Status.NodeName, Image: way.Image,
	}
	if way.Ask != nil {
		ask = way.Ask(unit, seen, ask)
	}
	return Emptied(scope, seen, ask)
}

// Next decides what comes after a step of the sequence.
func Next(scope kind.Scope, unit kind.Unit, seen kind.Observation, way Way) kind.Action {
	switch step := unit.Status.Step; {
	case step == way.step() && way.After != nil:
		return way.After(scope, unit, seen)
	case step == v1alpha1.RebootingStep || step == way.step():
		return rebooting(scope, unit, seen, way)
	case step == v1alpha1.VerifyingStep:
		return verifying(scope, unit, seen, way.Proof)
	case unit.Failed():
		return kind.FailStep(unit, "")
	case step == v1alpha1.ForfeitingStep:
		return leave(scope, unit, seen, way)
	case step == v1alpha1.EvacuatingStep:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.DrainingStep}
	case step == v1alpha1.DrainingStep:
		return askForReboot(scope, unit, seen, way)
	}
	return uncordoned(unit)
}

// uncordoned ends the sequence, unless settling took the cordon off before the reboot: then the machine is where it began.
func uncordoned(unit kind.Unit) kind.Action {
	if unit.Status.PreRebootBootID == "" {
		return kind.Action{Verdict: kind.Park}
	}
	return kind.Action{Verdict: kind.Done}
}

// rebooting goes by the boot ID alone. A request that was refused, or whose fate is not known, is told apart by looking.
func rebooting(scope kind.Scope, unit kind.Unit, seen kind.Observation, way Way) kind.Action {
	visible := seen.TalosTrouble == ""
	switch {
	case visible && seen.Talos.BootID != unit.Status.PreRebootBootID:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until the machine is ready"}
	case unit.FailedForGood():
		return kind.FailStep(unit, RetryStep(scope)) // The cordon is off; see Undo.
	case unit.Failed() && visible && !GoingDown(seen.Talos.Stage):
		return askForReboot(scope, unit, seen, way)
	case !visible:
		return kind.Action{Verdict: kind.Wait, Message: strings.TrimSuffix("waiting for another boot ID: "+seen.TalosTrouble, ": ")}
	}
	return kind.Action{Verdict: kind.Wait, Message: stillUp(scope, unit, seen.Talos.Stage)}
}

// GoingDown says whether a machine in a stage is on its way down already. It must not be asked again.
func GoingDown(stage string) bool {
	switch stage {
	case talos.StageRebooting, talos.StageUpgrading, talos.StageShuttingDown, talos.StageResetting:
		return true
	}
	return false
}

// stillUp says what a machine that answers with the boot ID of before is doing, and what helps if it never ends: Talos lets a second
// reboot take over from one that hangs, but from no upgrade. That is for a person to ask for.
func stillUp(scope kind.Scope, unit kind.Unit, stage string) string {
	help := fmt.Sprintf("if it hangs: talosctl -n %s reboot --mode force, or cycle its power", unit.Machine.Spec.Address)
	switch node := scope.Spec.Node; {
	case node != nil && node.RebootMode == v1alpha1.RebootModeForce:
		help = "it was forced already: if it hangs, cycle its power"
	case unit.Status.Step == v1alpha1.UpgradingStep:
		help = fmt.Sprintf("why an installation failed is in: talosctl -n %s dmesg", unit.Machine.Spec.Address)
	}
	return fmt.Sprintf("still up in stage %q, boot ID unchanged; %s", stage, help)
}

// RetryStep is where a retry begins after a machine refused to go: drained once more, where machines are drained.
func RetryStep(scope kind.Scope) v1alpha1.OperationStep {
	if full(scope) {
		return ""
	}
	return v1alpha1.DrainingStep
}
