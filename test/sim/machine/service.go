// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"
	"time"

	"ichor.maesh.dev/hub/test/sim/timing"
)

// Starts says when services have come up last.
type Starts struct {
	// System is that of the boot's first services.
	System time.Time `json:"system"`
	// Etcd and Kubelet are zero while they have not.
	Etcd    time.Time `json:"etcd,omitzero"`
	Kubelet time.Time `json:"kubelet,omitzero"`
	// KubeletStop is when somebody has stopped the kubelet to start it again.
	KubeletStop time.Time `json:"kubeletStop,omitzero"`
	// Extensions are those of the services of extensions; zero while one is stopped to be started again.
	Extensions map[string]time.Time `json:"extensions,omitempty"`
}

// Starts returns when services have come up.
func (m *Machine) Starts() Starts {
	m.mu.Lock()
	defer m.mu.Unlock()
	starts := m.starts
	starts.Extensions = maps.Clone(starts.Extensions)
	return starts
}

// extensionsAt are the services of extensions, all started at one time.
func (i Identity) extensionsAt(at time.Time) map[string]time.Time {
	starts := make(map[string]time.Time, len(i.Extensions))
	for _, name := range i.Extensions {
		starts[name] = at
	}
	return starts
}

// RestartExtension stops the service of an extension and starts it again.
func (m *Machine) RestartExtension(name string) {
	if !m.startExtension(name, time.Time{}) {
		return
	}
	m.record("restart", "ext-"+name)
	m.mu.Lock()
	life := m.life
	m.mu.Unlock()
	go func() {
		if timing.Sleep(life, m.env.Clock, m.env.Timings.Kubelet) == nil {
			m.startExtension(name, m.env.Clock.Now())
		}
	}()
}

// startExtension says since when the service of an extension runs; zero stops it. It refuses to stop one that is stopped.
func (m *Machine) startExtension(name string, at time.Time) bool {
	m.mu.Lock()
	running := !m.starts.Extensions[name].IsZero()
	if at.IsZero() && !running {
		m.mu.Unlock()
		return false
	}
	m.starts.Extensions = maps.Clone(m.starts.Extensions)
	m.starts.Extensions[name] = at
	m.mu.Unlock()
	m.notify()
	return true
}
