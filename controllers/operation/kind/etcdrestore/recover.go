// SPDX-License-Identifier: Apache-2.0

package etcdrestore

import (
	"context"
	"fmt"
	"io"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/progress"
	"ichor.maesh.dev/hub/providers/talos"
)

// recovering takes the chosen control plane from having no etcd to having that of the snapshot.
func recovering(unit kind.Unit, seen kind.Observation, own View) kind.Action {
	switch step := unit.Status.Step; {
	case step == v1alpha1.VerifyingStep:
		return begun(unit, seen, own)
	case unit.Failed():
		return kind.FailStep(unit, v1alpha1.RecoveringStep)
	case own.Trouble != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: fmt.Sprintf(
			"control plane %s, with which etcd begins, does not answer: %s; %s", unit.Status.Name, own.Trouble, deleteHelp(unit))}
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	if unit.Status.Step == "" && len(own.Others) > 0 { // It would join that one, or be a second cluster beside it.
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.EtcdHealthyGate, Message: "etcd begins where no other one is: " + own.others()}
	}
	switch unit.Status.Step { //nolint:exhaustive // The others are told apart above.
	case v1alpha1.RecoveringStep:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.BootstrappingStep, PreRebootBootID: seen.Talos.BootID}
	case v1alpha1.BootstrappingStep:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until etcd has begun"}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.RecoveringStep}
}

// begun waits until etcd has begun with what the snapshot holds. That it was told to says nothing: a boot that comes in between forgets it.
func begun(unit kind.Unit, seen kind.Observation, own View) kind.Action {
	wait := kind.Action{Verdict: kind.Wait}
	switch missing := reboot.NotBackInEtcd(seen); {
	case own.Trouble != "":
		wait.Message = "waiting for the Talos API: " + own.Trouble
	case (own.prepares() || own.gaveUp()) && seen.Talos.BootID != unit.Status.PreRebootBootID:
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.RecoveringStep}
	case own.gaveUp():
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.RecoveringStep, Message: fmt.Sprintf(
			"etcd has not begun: service etcd is %s; why: %s", talos.StateFailed, serviceHelp(unit))}
	case missing != "":
		wait.Message = missing
	case own.WantedTrouble != "":
		wait.Message = "waiting for the facts of the snapshot: " + own.WantedTrouble
	case own.RevisionTrouble != "":
		wait.Message = "waiting for the Kubernetes API: " + own.RevisionTrouble
	case own.Wanted == 0: // Etcd did not run yet when that was looked at.
		wait.Message = "waiting for a look at the revision"
	case own.Revision < own.Wanted:
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.VerifyingStep, Message: wrongRevision(own)}
	default:
		return kind.Action{Verdict: kind.Done, Message: fmt.Sprintf("etcd goes on from revision %d of the snapshot", own.Wanted)}
	}
	return wait
}

func wrongRevision(own View) string {
	return fmt.Sprintf("etcd is at revision %d, and the snapshot holds %d: it has not begun with the snapshot", own.Revision, own.Wanted)
}

// restarts is how often a control plane is rebooted whose etcd has given up, before people are asked.
const restarts = 3

func askForReboot(unit kind.Unit, seen kind.Observation) kind.Action {
	return kind.Action{
		Verdict: kind.Call, Step: v1alpha1.RebootingStep, PreRebootBootID: seen.Talos.BootID, NodeName: unit.Machine.Status.NodeName,
	}
}

// joining waits for another control plane. It joins by itself; told to begin an etcd, it would begin a second cluster. One whose etcd has given
// up while there was none to join is rebooted: Talos lets nobody restart that service.
func joining(unit kind.Unit, seen kind.Observation, own View) kind.Action {
	if unit.Status.Step == v1alpha1.RebootingStep {
		return booting(unit, seen, v1alpha1.JoiningStep, askForReboot)
	}
	if seen.TalosTrouble != "" {
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: fmt.Sprintf(
			"control plane %s does not answer: %s; %s", unit.Status.Name, seen.TalosTrouble, deleteHelp(unit))}
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	wait := kind.Action{Verdict: kind.Wait, Step: v1alpha1.JoiningStep}
	switch missing := reboot.NotBackInEtcd(seen); {
	case unit.FailedForGood():
		return kind.FailStep(unit, "")
	case own.gaveUp() && timesAsked(unit, v1alpha1.RebootingStep) >= restarts:
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.RebootingStep, Message: fmt.Sprintf(
			"it was rebooted %d times, and service etcd is %s again; why: %s", restarts, talos.StateFailed, serviceHelp(unit))}
	case own.gaveUp():
		return askForReboot(unit, seen)
	case missing != "":
		wait.Message = missing
	case seen.Etcd == nil || len(seen.Etcd.Members) < 2:
		wait.Message = "its etcd knows no other member: it is not the restored one"
	default:
		return kind.Action{Verdict: kind.Done}
	}
	return wait
}

// send sends the snapshot, unless etcd has begun already: then it is looked at, and not begun anew. One that has given up waiting takes it as one
// that waits does. Whether it has data is told when it is to begin.
func (e *Executor) send(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	writer, _, err := e.sequence.Writer(ctx, scope, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	address := unit.Machine.Spec.Address
	state, err := etcdState(ctx, writer, address)
	switch {
	case err != nil:
		return kind.Outcome{}, err
	case state == stateRunning:
		return kind.Outcome{Message: "etcd runs there already"}, nil
	case state != talos.StatePreparing && state != talos.StateFailed:
		return kind.Outcome{}, &earlyError{fmt.Errorf("service etcd at %s is %q, and not %s yet", address, state, talos.StatePreparing)}
	}
	snapshot, err := e.stored.Find(ctx, scope.Cluster, scope.Spec.EtcdRestore.SnapshotName)
	if err != nil {
		return kind.Outcome{}, err
	}
	err = e.stored.Read(ctx, snapshot, func(from io.Reader) error { return writer.RecoverEtcd(ctx, address, from) })
	return kind.Outcome{}, unlessEarly(err)
}

// stateRunning is the state of an etcd that has begun.
const stateRunning = "Running"

func etcdState(ctx context.Context, reader talos.Reader, address string) (string, error) {
	services, err := reader.Services(ctx, address)
	return View{Services: services}.service(talos.EtcdService).State, err
}

// bootstrap has the chosen control plane begin its etcd, and returns when it does so. One that has an etcd already has begun it before.
func (e *Executor) bootstrap(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	snapshot, err := e.stored.Find(ctx, scope.Cluster, scope.Spec.EtcdRestore.SnapshotName)
	if err != nil {
		return kind.Outcome{}, err
	}
	writer, facts, err := e.sequence.Writer(ctx, scope, unit)
	if err != nil {
		return kind.Outcome{}, err
	}
	raw := snapshot.Spec.Contents.RawCopy() && scope.Spec.EtcdRestore.TakesRawCopies()
	switch err := writer.BootstrapEtcd(ctx, unit.Machine.Spec.Address, raw); {
	case talos.HasEtcd(err):
		return kind.Outcome{Message: "it had begun already"}, nil
	case err != nil:
		return kind.Outcome{}, unlessEarly(err)
	}
	return kind.Outcome{}, e.untilBegun(ctx, writer, unit, facts.BootID)
}

// beginPause is the pause between two looks at an etcd that is to begin.
const beginPause = time.Second

// failedLooks is how many looks in a row have to find that service etcd has failed. It is Failed for a moment when Talos ends its waiting to
// have it begin, and until then where it had given up.
const failedLooks = 3

// untilBegun waits until a control plane that was told to begin an etcd does so, or boots, which makes it forget that. One that does neither has
// forgotten it as well.
func (e *Executor) untilBegun(ctx context.Context, reader talos.Reader, unit kind.Unit, boot string) error {
	ticker, until := e.clock.NewTicker(beginPause), e.clock.Now().Add(e.Begins)
	defer ticker.Stop()
	address, looks := unit.Machine.Spec.Address, 0
	for {
		state, err := etcdState(ctx, reader, address)
		facts, failed := reader.Machine(ctx, address)
		looks++
		if err != nil || state != talos.StateFailed {
			looks = 0
		}
		switch {
		case failed == nil && facts.BootID != boot, err == nil && state != talos.StatePreparing && state != talos.StateFailed:
			return nil
		case looks >= failedLooks:
			return &notBegunError{fmt.Sprintf("service etcd at %s is %s; why: %s", address, state, serviceHelp(unit))}
		case e.clock.Now().After(until):
			return &earlyError{fmt.Errorf("etcd at %s has not begun within %s", address, e.Begins)}
		}
		progress.Report(ctx, "waiting until etcd begins")
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
