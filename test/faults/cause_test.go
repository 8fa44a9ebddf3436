// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"testing"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// What users read: the cause, whatever it is that stands before it.

func TestCaseA12SaysCertificate(t *testing.T) {
	t.Parallel()
	w := begin(t, "a12-says", 3, 0)
	stuck := w.order(fault.BootStuck, "")
	op := w.upgrade()
	first := w.event(invariant.DownEvent, "").Node
	w.order(fault.ServerCertificate, first, fault.ParamAPI, "talos", fault.ParamProblem, "other-authority")
	hub.Clear(stuck)
	w.fails(op, "certificate")
}

func TestCauseOfPullFailureIsSaid(t *testing.T) {
	t.Parallel()
	w := begin(t, "pull-says", 1, 0)
	w.order(fault.PullFailure, "")
	w.fails(w.upgrade(), "503 Service Unavailable")
}

func TestCaseB18CauseIsSaid(t *testing.T) {
	t.Parallel()
	w := begin(t, "b18-says", 1, 0)
	w.order(fault.InstallerBusy, "")
	w.fails(w.upgrade(), "already in progress")
}

func TestCaseB3NoLeaderIsSaid(t *testing.T) {
	t.Parallel()
	w := begin(t, "b3-says", 3, 0)
	w.order(fault.EtcdNoLeader, "cp-3")
	w.until(w.upgrade(), harness.WaitingAt(v1alpha1.EtcdHealthyGate, "no leader"))
}
