// SPDX-License-Identifier: Apache-2.0

// Package timing holds the one table of durations that shapes the simulator, and the clock it is measured with.
package timing

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Timings says how long the simulated things take. Default is the demo table; Scaled makes it faster.
type Timings struct {
	// Pull is the download of an image that the machine does not have yet.
	Pull time.Duration
	// Install is one run of the installer: writing the inactive slot.
	Install time.Duration

	// Stop is the orderly end of the running system: stage rebooting or shutting down, the API still answers.
	Stop time.Duration
	// Boot is firmware, kernel and machined: from the loss of the API until it answers again.
	Boot time.Duration
	// FailedBoot is added when a new system is tried in vain before the machine falls back to the old one.
	FailedBoot time.Duration
	// EtcdJoin is the time from the API's return until the machine's etcd member is back.
	EtcdJoin time.Duration
	// Kubelet is the time after that until the kubelet reports Ready.
	Kubelet time.Duration
	// Settle is the time after that until the machine says that it is running and ready.
	Settle time.Duration

	// StaticPod is the time that a static pod is away when it is replaced.
	StaticPod time.Duration
	// BackOff is the pause before something that did not start is started again.
	BackOff time.Duration

	// Election is the time without a leader after the etcd leader went away.
	Election time.Duration
	// Defrag is how long an etcd member answers nothing while it is defragmented.
	Defrag time.Duration
	// EtcdTimeout is how long a request waits for an etcd without quorum before it fails.
	EtcdTimeout time.Duration

	// PodTermination is the time from the deletion of a pod until it is gone.
	PodTermination time.Duration
	// PodStart is the time from the creation of a pod until it is running.
	PodStart time.Duration
	// Drain is how long Talos itself tries to empty a node before it goes on without that.
	Drain time.Duration
	// EvictionRetry is the pause after an eviction that a disruption budget has refused.
	EvictionRetry time.Duration
	// NodeMonitorGrace is the silence of a kubelet after which its node becomes Unknown.
	NodeMonitorGrace time.Duration
}

// Default returns the demo table: a reboot takes about six seconds.
func Default() Timings {
	return Timings{
		Pull:    1500 * time.Millisecond,
		Install: 3 * time.Second,

		Stop:       time.Second,
		Boot:       3 * time.Second,
		FailedBoot: 4 * time.Second,
		EtcdJoin:   time.Second,
		Kubelet:    700 * time.Millisecond,
		Settle:     300 * time.Millisecond,

		StaticPod: 2 * time.Second,
		BackOff:   2 * time.Second,

		Election:    time.Second,
		Defrag:      time.Second,
		EtcdTimeout: 5 * time.Second,

		PodTermination:   time.Second,
		PodStart:         1500 * time.Millisecond,
		Drain:            30 * time.Second,
		EvictionRetry:    500 * time.Millisecond,
		NodeMonitorGrace: 8 * time.Second,
	}
}

// Reboot is the time from a Reboot call until the machine is running and ready again.
func (t Timings) Reboot(controlPlane bool) time.Duration {
	d := t.Stop + t.Boot + t.Kubelet + t.Settle
	if controlPlane {
		d += t.EtcdJoin
	}
	return d
}

// Scaled returns the table with every duration divided by speed; zero and one leave it as it is.
func (t Timings) Scaled(speed float64) Timings {
	if speed <= 0 {
		return t
	}
	for _, d := range t.fields() {
		*d = time.Duration(float64(*d) / speed)
	}
	return t
}

func (t *Timings) fields() []*time.Duration {
	return []*time.Duration{
		&t.Pull, &t.Install, &t.Stop, &t.Boot, &t.FailedBoot, &t.EtcdJoin, &t.Kubelet, &t.Settle,
		&t.Election, &t.Defrag, &t.EtcdTimeout, &t.PodTermination, &t.PodStart, &t.Drain, &t.EvictionRetry, &t.NodeMonitorGrace,
		&t.StaticPod, &t.BackOff,
	}
}

// Sleep waits for d on the clock, or until the context ends, whose error it then returns.
func Sleep(ctx context.Context, clk clock.Clock, d time.Duration) error {
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
