// SPDX-License-Identifier: Apache-2.0

package etcdrestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	restoreplan "ichor.maesh.dev/hub/controllers/operation/kind/etcdrestore/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/talos"
)

// wiping takes a control plane from the request to wipe its etcd until it waits for another one. Nothing graceful is asked for: an etcd without
// quorum could not let a member go, and all of them go.
func wiping(scope kind.Scope, unit kind.Unit, seen kind.Observation, own View) kind.Action {
	switch unit.Status.Step {
	case v1alpha1.ResettingStep:
		return booting(unit, seen, v1alpha1.PreparingStep, askForReset)
	case v1alpha1.PreparingStep:
		return preparing(unit, seen, own)
	}
	if own.Trouble != "" {
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: fmt.Sprintf(
			"control plane %s does not answer: %s; %s", unit.Status.Name, own.Trouble, deleteHelp(unit))}
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	if !wipeBegun(scope) {
		if bad := unconfirmed(scope, own); bad != nil {
			return *bad
		}
	}
	if _, err := wipeList(own.Volumes); err != nil {
		return kind.Action{Verdict: kind.Fail, Message: err.Error()}
	}
	return askForReset(unit, seen)
}

// wipeBegun says whether any control plane was asked to wipe itself. From then on the way out is forward, whoever goes away.
func wipeBegun(scope kind.Scope) bool {
	return slices.ContainsFunc(scope.Units, func(u v1alpha1.UnitStatus) bool {
		return slices.ContainsFunc(u.Steps, func(s v1alpha1.StepRecord) bool {
			return s.Stage == restoreplan.WipeStage && s.Step == v1alpha1.ResettingStep
		})
	})
}

// unconfirmed says what speaks against the first wipe that did not in the check: a safety snapshot or a pause may have come in between.
func unconfirmed(scope kind.Scope, own View) *kind.Action {
	if own.WantedTrouble != "" {
		return &kind.Action{Verdict: kind.Wait, Message: "waiting for the facts of the snapshot: " + own.WantedTrouble}
	}
	if missing := unanswered(scope, own); missing != nil {
		return missing
	}
	var objections []string
	for _, name := range slices.Sorted(maps.Keys(own.Machines)) {
		objections = append(objections, own.Machines[name].Objections...)
	}
	if len(objections) > 0 {
		return &kind.Action{Verdict: kind.Fail, Message: "nothing was wiped, since things have changed since the check: " + strings.Join(objections, "; ")}
	}
	return nil
}

func askForReset(unit kind.Unit, seen kind.Observation) kind.Action {
	return kind.Action{
		Verdict: kind.Call, Step: v1alpha1.ResettingStep, PreRebootBootID: seen.Talos.BootID, NodeName: unit.Machine.Status.NodeName,
	}
}

// booting goes by the boot ID alone, as every reboot does: one that is not under way is asked for, and next is the step of a machine that has
// booted.
func booting(unit kind.Unit, seen kind.Observation, next v1alpha1.OperationStep, ask func(kind.Unit, kind.Observation) kind.Action) kind.Action {
	visible, before := seen.TalosTrouble == "", unit.Status.PreRebootBootID
	switch {
	case visible && before == "": // A retry: the boot that was asked is history.
		return ask(unit, seen)
	case visible && seen.Talos.BootID != before:
		return kind.Action{Verdict: kind.Wait, Step: next, Message: "waiting until it has come up as far as etcd"}
	case unit.FailedForGood():
		return kind.FailStep(unit, "")
	case unit.Failed() && visible && !reboot.GoingDown(seen.Talos.Stage):
		return ask(unit, seen)
	case visible:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("still up in stage %q; if it hangs, cycle its power", seen.Talos.Stage)}
	}
	return kind.Action{Verdict: kind.Wait, Message: strings.TrimSuffix("waiting for another boot ID: "+seen.TalosTrouble, ": ") + "; " + deleteHelp(unit)}
}

// wipes is how often a control plane is wiped that comes back with an etcd, before people are asked. A hub that dies meanwhile
// is the usual reason, and may die some times.
const wipes = 10

// preparing waits until the control plane proves that its etcd is gone, and with it that of every other one: as long as the others have a
// quorum, one that was wiped joins them again. So one that runs an etcd is wiped once more, and so is one whose etcd has given up: that it has
// no data, or why else it did, nobody can tell.
func preparing(unit kind.Unit, seen kind.Observation, own View) kind.Action {
	etcd := own.service(talos.EtcdService)
	switch asked := timesAsked(unit, v1alpha1.ResettingStep); {
	case own.Trouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API: " + own.Trouble + "; " + deleteHelp(unit)}
	case own.prepares() && len(own.Others) > 0:
		return kind.Action{Verdict: kind.Wait, Message: "waiting until no control plane has an etcd any more: " + own.others()}
	case own.prepares():
		return kind.Action{Verdict: kind.Done}
	case etcd.State == stateRunning && asked >= wipes:
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ResettingStep, Message: fmt.Sprintf(
			"it was wiped %d times, and runs an etcd each time: it was not wiped, or joins a control plane that the hub does not know", asked)}
	case own.gaveUp() && asked >= wipes:
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ResettingStep, Message: fmt.Sprintf(
			"it was wiped %d times, and service etcd is %s again; why: %s", asked, etcd.State, serviceHelp(unit))}
	case etcd.State == stateRunning, own.gaveUp():
		return askForReset(unit, seen)
	}
	return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("waiting until service etcd is %s, it is %q", talos.StatePreparing, etcd.State)}
}

// timesAsked is how often the machine has been in a step of its stage.
func timesAsked(unit kind.Unit, asked v1alpha1.OperationStep) int {
	times := 0
	for _, step := range unit.Status.Steps {
		if step.Stage == unit.Status.Stage && step.Step == asked {
			times++
		}
	}
	return times
}

// wipeList is what holds the data of etcd: the partition that the machine tells for it, or has it in.
func wipeList(volumes []talos.Volume) (talos.Reset, error) {
	var reset talos.Reset
	for _, volume := range volumes {
		if volume.Partition && (volume.ID == constants.EphemeralPartitionLabel || volume.ID == constants.EtcdDataVolumeID) {
			reset.Partitions = append(reset.Partitions, volume.ID)
		}
	}
	for _, label := range reset.Partitions {
		if label == constants.EphemeralPartitionLabel {
			return reset, nil
		}
	}
	return talos.Reset{}, errors.New("the machine does not tell where its volume " + constants.EphemeralPartitionLabel + " is: it would keep its etcd")
}

// wipe asks the machine to wipe its etcd, unless it is on its way already or has gone it.
func (e *Executor) wipe(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, facts, err := e.sequence.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	if facts.BootID != unit.Status.PreRebootBootID || reboot.GoingDown(facts.Stage) {
		return nil
	}
	volumes, err := writer.Volumes(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return err
	}
	reset, err := wipeList(volumes)
	if err != nil {
		return &FindingError{err.Error()}
	}
	return reboot.Unheard(writer.Reset(ctx, unit.Machine.Spec.Address, reset))
}
