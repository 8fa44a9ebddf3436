// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"ichor.maesh.dev/hub/test/sim/timing"
)

const kubelet = "kubelet"

// Starts says when services have come up last.
type Starts struct {
	// System is that of the boot's first services.
	System time.Time `json:"system"`
	// Etcd and Kubelet are zero while they have not.
	Etcd    time.Time `json:"etcd,omitzero"`
	Kubelet time.Time `json:"kubelet,omitzero"`
	// KubeletStop is when somebody has stopped the kubelet to start it again.
	KubeletStop time.Time `json:"kubeletStop,omitzero"`
}

// RestartKubelet stops the kubelet and starts it again. Pods run on, and the node stays Ready: Kubernetes grants more silence
// than that. A kubelet that does not run yet starts anyway.
func (m *Machine) RestartKubelet() {
	m.mu.Lock()
	if !m.state.KubeletReady || m.state.KubeletRestarting {
		m.mu.Unlock()
		return
	}
	m.state.KubeletRestarting, m.state.Ready = true, false
	m.starts.KubeletStop = m.env.Clock.Now()
	m.events.service(kubelet, machineapi.ServiceStateEvent_STOPPING, "Sending SIGTERM to task kubelet")
	m.events.status(m.state)
	life := m.life
	m.mu.Unlock()
	m.record("restart", kubelet)
	m.notify()
	go func() {
		if timing.Sleep(life, m.env.Clock, m.env.Timings.Kubelet) == nil {
			m.kubeletRestarted()
		}
	}()
}

func (m *Machine) kubeletRestarted() {
	m.mu.Lock()
	m.state.KubeletRestarting, m.starts.Kubelet = false, m.env.Clock.Now()
	m.state.Ready = m.state.Stage == runtime.MachineStageRunning
	m.events.service(kubelet, machineapi.ServiceStateEvent_RUNNING, "Health check successful")
	m.events.status(m.state)
	m.mu.Unlock()
	m.notify()
}

// Starts returns when services have come up.
func (m *Machine) Starts() Starts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts
}
