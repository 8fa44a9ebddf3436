// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Errors of the installer.
var (
	// ErrBusy is returned while an installer runs.
	ErrBusy = errors.New("another installation/upgrade is already in progress")
	// ErrNoInstaller is returned for images that install nothing.
	ErrNoInstaller = errors.New("image is not an installer")
)

// Exit codes of the installer. Only those from 1.14 on tell kinds of failures apart.
const (
	exitFailure   = 1
	exitPreflight = 4
)

// Installation is a run of the installer. It goes on whether or not anybody is listening.
type Installation struct {
	// Begun are the messages that come at once.
	Begun []string
	// Ended are the messages that come last; read it after Done.
	Ended []string
	// Code is the exit code; read it after Done.
	Code int32
	// Aborted says that the machine went down before the end, or the installer was killed: nothing was installed.
	Aborted bool
	// Cut says that the messages end after Begun, whatever the installer does.
	Cut bool
	// Done is closed at the end.
	Done chan struct{}
}

// Install starts the installer of an image that was pulled into a store. It writes the other slot and touches nothing else: no drain, no reboot.
func (m *Machine) Install(store Store, ref string) (*Installation, error) {
	image, err := m.pulled(store, ref)
	if err != nil {
		return nil, err
	}
	if image.System == (Slot{}) {
		return nil, fmt.Errorf("%s: %w", ref, ErrNoInstaller)
	}
	life, err := m.beginInstall()
	if err != nil {
		return nil, err
	}
	run := &Installation{
		Begun: []string{"running Talos installer " + image.System.Version, "running pre-flight checks"},
		Done:  make(chan struct{}),
	}
	m.notify()
	f, cut := m.env.Faults.Fire(fault.InstallerCut, m.Site())
	if run.Cut = cut; cut && f.Params[fault.ParamGoesOn] == "false" {
		run.Aborted = true
	}
	go m.install(life, image.System, run)
	return run, nil
}

func (m *Machine) beginInstall() (context.Context, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.Installing {
		return nil, ErrBusy
	}
	if _, busy := m.env.Faults.Fire(fault.InstallerBusy, m.Site()); busy {
		return nil, ErrBusy
	}
	m.state.Installing = true
	return m.life, nil
}

func (m *Machine) install(life context.Context, system Slot, run *Installation) {
	defer close(run.Done)
	defer m.notify()
	if !run.Aborted {
		m.carryOut(life, system, run)
	}
	m.finishInstall(life, system, run)
}

func (m *Machine) carryOut(life context.Context, system Slot, run *Installation) {
	if err := m.preflight(system); err != nil {
		run.Code, run.Ended = preflightCode(system), []string{"pre-flight checks failed: " + err.Error()}
	} else if timing.Sleep(life, m.env.Clock, m.env.Timings.Install) == nil {
		run.Code, run.Ended = m.installerResult()
	}
}

// installerResult asks for the fault at the very end, as most installers that fail do so late.
func (m *Machine) installerResult() (int32, []string) {
	f, failed := m.env.Faults.Fire(fault.InstallerExit, m.Site())
	if !failed {
		return 0, []string{"installation of the boot loader complete"}
	}
	code, err := strconv.ParseInt(f.Params[fault.ParamCode], 10, 32)
	if err != nil || code == 0 {
		code = exitFailure
	}
	return int32(code), []string{"installer failed"}
}

func (m *Machine) finishInstall(life context.Context, system Slot, run *Installation) {
	_, lost := m.env.Faults.Fire(fault.InstallerLost, m.Site())
	m.mu.Lock()
	ended := life.Err() == nil
	run.Aborted = run.Aborted || !ended
	m.state.Installing = m.state.Installing && !ended // Of the boot that began meanwhile nothing is known.
	if run.Code == 0 && !run.Aborted && !lost {
		m.disk.install(system)
	}
	m.mu.Unlock()
	m.record("installer", fmt.Sprintf("%s exit code %d aborted %t", system.Version, run.Code, run.Aborted))
}

// preflight is the installer's check of the host's version.
func (m *Machine) preflight(system Slot) error {
	target, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: system.Version})
	if err != nil {
		return fmt.Errorf("parse target version: %w", err)
	}
	host, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: m.State().Running.Version})
	if err != nil {
		return fmt.Errorf("parse host version: %w", err)
	}
	return target.UpgradeableFrom(host)
}

func preflightCode(system Slot) int32 {
	if system.AtLeast(14) {
		return exitPreflight
	}
	return exitFailure
}
