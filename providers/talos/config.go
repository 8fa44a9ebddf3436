// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// Config is the machine config that a machine has, as documents of YAML. It holds secrets.
type Config struct {
	// Active is in force.
	Active []byte

	// Persistent is on disk: the next boot brings it in force. It differs from Active while a config is staged, or tried.
	Persistent []byte
}

// ApplyMode is how a machine takes a machine config.
type ApplyMode string

const (
	// ApplyStaged keeps the config for the next boot.
	ApplyStaged ApplyMode = "Staged"

	// ApplyLive brings the config in force without a reboot, and keeps it. Talos before 1.14 refuses what needs a reboot; from then on
	// such a change is kept and is in force after the next boot only.
	ApplyLive ApplyMode = "Live"
)

var applyModes = map[ApplyMode]machineapi.ApplyConfigurationRequest_Mode{
	ApplyStaged: machineapi.ApplyConfigurationRequest_STAGED,
	ApplyLive:   machineapi.ApplyConfigurationRequest_NO_REBOOT,
}

// Config reads the machine config of a machine. It takes the role os:admin.
func (c *connection) Config(ctx context.Context, address string) (Config, error) {
	ctx = at(ctx, address)
	var found Config
	for id, into := range map[string]*[]byte{config.ActiveID: &found.Active, config.PersistentID: &found.Persistent} {
		got, err := get[*config.MachineConfig](ctx, c, config.NamespaceName, config.MachineConfigType, id)
		if err != nil {
			return Config{}, fmt.Errorf("machine at %s: %w", address, err)
		}
		if got == nil {
			continue
		}
		if *into, err = got.Provider().Bytes(); err != nil {
			return Config{}, fmt.Errorf("machine at %s: encoding the machine config: %w", address, err)
		}
	}
	return found, nil
}

// CheckConfig has the machine check a config, and changes nothing but this: Talos ends a config that somebody tries, which stays in force then.
func (c *connection) CheckConfig(ctx context.Context, address string, data []byte, mode ApplyMode) error {
	return c.apply(ctx, address, data, mode, true)
}

// ApplyConfig has the machine take a config.
func (c *connection) ApplyConfig(ctx context.Context, address string, data []byte, mode ApplyMode) error {
	return c.apply(ctx, address, data, mode, false)
}

func (c *connection) apply(ctx context.Context, address string, data []byte, mode ApplyMode, dryRun bool) error {
	_, err := c.client.ApplyConfiguration(c.guarded(ctx, address), &machineapi.ApplyConfigurationRequest{Data: data, Mode: applyModes[mode], DryRun: dryRun})
	if err != nil {
		return fmt.Errorf("applying a machine config at %s: %w", address, err)
	}
	return nil
}
