// SPDX-License-Identifier: Apache-2.0

// Package ichor is the executor of kind ichor: it brings the hub itself to another version.
//
// A Job runs the image of the new version, which has the manifests of its release in it and applies them. The hub that began the operation ends
// on the way, and the next leader, which is of the new version, finds that it is what it should be.
package ichor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	ichorplan "ichor.maesh.dev/hub/controllers/operation/kind/ichor/plan"
	"ichor.maesh.dev/hub/providers/installation"
	"ichor.maesh.dev/hub/providers/kube"
)

// Executor upgrades the hub.
type Executor struct {
	ichorplan.Planner

	hub     installation.Provider
	version string
}

// New returns the executor of a hub of a version.
func New(hub installation.Provider, version string) *Executor {
	return &Executor{hub: hub, version: version}
}

// rollingOut is the deadline of the Job, and a while for the leader to change after it.
const rollingOut = installation.JobDeadline + 5*time.Minute

// Steps implements kind.Executor.
func (e *Executor) Steps() []kind.Step {
	return []kind.Step{
		{Name: v1alpha1.InstallingStep, Repeat: kind.Safe, Timeout: 2 * time.Minute}, // A Job that is there is not made twice.
		{Name: v1alpha1.RollingOutStep, Waits: true, Timeout: rollingOut},
	}
}

// look is what is looked at of the hub.
type look struct {
	installation.Look

	// trouble says why nothing is known.
	trouble string
}

// Observe implements kind.Executor.
func (e *Executor) Observe(ctx context.Context, scope kind.Scope, _ kind.Unit) kind.Observation {
	seen, err := e.hub.Look(ctx, JobName(scope.OperationID))
	if err != nil {
		return kind.Observation{Own: look{trouble: err.Error()}}
	}
	return kind.Observation{Own: look{Look: seen}}
}

// Next implements kind.Executor.
func (e *Executor) Next(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	found, _ := seen.Own.(look)
	switch step := unit.Status.Step; {
	case step == v1alpha1.InstallingStep && unit.FailedForGood():
		return kind.FailStep(unit, "")
	case step == v1alpha1.InstallingStep && unit.Failed():
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.InstallingStep}
	case step == v1alpha1.InstallingStep:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.RollingOutStep, Message: "the installer begins"}
	case found.trouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "nothing is known of the hub's own installation: " + found.trouble}
	case step == v1alpha1.RollingOutStep:
		return e.rollingOut(scope, found)
	case e.is(scope, found) && found.Job == nil:
		return kind.Action{Verdict: kind.Done, Message: fmt.Sprintf("the hub is %s already", e.version)}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.InstallingStep}
}

// rollingOut waits until the Job is over, and who leads is of the new version.
func (e *Executor) rollingOut(scope kind.Scope, found look) kind.Action {
	job, name := found.Job, JobName(scope.OperationID)
	switch {
	case job != nil && job.State == installation.JobFailed:
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.InstallingStep, Message: fmt.Sprintf("installer Job %s failed: %s", name, job.Message)}
	case job != nil && job.State == installation.JobRunning:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("installer Job %s runs%s", name, after(": ", job.Message))}
	case e.is(scope, found):
		return kind.Action{Verdict: kind.Done, Message: fmt.Sprintf("the hub is %s", e.version)}
	case job == nil:
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.InstallingStep, Message: fmt.Sprintf(
			"installer Job %s is gone, and the hub is %s", name, e.version)}
	case e.version != scope.Target.IchorVersion:
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf("installed; the hub that leads is still %s", e.version)}
	}
	return kind.Action{Verdict: kind.Wait, Message: "installed; " + waits(found)}
}

// is says whether the hub is what it shall be: this one, which leads, and its Deployment with all replicas.
func (e *Executor) is(scope kind.Scope, found look) bool {
	if found.Deployment == nil || !found.Deployment.RolledOut || e.version != scope.Target.IchorVersion {
		return false
	}
	image, _ := installation.ImageOf(found.Deployment.Image, scope.Target.IchorVersion)
	return image == found.Deployment.Image
}

func waits(found look) string {
	switch {
	case found.Deployment == nil:
		return "there is no Deployment of the hub"
	case !found.Deployment.RolledOut:
		return found.Deployment.Waits
	}
	return "the Deployment runs " + found.Deployment.Image
}

func after(separator, words string) string {
	if words == "" {
		return ""
	}
	return separator + words
}

// Settle implements kind.Executor: once a Job was asked for it is seen through, for nobody could tell what half an upgrade is.
func (e *Executor) Settle(scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	switch {
	case !unit.Status.FailureTime.IsZero(), unit.Status.Step == "", unit.FailedForGood():
		return kind.Action{Verdict: kind.Park}
	}
	return e.Next(scope, unit, seen)
}

// Unsafe implements kind.Executor: nothing happens on the target.
func (e *Executor) Unsafe(kind.Unit) string { return "" }

// Do implements kind.Executor.
func (e *Executor) Do(ctx context.Context, scope kind.Scope, _ kind.Unit, _ v1alpha1.OperationStep) (kind.Outcome, error) {
	image, err := e.hub.Install(ctx, installation.Order{
		Job: JobName(scope.OperationID), Operation: scope.Owner, From: e.version, To: scope.Target.IchorVersion,
	}, scope.Guard)
	return kind.Outcome{ResolvedImage: image}, err
}

// Undo implements kind.Executor: a Job that was not created leaves nothing.
func (e *Executor) Undo(context.Context, kind.Scope, kind.Unit, v1alpha1.OperationStep, error) error {
	return nil
}

// Classify implements kind.Executor.
func (e *Executor) Classify(err error) v1alpha1.ErrorClass {
	var obstacle *installation.Obstacle
	if errors.As(err, &obstacle) {
		return v1alpha1.ErrorPermanent
	}
	return kube.Classify(err) // The management API answers as any other does.
}

// shortHash is how much of a hash tells operations apart in the name of a Job.
const shortHash = 10

// JobName is the name of the Job of an operation: it has one, however often it is begun with.
func JobName(operationID string) string {
	sum := sha256.Sum256([]byte(operationID))
	return "ichor-upgrade-" + hex.EncodeToString(sum[:shortHash/2])
}
