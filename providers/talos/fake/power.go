// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"

	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/talos"
)

// Shutdown powers a machine off, unless it hangs on the way there.
func (c *client) Shutdown(ctx context.Context, address string) error {
	if err := guard.Check(guard.With(ctx, c.guard), "Shutdown"); err != nil {
		return err
	}
	return c.Run(ctx, "Shutdown", address, func() error {
		off, err := c.powerOff(address)
		if off && c.PoweredOff != nil {
			c.PoweredOff(address)
		}
		return err
	})
}

func (c *client) powerOff(address string) (off bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.find(address)
	if err != nil {
		return false, err
	}
	if m.hangs {
		m.facts.Stage = talos.StageShuttingDown
		return false, nil
	}
	m.silent = true
	return true, nil
}

// PowerOn boots a machine that is off.
func (t *Talos) PowerOn(address string) {
	t.Silence(address, false)
	t.PowerCycle(address)
}
