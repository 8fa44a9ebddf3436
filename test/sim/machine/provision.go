// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/config"
)

// ErrProvisioned is returned for a machine that has a machine config already.
var ErrProvisioned = errors.New("the machine is not in maintenance mode")

// NewBlank makes a machine in maintenance mode with nothing on its disk, which has booted the given system from something else.
func NewBlank(id Identity, env Environment, system Slot) (*Machine, error) {
	return Restore(id, env, Snapshot{Slots: [2]Slot{system}, BootID: uuid.NewString(), Wiped: true, Blank: true})
}

// Blank says that there is nothing on the machine's disk.
func (m *Machine) Blank() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk.blank
}

// Provision gives a machine in maintenance mode a machine config. A blank one installs the system that the config names; then it boots with
// its config.
func (m *Machine) Provision(c config.Provider) error {
	system, err := m.systemFor(c)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if !m.state.Maintenance || m.config.rebooting {
		m.mu.Unlock()
		return ErrProvisioned
	}
	m.config.endTrial()
	m.config.active, m.config.persistent, m.config.rebooting = c, c, true
	m.mu.Unlock()
	m.record("provisioned", system.Version)
	m.takeOver(sequenceInstall, func(s *sequence) {
		if m.Blank() && !m.wait(s, m.env.Timings.Install) {
			return
		}
		settled := m.advance(s, func() {
			m.disk.wiped = false
			if m.disk.blank {
				m.disk.blank, m.disk.slots, m.disk.next = false, [2]Slot{}, m.disk.running
				m.disk.slots[m.disk.running] = system
			}
		})
		if settled && m.away(s, sequenceInstall, true) {
			m.boot(s)
		}
	})
	return nil
}

// systemFor is the system that a config has a blank machine install.
func (m *Machine) systemFor(c config.Provider) (Slot, error) {
	if !m.Blank() {
		return m.State().Running, nil
	}
	image, err := ResolveImage(c.Machine().Install().Image())
	switch {
	case err != nil:
		return Slot{}, err
	case image.System == (Slot{}):
		return Slot{}, fmt.Errorf("%s: %w", image.Name, ErrNoInstaller)
	}
	return image.System, nil
}
