// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// The events of machines get lost, and nobody waits for them: what counts is what the machines run.
func TestCaseA3A4NothingDependsOnEvents(t *testing.T) {
	t.Parallel()
	w := begin(t, "a3", 1, 1)
	w.order(fault.TalosRefused, "", fault.ParamMethod, "MachineService/Events", fault.ParamCode, "Unavailable")
	w.completes(w.upgrade())
	w.Expect(w.count("MachineService/Events", "")).To(BeZero())
}

// An installer whose stream breaks goes on or does not; either way the system is on the machine before it reboots.
func TestInstallerCut(t *testing.T) {
	for name, goesOn := range map[string]string{"cut-on": "true", "cut-off": "false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, name, 1, 1)
			w.orderTimes(1, fault.InstallerCut, "worker-1", fault.ParamGoesOn, goesOn)
			w.completes(w.upgrade())
			w.Expect(w.rolling().Reboots).To(Equal(map[string]int{"cp-1": 1, "worker-1": 1}))
			w.Expect(w.count(invariant.InstallMethod, "worker-1")).To(BeNumerically(">", 1))
		})
	}
}

// Another installation or upgrade is under way on the machine: that is a wait, not a failure, and nothing is forced.
func TestCaseB18AlreadyInProgress(t *testing.T) {
	t.Parallel()
	w := begin(t, "b18", 1, 1)
	w.orderTimes(3, fault.InstallerBusy, "worker-1")
	w.completes(w.upgrade())
	w.Expect(w.rolling().Installs["worker-1"]).To(Equal(1), "accepted")
	w.Expect(w.count(invariant.InstallMethod, "worker-1")).To(Equal(4), "asked")
}

// It stays busy beyond the deadline: the reason is what the machine says.
func TestCaseB18BusyForTooLong(t *testing.T) {
	t.Parallel()
	w := begin(t, "b18-long", 1, 1)
	id := w.order(fault.InstallerBusy, "cp-1")
	op := w.upgrade()
	w.fails(op, "machine b18-long-cp-1", "Installing failed: not done within")
	w.onlyTouched()
	hub.Clear(id)
	w.resumes(op)
}

// The installer says that all went well, and the machine boots what it booted before.
func TestInstalledButNotWritten(t *testing.T) {
	t.Parallel()
	w := begin(t, "lost", 3, 0)
	w.orderTimes(1, fault.InstallerLost, "")
	op := w.upgrade()
	w.fails(op, "runs "+from+" instead of "+to)
	w.Expect(w.rolling().Order).To(HaveLen(1))
	w.resumes(op)
}

// A node falls back to its old system. Nobody installs again by himself, and no other node is touched.
func TestCaseC2C19FallenBack(t *testing.T) {
	t.Parallel()
	w := begin(t, "c2", 3, 1)
	w.orderTimes(1, fault.Fallback, "")
	op := w.upgrade()
	w.fails(op, "runs "+from+" instead of "+to, "fell back")
	first := w.rolling().Order[0]
	w.onlyTouched(first)
	w.Expect(w.count(invariant.InstallMethod, "")).To(Equal(1))
	w.resumes(op)
	w.Expect(w.rolling().Order[1]).To(Equal(first), "it comes first again")
}

// A node comes back with a version that nobody asked for.
func TestThirdVersion(t *testing.T) {
	t.Parallel()
	w := begin(t, "third", 1, 2)
	w.orderTimes(1, fault.OtherVersion, "worker-1", fault.ParamVersion, "v1.13.2")
	op := w.upgrade()
	w.fails(op, "machine third-worker-1", "runs v1.13.2 instead of "+to)
	w.onlyTouched("cp-1", "worker-1")
	w.resumes(op)
}

// The call for a reboot ends in an error, and the machine reboots all the same.
func TestCaseC18ErrorAfterAGoodReboot(t *testing.T) {
	t.Parallel()
	w := begin(t, "c18", 1, 1)
	for _, node := range []string{"cp-1", "worker-1"} {
		w.orderTimes(1, fault.TalosRefused, node, fault.ParamMethod, invariant.RebootMethod, fault.ParamWhen, "after",
			fault.ParamCode, "Unavailable", fault.ParamMessage, "error reading from server: EOF")
	}
	w.completes(w.upgrade())
	w.Expect(w.rolling().Reboots).To(Equal(map[string]int{"cp-1": 1, "worker-1": 1}))
}

// A machine does not come back: the operation stops there, and goes on when the machine is back, without another install.
func TestCaseC19NeverBack(t *testing.T) {
	t.Parallel()
	w := begin(t, "c19", 3, 1)
	id := w.order(fault.BootStuck, "")
	op := w.upgrade()
	w.fails(op, "Rebooting not over within")
	first := w.rolling().Order[0]
	w.onlyTouched(first)
	w.Expect(w.nodes()[first].unschedulable).To(BeTrue(), "nobody knows where it is, so nothing is scheduled there")
	hub.Clear(id)
	w.resumes(op)
	w.Expect(w.count(invariant.InstallMethod, first)).To(Equal(1))
	w.Expect(w.rolling().Reboots[first]).To(Equal(1))
}

// A machine hangs in its reboot: its API answers, and its boot ID stays.
func TestCaseD9RebootStuck(t *testing.T) {
	t.Parallel()
	w := begin(t, "d9", 1, 2)
	id := w.order(fault.RebootStuck, "worker-1")
	op := w.reboot("worker-1")
	w.fails(op, "machine d9-worker-1", "Rebooting not over within", "boot ID")
	w.Expect(w.rolling().Reboots["worker-1"]).To(Equal(1))
	w.onlyTouched("worker-1")
	hub.Clear(id)
	w.resumes(op)
	w.Expect(w.rolling().Reboots["worker-1"]).To(Equal(1), "asked once, however long it took")
}

// After the reboot the machine registers under another name: that is said, and it is the only node that it happens to.
func TestCaseC7Renamed(t *testing.T) {
	t.Parallel()
	w := begin(t, "c7", 1, 2)
	id := w.order(fault.OtherIdentity, "worker-1", fault.ParamName, "talos-x7k-2lp", fault.ParamWhen, "reboot")
	op := w.upgrade()
	w.fails(op, "machine c7-worker-1", "talos-x7k-2lp")
	w.onlyTouched("cp-1", "worker-1")
	hub.Clear(id)
	w.resumes(op)
}

// Another machine answers at the recorded address. It is not touched, before the work on it begins or after.
func TestCaseB10AnotherMachine(t *testing.T) {
	t.Parallel()
	w := begin(t, "b10", 1, 2)
	id := w.order(fault.OtherIdentity, "worker-1", fault.ParamUUID, "11111111-2222-3333-4444-555555555555")
	op := w.reboot("worker-1")
	w.fails(op, "11111111-2222-3333-4444-555555555555", "b10-worker-1")
	w.onlyTouched()
	hub.Clear(id)
	w.resumes(op)
}

func TestCaseB10AnotherMachineAfterTheReboot(t *testing.T) {
	t.Parallel()
	w := begin(t, "b10-after", 1, 2)
	id := w.order(fault.OtherIdentity, "worker-1", fault.ParamUUID, "11111111-2222-3333-4444-555555555555", fault.ParamWhen, "reboot")
	op := w.upgrade()
	w.fails(op, "11111111-2222-3333-4444-555555555555", "b10-after-worker-1")
	w.onlyTouched("cp-1", "worker-1")
	hub.Clear(id)
	w.resumes(op)
}

// A pull fails for good after a while: nothing was taken away yet.
func TestPullFails(t *testing.T) {
	t.Parallel()
	w := begin(t, "pull", 1, 1)
	id := w.order(fault.PullFailure, "worker-1")
	op := w.upgrade()
	w.fails(op, "machine pull-worker-1", "Pulling failed")
	w.onlyTouched()
	hub.Clear(id)
	w.resumes(op)
}

// An installer ends with an exit code: the old system stays, and nobody runs it again unasked.
func TestInstallerExit(t *testing.T) {
	t.Parallel()
	w := begin(t, "exit", 1, 1)
	w.orderTimes(1, fault.InstallerExit, "cp-1", fault.ParamCode, "6")
	op := w.upgrade()
	w.fails(op, "exit code 6")
	w.Expect(w.count(invariant.InstallMethod, "")).To(Equal(1))
	w.Expect(w.rolling().Order).To(BeEmpty())
	w.resumes(op)
}

// The hub dies while a machine reboots. What counts afterwards is the machine.
func TestCaseC6TheMachineDecides(t *testing.T) {
	w := begin(t, "c6", 1, 1)
	id := w.order(fault.BootStuck, "cp-1")
	op := w.upgrade()
	w.event(invariant.DownEvent, "cp-1")
	w.Expect(hub.KillHub()).To(Succeed())
	hub.Clear(id)
	w.event(invariant.ReadyEvent, "cp-1")
	w.Expect(hub.StartHub()).To(Succeed())
	w.completes(op)
	w.Expect(w.rolling().Problems("", 1)).To(BeEmpty())
}

// Upper-case and fully qualified host names, and a second address, are the same machines.
func TestCaseB7Hostnames(t *testing.T) {
	for name, spec := range hostnames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec.Name, spec.ControlPlanes, spec.Workers = name, 1, 1
			w := beginWith(t, spec)
			op := w.upgrade()
			w.completes(op)
			seen := w.until(op, harness.Completed())
			w.Expect(seen.Status.Machines).To(HaveLen(2))
			for _, unit := range seen.Status.Machines {
				w.Expect(unit.Phase).To(Equal(v1alpha1.UnitCompleted))
			}
		})
	}
}
