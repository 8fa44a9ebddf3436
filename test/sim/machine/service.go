// SPDX-License-Identifier: Apache-2.0

package machine

import "time"

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

// Starts returns when services have come up.
func (m *Machine) Starts() Starts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts
}
