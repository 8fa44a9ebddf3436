// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configapi "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/protobuf/proto"
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
		var err error
		if *into, err = c.configOf(ctx, id); err != nil {
			return Config{}, fmt.Errorf("machine at %s: %w", address, err)
		}
	}
	return found, nil
}

// configOf reads one of the machine configs as the bytes that the machine has; none if there is none. Nothing is decoded: a newer Talos may
// have documents that this hub cannot read, and reading is repeated for every machine all the time.
func (c *connection) configOf(ctx context.Context, id string) ([]byte, error) {
	pointer := resource.NewMetadata(config.NamespaceName, config.MachineConfigType, id, resource.VersionUndefined)
	got, err := c.client.COSI.Get(ctx, pointer, state.WithGetUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	switch {
	case state.IsNotFoundError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading machine config %q: %w", id, err)
	}
	raw, ok := got.(*protobuf.Resource)
	if !ok {
		return nil, fmt.Errorf("reading machine config %q: it came as %T", id, got)
	}
	encoded, err := raw.Marshal()
	if err != nil {
		return nil, fmt.Errorf("reading machine config %q: %w", id, err)
	}
	spec := &configapi.MachineConfigSpec{}
	if err := proto.Unmarshal(encoded.GetSpec().GetProtoSpec(), spec); err != nil {
		return nil, fmt.Errorf("reading machine config %q: the machine sent what cannot be decoded", id)
	}
	return spec.GetYamlMarshalled(), nil
}

// CheckConfig has the machine check a config, and changes nothing but this: Talos before 1.14 ends a trial of a config, which stays in force
// then.
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
