// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"reflect"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/secrets"
	"ichor.maesh.dev/hub/test/sim/timing"
)

const kubelet = component.Kubelet

// kubeletRun is the kubelet of a machine: what the config asks for, and what runs.
type kubeletRun struct {
	want    component.Part
	spec    any
	roots   *secrets.Roots // What its certificates were made from when it started; nil before it has.
	running component.Part
	told    string
	failing bool
	cancel  context.CancelFunc // Ends the attempt to start it, if there is one.
}

// RestartKubelet stops the kubelet and starts it again. Pods run on, and the node stays Ready: Kubernetes grants more silence
// than that. A kubelet that does not run yet starts anyway.
func (m *Machine) RestartKubelet() {
	m.mu.Lock()
	if m.kubelet.failing || m.state.KubeletReady && !m.state.KubeletRestarting {
		m.bounceKubelet()
	}
	m.mu.Unlock()
	m.notify()
}

// fitKubelet lets Talos restart the kubelet when the config asks for another one. The caller holds the lock.
func (m *Machine) fitKubelet() {
	spec, roots := m.set.Spec(kubelet), m.secrets.from
	same := m.kubelet.roots == nil || m.kubelet.roots.SameKubelet(roots)
	if same && reflect.DeepEqual(spec, m.kubelet.spec) {
		return
	}
	m.kubelet.spec, m.kubelet.roots = spec, roots
	m.kubelet.want, _ = m.set.Part(kubelet)
	if m.state.KubeletReady || m.state.KubeletRestarting {
		m.bounceKubelet()
	}
}

// bounceKubelet is called with the lock held.
func (m *Machine) bounceKubelet() {
	m.kubelet.end()
	if !m.state.KubeletRestarting {
		m.state.KubeletRestarting, m.state.Ready = true, false
		m.starts.KubeletStop = m.env.Clock.Now()
		m.events.service(kubelet, machineapi.ServiceStateEvent_STOPPING, "Sending SIGTERM to task kubelet")
		m.events.status(m.state)
	}
	m.record("restart", kubelet)
	ctx, cancel := context.WithCancel(m.life)
	m.kubelet.cancel = cancel
	go m.startAgain(ctx, m.kubelet.want)
}

func (k *kubeletRun) end() {
	if k.cancel != nil {
		k.cancel()
	}
	k.cancel, k.failing = nil, false
}

// startAgain starts the kubelet, again and again if need be. When that takes long, the node is no longer Ready.
func (m *Machine) startAgain(ctx context.Context, want component.Part) {
	m.notify() // Whoever watches sees it go before it comes back, on a busy machine too.
	since := m.env.Clock.Now()
	for {
		err := m.launch(ctx, want, KubeletStore, m.env.Timings.Kubelet)
		if err == nil {
			err = m.enroll()
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			m.kubeletRestarted(ctx, want)
			return
		}
		m.kubeletFailed(ctx, want, err, since)
		if timing.Sleep(ctx, m.env.Clock, m.env.Timings.BackOff) != nil {
			return
		}
	}
}

func (m *Machine) kubeletRestarted(ctx context.Context, want component.Part) {
	m.mu.Lock()
	if ctx.Err() != nil {
		m.mu.Unlock()
		return
	}
	m.kubelet.end()
	m.kubeletRuns(want)
	m.state.KubeletRestarting, m.state.KubeletReady = false, true
	m.state.Ready = m.state.Stage == runtime.MachineStageRunning
	m.events.service(kubelet, machineapi.ServiceStateEvent_RUNNING, "Health check successful")
	m.events.status(m.state)
	m.runPods(m.env.Timings.StaticPod)
	m.mu.Unlock()
	m.notify()
}

// kubeletRuns notes the kubelet that has come up; the caller holds the lock.
func (m *Machine) kubeletRuns(part component.Part) {
	m.kubelet.running, m.kubelet.roots, m.starts.Kubelet = part, m.secrets.from, m.env.Clock.Now()
	m.tell(&m.kubelet.told, part)
}

func (m *Machine) kubeletFailed(ctx context.Context, want component.Part, err error, since time.Time) {
	m.mu.Lock()
	if ctx.Err() != nil {
		m.mu.Unlock()
		return
	}
	var f failure
	if !m.kubelet.failing && errors.As(err, &f) {
		m.events.service(kubelet, machineapi.ServiceStateEvent_FAILED, err.Error())
		m.record("component-failed", partName(want)+" "+f.reason+": "+f.Error())
	}
	m.kubelet.failing = true
	silent := m.state.KubeletReady && m.env.Clock.Since(since) >= m.env.Timings.NodeMonitorGrace
	if silent {
		m.state.KubeletReady = false
	}
	m.mu.Unlock()
	m.notify()
}

// firstKubelet starts the kubelet of a boot.
func (m *Machine) firstKubelet(s *sequence) (component.Part, error) {
	m.mu.Lock()
	want := m.kubelet.want
	m.mu.Unlock()
	failed := false
	for {
		err := m.launch(s.ctx, want, KubeletStore, m.env.Timings.Kubelet)
		if err == nil {
			err = m.enroll()
		}
		var f failure
		if err == nil || !errors.As(err, &f) || s.ctx.Err() != nil {
			return want, err
		}
		if !failed {
			m.Events().service(kubelet, machineapi.ServiceStateEvent_FAILED, err.Error())
			m.record("component-failed", partName(want)+" "+f.reason+": "+f.Error())
		}
		failed = true
		if err := timing.Sleep(s.ctx, m.env.Clock, m.env.Timings.BackOff); err != nil {
			return want, err
		}
		m.mu.Lock()
		want = m.kubelet.want // A config that was applied meanwhile may be the cure.
		m.mu.Unlock()
	}
}

// restoreKubelet is called with the lock held.
func (m *Machine) restoreKubelet(saved SavedPart) {
	m.kubelet.spec = m.set.Spec(kubelet)
	m.kubelet.want, _ = m.set.Part(kubelet)
	m.kubelet.running, m.kubelet.roots = m.kubelet.want, m.secrets.from
	if saved.Image != "" && saved.Image != m.kubelet.want.Image {
		m.kubelet.running = component.Part{Name: kubelet, Image: saved.Image}.Resolved()
	} else {
		m.keep(m.kubelet.want)
	}
	m.kubelet.told = m.kubelet.running.Version
	if m.kubelet.running.Image != m.kubelet.want.Image {
		m.bounceKubelet()
	}
}
