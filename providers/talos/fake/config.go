// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"slices"

	"ichor.maesh.dev/hub/providers/talos"
)

// Configure gives a machine a machine config.
func (t *Talos) Configure(address string, config talos.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[address].config = config
}

// ConfigOf is the machine config that a machine has.
func (t *Talos) ConfigOf(address string) talos.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machines[address].config
}

func (c *client) Config(_ context.Context, address string) (talos.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return talos.Config{}, err
	}
	return m.config, nil
}

func (c *client) CheckConfig(ctx context.Context, address string, _ []byte, _ talos.ApplyMode) error {
	return c.change(ctx, "CheckConfig", address, func(*machine) error { return nil })
}

// ApplyConfig keeps a config, and brings it in force unless it is staged.
func (c *client) ApplyConfig(ctx context.Context, address string, data []byte, mode talos.ApplyMode) error {
	return c.changed(ctx, "ApplyConfig", address, func(m *machine) error {
		m.config.Persistent = slices.Clone(data)
		if mode == talos.ApplyLive {
			m.config.Active = m.config.Persistent
		}
		return nil
	}, func() {
		if c.Applied != nil && mode == talos.ApplyLive {
			c.Applied(address, data)
		}
	})
}
