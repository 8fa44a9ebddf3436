// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"maps"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/meta"
)

// Slot is an installed system.
type Slot struct {
	// Version is the Talos version, "v1.13.6".
	Version string `json:"version,omitempty"`
	// Schematic is the Image Factory schematic.
	Schematic string `json:"schematic,omitempty"`
}

// upgradeKey marks an installed system as not yet proven; its value names the slot to fall back to.
const upgradeKey = meta.Upgrade

// Errors of slots and META.
var (
	// ErrNoFallback is returned by Rollback when the other slot is empty.
	ErrNoFallback = errors.New("previous boot entry not found")
	// ErrReadOnlyKey is returned for META keys that the API may not write.
	ErrReadOnlyKey = errors.New("META key is not writeable by the API")
)

// disk is what survives a reboot.
type disk struct {
	slots         [2]Slot
	running, next int
	meta          map[uint8]string

	// wiped disks have no machine config, dead ones no Talos either. Blank ones have neither, and their machine boots from something else,
	// such as an image on a network: its system is the one that slots name.
	wiped, dead, blank bool
}

func slotLabel(slot int) string { return string(rune('A' + slot)) }

// install writes the slot that does not run, makes it the next one, and notes the way back. The running machined does not
// see the note: it has its own copy of META.
func (d *disk) install(system Slot) {
	d.slots[1-d.running] = system
	d.next = 1 - d.running
	d.meta[upgradeKey] = slotLabel(d.running)
}

// revert makes the slot the next one that ran before the installation.
func (d *disk) revert() {
	d.next = 1 - d.next
	delete(d.meta, upgradeKey)
}

// goBack reverts a slot that is still on trial.
func (d *disk) goBack() {
	if _, onTrial := d.meta[upgradeKey]; onTrial {
		d.revert()
	}
}

// takeStaged returns the image of a staged upgrade, and forgets it so that it is tried once.
func (d *disk) takeStaged() (ref string, staged bool) {
	ref, staged = d.meta[meta.StagedUpgradeImageRef]
	delete(d.meta, meta.StagedUpgradeImageRef)
	delete(d.meta, meta.StagedUpgradeInstallOptions)
	return ref, staged
}

func cloneMeta(values map[uint8]string) map[uint8]string {
	if values == nil {
		return map[uint8]string{}
	}
	return maps.Clone(values)
}

// Meta returns machined's view of META.
func (m *Machine) Meta() map[uint8]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cloneMeta(m.meta)
}

// WriteMeta sets a META value. Writing flushes machined's copy, and so loses what an installer has put on disk meanwhile.
func (m *Machine) WriteMeta(key uint8, value string) error {
	return m.flushMeta(key, func(values map[uint8]string) { values[key] = value })
}

// DeleteMeta deletes a META value; see WriteMeta.
func (m *Machine) DeleteMeta(key uint8) error {
	return m.flushMeta(key, func(values map[uint8]string) { delete(values, key) })
}

func (m *Machine) flushMeta(key uint8, change func(map[uint8]string)) error {
	if !meta.IsAPIWriteable(key) {
		return ErrReadOnlyKey
	}
	m.mu.Lock()
	change(m.meta)
	m.disk.meta = cloneMeta(m.meta)
	m.mu.Unlock()
	m.notify()
	return nil
}

// Snapshot is what a simulator keeps of a machine over its own restart.
type Snapshot struct {
	// Slots are the two systems.
	Slots [2]Slot `json:"slots"`
	// Running and Next are indexes of Slots.
	Running int `json:"running"`
	Next    int `json:"next"`
	// Meta are the META values on disk.
	Meta map[uint8]string `json:"meta,omitempty"`
	// Config is the machine config on disk, and ActiveConfig the one in force; empty where they are those of the installation
	// and on disk.
	Config       string `json:"config,omitempty"`
	ActiveConfig string `json:"activeConfig,omitempty"`
	// Parts are the parts of Kubernetes by their names.
	Parts map[string]SavedPart `json:"parts,omitempty"`
	// Starts says when the services have come up.
	Starts Starts `json:"starts,omitzero"`
	// BootID is that of the current boot; empty when the machine was down.
	BootID string `json:"bootID,omitempty"`
	// Wiped machines were reset, Dead ones have lost Talos itself.
	Wiped bool `json:"wiped,omitempty"`
	Dead  bool `json:"dead,omitempty"`
	// Blank machines have nothing on their disks, and boot from something else.
	Blank bool `json:"blank,omitempty"`
}

// Save returns what to keep.
func (m *Machine) Save() (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Snapshot{
		Slots: m.disk.slots, Running: m.disk.running, Next: m.disk.next, Meta: cloneMeta(m.disk.meta), Wiped: m.disk.wiped, Dead: m.disk.dead,
		Blank: m.disk.blank,
	}
	if m.state.APIUp {
		s.BootID, s.Starts = m.state.BootID, m.starts
	}
	var err error
	s.Config, s.ActiveConfig, err = m.config.save(m.env.Configs.of(m.Identity))
	s.Parts = m.saveParts()
	return s, err
}

// Restore makes a running machine from what was kept. One that was down has booted its next slot meanwhile.
func Restore(id Identity, env Environment, s Snapshot) (*Machine, error) {
	own, err := restoreConfig(env.Configs.of(id), s.Config, s.ActiveConfig)
	if err != nil {
		return nil, err
	}
	d := disk{slots: s.Slots, running: s.Running, next: s.Next, meta: cloneMeta(s.Meta), wiped: s.Wiped, dead: s.Dead, blank: s.Blank}
	if s.BootID == "" {
		s.BootID = uuid.NewString()
		d.running = d.next
		delete(d.meta, upgradeKey)
		own.boot()
		s.Parts = anew(s.Parts)
	}
	m := newMachine(id, env, d, s.BootID)
	m.config = own
	if !s.Starts.System.IsZero() {
		m.starts = s.Starts
	}
	m.certify()
	m.restoreParts(s.Parts)
	return m, nil
}
