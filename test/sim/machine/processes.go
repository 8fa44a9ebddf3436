// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Processes runs what the static pods of machines stand for.
type Processes interface {
	// Start starts a pod of a machine anew, and returns when it serves; an error is why it does not. What runs ends with the machine's etcd
	// member at the latest.
	Start(ctx context.Context, machine string, part component.Part) error
}

// awaitPods waits for the processes behind the static pods: Talos calls no machine ready before.
func (m *Machine) awaitPods(s *sequence) bool {
	for m.env.Processes != nil && !m.podsReady() {
		if timing.Sleep(s.ctx, m.env.Clock, m.env.Timings.Settle) != nil {
			return false
		}
	}
	return true
}

func (m *Machine) podsReady() bool {
	return !slices.ContainsFunc(m.Components().Pods, func(p Pod) bool { return !p.Ready })
}
