// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	simmachine "ichor.maesh.dev/hub/test/sim/machine"
)

// machineConfigs generates the configs that a cluster's machines were installed with. Machines of one role share theirs.
func machineConfigs(c *Cluster) (configs simmachine.Configs, err error) {
	contract, err := config.ParseContractFromVersion(c.spec.TalosVersion)
	if err != nil {
		return configs, fmt.Errorf("version contract: %w", err)
	}
	input, err := generate.NewInput(c.spec.Name, c.Endpoint(), strings.TrimPrefix(c.spec.KubernetesVersion, "v"),
		generate.WithVersionContract(contract),
		generate.WithSecretsBundle(c.pki.Bundle),
		generate.WithInstallImage(c.installImage()),
		generate.WithAllowSchedulingOnControlPlanes(c.spec.Workers == 0),
	)
	if err != nil {
		return configs, fmt.Errorf("generate: %w", err)
	}
	if configs.ControlPlane, err = readOnlyConfig(input, machine.TypeControlPlane); err != nil {
		return configs, err
	}
	if configs.Worker, err = readOnlyConfig(input, machine.TypeWorker); err != nil {
		return configs, err
	}
	return configs.Share(), nil
}

func (c *Cluster) installImage() string {
	return fmt.Sprintf("factory.talos.dev/%s-installer/%s:%s", c.spec.Platform, c.spec.Schematic, c.spec.TalosVersion)
}

// readOnlyConfig loads the config from its bytes, since a loaded one is read-only and so is shared, not copied, by its readers.
func readOnlyConfig(input *generate.Input, role machine.Type) (config.Provider, error) {
	generated, err := input.Config(role)
	if err != nil {
		return nil, fmt.Errorf("generate %s config: %w", role, err)
	}
	data, err := generated.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode %s config: %w", role, err)
	}
	return configloader.NewFromBytes(data)
}
