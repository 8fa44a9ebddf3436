// SPDX-License-Identifier: Apache-2.0

package talosapi

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type applyMode = machineapi.ApplyConfigurationRequest_Mode

const (
	modeReboot   = machineapi.ApplyConfigurationRequest_REBOOT
	modeAuto     = machineapi.ApplyConfigurationRequest_AUTO
	modeNoReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	modeStaged   = machineapi.ApplyConfigurationRequest_STAGED
	modeTry      = machineapi.ApplyConfigurationRequest_TRY
)

// modeDetails are the sentences that answers begin with.
var modeDetails = map[applyMode]string{
	modeReboot:   "Applied configuration with a reboot",
	modeNoReboot: "Applied configuration without a reboot",
	modeTry:      "Applied configuration without a reboot",
	modeStaged:   "Staged configuration to be applied after the next reboot",
}

// installed is the validation mode of machines with a disk.
type installed struct{ platform string }

// String implements validation.RuntimeMode.
func (i installed) String() string { return i.platform }

// RequiresInstall implements validation.RuntimeMode.
func (installed) RequiresInstall() bool { return false }

// InContainer implements validation.RuntimeMode.
func (installed) InContainer() bool { return false }

// application is one call of ApplyConfiguration.
type application struct {
	node    *node
	request *machineapi.ApplyConfigurationRequest
	config  config.Provider
	mode    applyMode
	reason  error // Why a mode was chosen that reboots.
}

// ApplyConfiguration checks a machine config and brings it in force, at once or with the next boot.
func (machineService) ApplyConfiguration(
	ctx context.Context, req *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	n := nodeFrom(ctx)
	if n.inMaintenance() {
		return n.provision(ctx, req)
	}
	if !n.applying.TryLock() {
		return nil, status.Error(codes.FailedPrecondition, "another apply configuration is already in progress")
	}
	defer n.applying.Unlock()
	if n.AwaitsConfig() {
		return nil, status.Error(codes.FailedPrecondition,
			"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot")
	}
	a := &application{node: n, request: req, mode: req.GetMode()}
	warnings, err := a.prepare(ctx)
	if err != nil {
		return nil, err
	}
	details, err := a.carryOut()
	if err != nil {
		return nil, err
	}
	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{{
		Mode: a.mode, Warnings: warnings, ModeDetails: details,
	}}}, nil
}

// prepare reads and checks the config and settles the mode.
func (a *application) prepare(ctx context.Context) ([]string, error) {
	newer := a.node.State().Running.AtLeast(14)
	if !newer && a.mode != modeTry {
		a.node.EndTrial() // Before 1.14 even a dry run does this.
	}
	var err error
	if a.config, err = configloader.NewFromBytes(a.request.GetData()); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if a.config.RawV1Alpha1() == nil {
		return nil, status.Error(codes.InvalidArgument,
			"the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?")
	}
	if newer && a.mode == modeReboot {
		return nil, status.Error(codes.Unimplemented, "the REBOOT mode is not supported, please use AUTO or NO_REBOOT modes instead")
	}
	resources := state.WrapCore(a.node.current().core)
	warnings, err := a.config.ValidateAtRuntime(ctx, resources, installed{platform: a.node.Platform})
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if newer {
		a.settle()
		return warnings, nil
	}
	return warnings, a.settleBefore14()
}

// settle is Talos 1.14's choice of the mode: it never reboots.
func (a *application) settle() {
	if a.mode == modeAuto {
		a.mode = modeNoReboot
	}
}

// settleBefore14 is the older choice: whether a change can do without a reboot is looked up in a list of fields.
func (a *application) settleBefore14() error {
	reason := a.node.NeedsReboot(a.config)
	switch a.mode {
	case modeNoReboot, modeTry:
		if reason != nil {
			return status.Error(codes.InvalidArgument, reason.Error())
		}
	case modeAuto:
		if a.mode = modeNoReboot; reason != nil {
			a.mode, a.reason = modeReboot, reason
		}
	}
	return nil
}

// carryOut does what the mode says, or tells what it would do, and returns the words for it.
func (a *application) carryOut() (string, error) {
	details := modeDetails[a.mode]
	if a.request.GetDryRun() {
		diff, err := a.diff()
		return fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s", details, diff), err
	}
	switch a.mode {
	case modeTry:
		return details + a.try(), nil
	case modeNoReboot:
		a.node.EndTrial()
		a.node.Configure(a.config)
	case modeStaged:
		a.node.EndTrial()
		a.node.StageConfig(a.config)
	case modeReboot:
		a.node.RebootWith(a.config)
	default:
		return "", status.Errorf(codes.InvalidArgument, "incorrect mode '%s' specified for the apply config call", a.mode)
	}
	if a.reason != nil {
		details += ": " + a.reason.Error()
	}
	return details, nil
}

func (a *application) diff() (string, error) {
	active, _ := a.node.Config()
	diff, err := configdiff.DiffConfigs(active, a.config)
	if err != nil {
		return "", fmt.Errorf("failed to generate diff: %w", err)
	}
	if diff == "" {
		diff = "No changes."
	}
	return diff, nil
}

func (a *application) try() string {
	timeout := constants.ConfigTryTimeout
	if given := a.request.GetTryModeTimeout(); given != nil {
		timeout = given.AsDuration()
	}
	a.node.TryConfig(a.config, timeout)
	return "\nThe config is applied in 'try' mode and will be automatically reverted back in " + timeout.String()
}
