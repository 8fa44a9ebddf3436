// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/secrets"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Pod is a static pod as the kubelet runs it.
type Pod struct {
	component.Part
	// ConfigVersion is the version of the resource that it was made from, and SecretsVersion that of the secrets.
	ConfigVersion, SecretsVersion int
	// StartedAt is when its container was started last.
	StartedAt time.Time
	// Instance tells the pod from the one that it replaced.
	Instance int
	// Ready says that it does its work; Reason is why it does not.
	Ready  bool
	Reason string
	// Restarts counts how often it was started again.
	Restarts int

	loaded *secrets.Files // The files as they were when it was started; nil while nobody has asked for them.
}

// Components are the parts of Kubernetes on a machine.
type Components struct {
	// Set is what the config in force asks for, and Versions are those of the resources with it, by the name of the part.
	Set      *component.Set
	Versions map[string]int
	// Pods are the static pods that the kubelet has made of it.
	Pods []Pod
	// Kubelet is the kubelet that runs, or ran last.
	Kubelet component.Part
}

// staticPod is one static pod of a control plane: what Talos asks for, and what the kubelet has made of it.
type staticPod struct {
	name    string
	spec    any // What the config says; nil for nothing.
	version int
	pod     *Pod
	made    int    // How many pods there were.
	told    string // The version that the journal knows.
	cancel  context.CancelFunc
}

// Why a container does not run, in Kubernetes' words.
const (
	reasonCreating = "ContainerCreating"
	reasonPull     = "ErrImagePull"
	reasonCrash    = "CrashLoopBackOff"
)

// failure is why a part did not start.
type failure struct {
	reason string
	err    error
}

// Error implements error.
func (f failure) Error() string { return f.err.Error() }

// Components returns the parts of Kubernetes.
func (m *Machine) Components() Components {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := Components{Set: m.set, Versions: map[string]int{}, Kubelet: m.kubelet.running}
	for _, p := range m.staticPods {
		c.Versions[p.name] = p.version
		if p.pod != nil {
			c.Pods = append(c.Pods, *p.pod)
		}
	}
	return c
}

// Serves says whether the machine's API server answers.
func (m *Machine) Serves() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ControlPlane || !m.state.APIUp || !m.state.EtcdUp {
		return false
	}
	server := m.staticPods[0]
	return server.pod == nil || server.pod.Ready
}

// ServedVersion is the version of the machine's API server; empty on workers.
func (m *Machine) ServedVersion() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ControlPlane {
		return ""
	}
	return m.staticPods[0].told
}

// fit brings the parts in line with the config in force.
func (m *Machine) fit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set = m.env.Configs.set(m.Identity, m.config.active)
	for _, p := range m.staticPods {
		if spec := m.set.Spec(p.name); !reflect.DeepEqual(spec, p.spec) {
			p.spec, p.version = spec, p.version+1
		}
	}
	m.runPods(m.env.Timings.StaticPod)
	m.fitKubelet()
}

// runPods lets the kubelet replace the pods whose specs have changed, if it runs. Talos shows it pods only beside an etcd member that
// runs. The caller holds the lock.
func (m *Machine) runPods(takes time.Duration) {
	if !m.state.KubeletReady || m.state.KubeletRestarting || !m.state.EtcdUp {
		return
	}
	for _, p := range m.staticPods {
		part, wanted := m.set.Part(p.name)
		switch {
		case !wanted:
			p.end()
			p.pod = nil
		case p.pod == nil || p.pod.ConfigVersion != p.version || p.pod.SecretsVersion != m.secrets.version:
			m.replacePod(p, part, takes)
		}
	}
}

func (p *staticPod) end() {
	if p.cancel != nil {
		p.cancel()
	}
	p.cancel = nil
}

// replacePod ends a pod and begins the next. With nothing to wait for it is there at once.
func (m *Machine) replacePod(p *staticPod, part component.Part, takes time.Duration) {
	p.end()
	p.made++
	pod := &Pod{Part: part, ConfigVersion: p.version, SecretsVersion: m.secrets.version, Instance: p.made, Reason: reasonCreating}
	p.pod = pod
	m.load(pod)
	if takes == 0 && m.env.Processes == nil && m.has(PodStore, part.Image) && m.crashes(part) == nil {
		m.podReady(p)
		return
	}
	ctx, cancel := context.WithCancel(m.life)
	p.cancel = cancel
	go m.runPod(ctx, p, pod, takes)
}

// runPod starts a pod, again and again if need be.
func (m *Machine) runPod(ctx context.Context, p *staticPod, pod *Pod, takes time.Duration) {
	for {
		err := m.launch(ctx, pod.Part, PodStore, takes)
		if !m.podStarted(ctx, p, pod, err) || err == nil || timing.Sleep(ctx, m.env.Clock, m.env.Timings.BackOff) != nil {
			return
		}
		m.mu.Lock()
		m.load(pod)
		m.mu.Unlock()
	}
}

// load lets a container that is being started read its files. The caller holds the lock.
func (m *Machine) load(pod *Pod) { pod.loaded, pod.StartedAt = m.secrets.files, m.env.Clock.Now() }

// podStarted notes what became of a start; it says whether the pod is still the present one.
func (m *Machine) podStarted(ctx context.Context, p *staticPod, pod *Pod, err error) bool {
	m.mu.Lock()
	if ctx.Err() != nil || p.pod != pod {
		m.mu.Unlock()
		return false
	}
	if err == nil {
		m.podReady(p)
	} else {
		m.podFailed(pod, err)
	}
	m.mu.Unlock()
	m.notify()
	return true
}

// podReady is called with the lock held.
func (m *Machine) podReady(p *staticPod) {
	p.pod.Ready, p.pod.Reason = true, ""
	m.tell(&p.told, p.pod.Part)
}

func (m *Machine) podFailed(pod *Pod, err error) {
	var f failure
	if !errors.As(err, &f) {
		return
	}
	if f.reason == reasonCrash {
		pod.Restarts++
	}
	if pod.Reason != f.reason {
		m.record("component-failed", partName(pod.Part)+" "+f.reason+": "+f.Error())
	}
	pod.Reason = f.reason
}

// tell lets the journal know when a part runs in another version than before.
func (m *Machine) tell(told *string, part component.Part) {
	if name := partName(part); *told != part.Version {
		*told = part.Version
		m.record("component", name)
	}
}

func partName(part component.Part) string {
	if part.Version == "" {
		return part.Name + " " + part.Image
	}
	return part.Name + " " + part.Version
}

// launch starts a part: its image has to be there, and it must not end at once.
func (m *Machine) launch(ctx context.Context, part component.Part, store Store, takes time.Duration) error {
	if part.Image != "" && !m.hasLocked(store, part.Image) { // A config may ask for none.
		if _, err := m.Pull(ctx, store, part.Image); err != nil {
			return failure{reason: reasonPull, err: err}
		}
	}
	if err := timing.Sleep(ctx, m.env.Clock, takes); err != nil {
		return err
	}
	if err := m.crashes(part); err != nil || store != PodStore || m.env.Processes == nil {
		return err
	}
	if err := m.env.Processes.Start(ctx, m.Name, part); err != nil {
		return failure{reason: reasonCrash, err: err}
	}
	return nil
}

// crashes says why a part does not stay up, as ordered or because of how it is started.
func (m *Machine) crashes(part component.Part) error {
	if trouble := part.Trouble(); trouble != "" {
		return failure{reason: reasonCrash, err: errors.New(trouble)}
	}
	f, ordered := m.env.Faults.FireIf(fault.ComponentCrash, m.Site(), func(f fault.Fault) bool {
		return fault.Matches(f.Params[fault.ParamComponent], part.Name) && fault.Matches(f.Params[fault.ParamVersion], part.Version)
	})
	if !ordered {
		return nil
	}
	return failure{reason: reasonCrash, err: errors.New(f.Params[fault.ParamMessage])}
}

func (m *Machine) hasLocked(store Store, ref string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has(store, ref)
}

// has says whether an image is on the machine: it was pulled, or it came with the installation, or it runs. The caller holds the lock.
func (m *Machine) has(store Store, ref string) bool {
	image, err := ResolveImage(ref)
	if err != nil {
		return false
	}
	if _, pulled := m.images[stored{store: store, name: image.Name}]; pulled {
		return true
	}
	return slices.ContainsFunc(m.installed(store), func(i Image) bool { return i.Name == image.Name })
}

func storeOf(part string) Store {
	if part == component.Kubelet {
		return KubeletStore
	}
	return PodStore
}

// set is what a config asks for. That of the installation is read once for all machines.
func (c Configs) set(id Identity, of config.Provider) *component.Set {
	switch {
	case id.ControlPlane && of == c.ControlPlane && c.controlPlaneSet != nil:
		return c.controlPlaneSet
	case !id.ControlPlane && of == c.Worker && c.workerSet != nil:
		return c.workerSet
	}
	return component.Of(of, id.ControlPlane)
}

// Share reads what the configs ask for once for all machines.
func (c Configs) Share() Configs {
	c.controlPlaneSet, c.workerSet = component.Of(c.ControlPlane, true), component.Of(c.Worker, false)
	c.installation = installed(c)
	return c
}

// bootParts begins a boot: resources are made anew, and no pod runs yet. The caller holds the lock.
func (m *Machine) bootParts() {
	m.set = m.env.Configs.set(m.Identity, m.config.active)
	for _, p := range m.staticPods {
		p.end()
		p.spec, p.version, p.pod = m.set.Spec(p.name), 1, nil
	}
	m.kubelet.end()
	m.kubelet.spec = m.set.Spec(kubelet)
	m.kubelet.want, _ = m.set.Part(kubelet)
	m.kubelet.roots = nil
}

// SavedPart is what a simulator keeps of a part of Kubernetes over its own restart.
type SavedPart struct {
	// Image is what runs.
	Image string `json:"image"`
	// Version is that of the resource which it was made from.
	Version int `json:"version,omitempty"`
}

// anew are the parts of a machine that has booted since they were saved: the versions of resources begin at one again.
func anew(saved map[string]SavedPart) map[string]SavedPart {
	booted := make(map[string]SavedPart, len(saved))
	for name, part := range saved {
		booted[name] = SavedPart{Image: part.Image}
	}
	return booted
}

// saveParts is called with the lock held.
func (m *Machine) saveParts() map[string]SavedPart {
	saved := map[string]SavedPart{component.Kubelet: {Image: m.kubelet.running.Image}}
	for _, p := range m.staticPods {
		if p.pod != nil {
			saved[p.name] = SavedPart{Image: p.pod.Image, Version: p.version}
		}
	}
	return saved
}

// restoreParts makes the parts of a machine that runs. Those that did not run what the config asks for go on being replaced.
func (m *Machine) restoreParts(saved map[string]SavedPart) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.disk.wiped { // Nothing runs there.
		m.bootParts()
		return
	}
	m.set = m.env.Configs.set(m.Identity, m.config.active)
	for _, p := range m.staticPods {
		part, wanted := m.set.Part(p.name)
		was, kept := saved[p.name]
		p.spec, p.version = m.set.Spec(p.name), max(was.Version, 1)
		switch {
		case kept && was.Image != part.Image:
			p.told = component.Part{Image: was.Image}.Resolved().Version
			m.replacePod(p, part, m.env.Timings.StaticPod)
		case wanted:
			m.keep(part)
			p.made++
			p.pod = &Pod{
				Part: part, ConfigVersion: p.version, SecretsVersion: m.secrets.version, StartedAt: m.starts.System, Instance: p.made, Ready: true,
			}
			p.told = part.Version
		}
	}
	m.restoreKubelet(saved[component.Kubelet])
}

// keep notes that the image of a running part is there.
func (m *Machine) keep(part component.Part) {
	if image, err := ResolveImage(part.Image); err == nil && !m.has(storeOf(part.Name), part.Image) {
		m.images[stored{store: storeOf(part.Name), name: image.Name}] = image
	}
}
