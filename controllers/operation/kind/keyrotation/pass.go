// SPDX-License-Identifier: Apache-2.0

package keyrotation

import (
	"cmp"
	"context"
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	keyplan "ichor.maesh.dev/hub/controllers/operation/kind/keyrotation/plan"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/talos"
)

// blocked says what keeps a machine from being begun with, or from being gone on with; nil if nothing does.
func blocked(unit kind.Unit, seen kind.Observation) *kind.Action {
	if seen.TalosTrouble != "" {
		if unit.Status.Step != "" {
			return &kind.Action{Verdict: kind.Wait, Message: "waiting for the Talos API: " + seen.TalosTrouble}
		}
		wait := kind.Unreachable(unit, seen.TalosTrouble)
		return &wait
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return bad
	}
	found := lookOf(unit, seen)
	switch {
	case found.trouble != "" && unit.Status.Step != "":
		return &kind.Action{Verdict: kind.Wait, Message: found.trouble}
	case found.trouble != "":
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigKnownGate, Message: fmt.Sprintf("%s: %s", unit.Status.Name, found.trouble)}
	case found.refused != "":
		return &kind.Action{Verdict: kind.Fail, Message: found.refused}
	}
	return nil
}

// mayBegin says what keeps a machine that nothing blocks from being begun with; nil if nothing does.
func mayBegin(unit kind.Unit, found look) *kind.Action {
	switch {
	case found.pending:
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigPendingGate, Message: fmt.Sprintf("%s: %s", unit.Status.Name, machineconfig.PendingWords)}
	case found.others != "":
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.KeysInUseGate, Message: found.others}
	case unit.Machine.Held():
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.ControlPlaneHeldGate, Message: fmt.Sprintf(
			"control plane %s is held by now, and no key is rotated without it: ichor machine unhold %[1]s", unit.Status.Name)}
	}
	return nil
}

// checking has a machine tell, before anything is changed, whether its keys can be rotated.
func checking(unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case unit.Status.Step == v1alpha1.CheckingStep && unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step == v1alpha1.CheckingStep:
		return kind.Action{Verdict: kind.Done}
	}
	if bad := blocked(unit, seen); bad != nil {
		return *bad
	}
	if wait := mayBegin(unit, lookOf(unit, seen)); wait != nil {
		return *wait
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.CheckingStep}
}

// verifying waits until the API server has the keys of its config.
var verifying = kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until its API server has the keys of its machine config"}

// pass takes a control plane through a pass.
func pass(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch step := unit.Status.Step; {
	case step == v1alpha1.VerifyingStep:
		return verify(scope, unit, seen)
	case unit.Failed():
		return kind.FailStep(unit, "")
	case step == v1alpha1.ApplyingStep, step == v1alpha1.RestartingStep:
		return verifying
	case step == v1alpha1.ProvingStep:
		return kind.Action{Verdict: kind.Done, Message: unit.Status.Outcome.Message}
	}
	if bad := blocked(unit, seen); bad != nil {
		return *bad
	}
	found, writes := lookOf(unit, seen), unit.Status.Step == v1alpha1.RewritingStep
	wait := mayBegin(unit, found)
	switch {
	case writes && found.others != "":
		return kind.Action{Verdict: kind.Park} // What that one writes meanwhile has to be written again as well, from the beginning.
	case wait != nil:
		return *wait
	case found.active == found.desired:
		return verifying // Whoever has brought it there, it has to be proved.
	case writes && moreToWrite(unit):
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.RewritingStep, GoOn: true}
	case !writes && losesKey(unit.Status.Stage):
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.RewritingStep, Anew: true}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.ApplyingStep, ConfigHash: found.desired}
}

// losesKey says whether a stage is the pass after which nothing is read any more that one of the keys has encrypted. A control plane that was
// behind for a while may have written with that key, so its API server writes once more what it still can read.
func losesKey(stage string) bool { return keyplan.TakesAway(stage) && encryptionChanges[stage] != nil }

// verify goes on once a machine is well and its API server has the keys of its config, and sees to it that it gets them.
func verify(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if bad := blocked(unit, seen); bad != nil {
		return *bad
	}
	found := lookOf(unit, seen)
	if found.active != found.desired && !found.isMarked {
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ApplyingStep, Message: "another machine config is in force than the one that was applied: somebody else has changed it"}
	}
	if found.restart && !found.isMarked {
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.RestartingStep, ConfigHash: found.marked}
	}
	if found.missing != "" || !found.looked {
		return kind.Action{Verdict: kind.Wait, Message: cmp.Or(found.missing, verifying.Message)}
	}
	if missing := reboot.NotBack(scope, seen); missing != "" {
		return kind.Action{Verdict: kind.Wait, Message: missing}
	}
	switch {
	case found.isMarked: // The mark has done its work. Taking it off restarts the API server once more.
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.ApplyingStep, ConfigHash: found.desired}
	case proves(scope, unit.Status.Stage):
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.ProvingStep}
	}
	return kind.Action{Verdict: kind.Done, Message: found.proof}
}

// proves says whether a pass is proved by tokens, or by what is read.
func proves(scope kind.Scope, stage string) bool {
	if stage == keyplan.MigrateStage {
		return keyplan.Rotates(scope.Spec, v1alpha1.ServiceAccountKey)
	}
	return accountChanges[stage] != nil || losesKey(stage)
}

// check has a machine check the config of the first pass, which changes nothing there.
func (e *Executor) check(ctx context.Context, scope kind.Scope, unit kind.Unit) error {
	writer, _, err := e.sequence.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	own, err := writer.Config(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return err
	}
	config, err := wanted(scope.Spec, keyplan.MigrateStage, own.Active, keys{}, "")
	if err != nil {
		return finding("%s", err)
	}
	return kind.Told(writer.CheckConfig(ctx, unit.Machine.Spec.Address, config, talos.ApplyLive), config)
}

// apply brings the config of a pass in force, unless it is. What was claimed is what is applied.
func (e *Executor) apply(ctx context.Context, scope kind.Scope, unit kind.Unit, mark string) error {
	writer, _, err := e.sequence.Writer(ctx, scope, unit)
	if err != nil {
		return err
	}
	address := unit.Machine.Spec.Address
	own, err := writer.Config(ctx, address)
	if err != nil {
		return err
	}
	kept, _, err := e.keeper.load(ctx, scope)
	if err != nil {
		return err
	}
	config, err := wanted(scope.Spec, unit.Status.Stage, own.Active, kept, mark)
	if err != nil {
		return finding("%s", err)
	}
	hash, active := machineconfig.Hash(config), machineconfig.Hash(own.Active)
	switch {
	case hash == active:
		return nil
	case hash != unit.Status.ConfigHash:
		return finding("another machine config is in force than the one that was looked at: somebody else has changed it")
	case len(own.Persistent) > 0 && machineconfig.Hash(own.Persistent) != active:
		return later("%s", machineconfig.PendingWords)
	}
	return kind.Told(writer.ApplyConfig(ctx, address, config, talos.ApplyLive), config, own.Active)
}
