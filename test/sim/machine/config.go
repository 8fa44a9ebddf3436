// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/component"
)

// Configs are the machine configs that a cluster's machines were installed with. Machines that keep theirs share it.
type Configs struct {
	ControlPlane, Worker config.Provider

	controlPlaneSet, workerSet *component.Set // What they ask for, once it was read.
	installation               *installation
}

func (c Configs) of(id Identity) config.Provider {
	if id.ControlPlane {
		return c.ControlPlane
	}
	return c.Worker
}

// configuration is a machine's own config: what is in force, and what the next boot brings in force.
type configuration struct {
	active, persistent config.Provider

	before    config.Provider // What the end of a trial brings back.
	trial     clock.Timer     // Nil while there is none.
	rebooting bool            // A config was applied that the machine reboots for.
}

// Config returns the config in force, and the one on disk that the next boot brings in force.
func (m *Machine) Config() (active, persistent config.Provider) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.config.active, m.config.persistent
}

// AwaitsConfig says that the machine is about to reboot for a new config, and takes no other until then.
func (m *Machine) AwaitsConfig() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.config.rebooting
}

// Configure brings a config in force and keeps it.
func (m *Machine) Configure(c config.Provider) {
	m.reconfigure(func(own *configuration) { own.active, own.persistent = c, c })
}

// StageConfig keeps a config for the next boot.
func (m *Machine) StageConfig(c config.Provider) {
	m.reconfigure(func(own *configuration) { own.persistent = c })
}

// RebootWith keeps a config and reboots for it, whatever else is going on.
func (m *Machine) RebootWith(c config.Provider) {
	m.reconfigure(func(own *configuration) { own.persistent, own.rebooting = c, true })
	m.takeOver(sequenceReboot, m.reboot)
}

// TryConfig brings a config in force for a while, unless EndTrial or a reboot comes first.
func (m *Machine) TryConfig(c config.Provider, d time.Duration) {
	m.EndTrial()
	m.reconfigure(func(own *configuration) {
		own.before, own.active = own.active, c
		own.trial = m.env.Clock.AfterFunc(d, m.revertConfig)
	})
}

// EndTrial leaves the config that is being tried in force.
func (m *Machine) EndTrial() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.config.endTrial()
}

func (m *Machine) revertConfig() {
	m.reconfigure(func(own *configuration) {
		if own.trial != nil {
			own.active = own.before
			own.endTrial()
		}
	})
}

func (m *Machine) reconfigure(change func(*configuration)) {
	m.mu.Lock()
	change(&m.config)
	m.mu.Unlock()
	m.certify()
	m.fit()
	m.notify()
}

func (c *configuration) endTrial() {
	if c.trial != nil {
		c.trial.Stop()
	}
	c.trial, c.before = nil, nil
}

// boot brings in force what is on disk.
func (c *configuration) boot() {
	c.endTrial()
	c.active, c.rebooting = c.persistent, false
}

// save returns the config on disk and the one in force, each as text, or nothing where it is the one of the installation. A
// trial does not outlast the simulator.
func (c *configuration) save(installed config.Provider) (persistent, active string, err error) {
	inForce := c.active
	if c.trial != nil {
		inForce = c.before
	}
	if persistent, err = encode(c.persistent, installed); err != nil {
		return "", "", err
	}
	active, err = encode(inForce, c.persistent)
	return persistent, active, err
}

func encode(c, known config.Provider) (string, error) {
	if c == known {
		return "", nil
	}
	data, err := c.Bytes()
	if err != nil {
		return "", fmt.Errorf("encode machine config: %w", err)
	}
	return string(data), nil
}

// restoreConfig is the opposite of save.
func restoreConfig(installed config.Provider, persistent, active string) (configuration, error) {
	c := configuration{}
	var err error
	if c.persistent, err = decode(persistent, installed); err != nil {
		return c, err
	}
	c.active, err = decode(active, c.persistent)
	return c, err
}

func decode(text string, known config.Provider) (config.Provider, error) {
	if text == "" {
		return known, nil
	}
	c, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("decode machine config: %w", err)
	}
	return c, nil
}
