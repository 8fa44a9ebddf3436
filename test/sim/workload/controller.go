// SPDX-License-Identifier: Apache-2.0

// Package workload plays what acts on its own inside a simulated Kubernetes cluster: kubelets, scheduler, and the controllers of
// nodes, replica sets and daemon sets. It is level-triggered: Sync brings the objects in line with the machines.
package workload

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Options say what runs in the cluster.
type Options struct {
	// Store holds the objects, and Kubelet is how the kubelet of a node writes there; nil is like everybody else.
	Store   Store
	Kubelet func(node string) Store
	// Alive says whether a node's kubelet has reached the Kubernetes API lately; nil is always.
	Alive func(node string) bool
	// Machines are the cluster's.
	Machines []*machine.Machine
	// Clock and Timings pace it.
	Clock   clock.WithDelayedExecution
	Timings timing.Timings
	// KubernetesVersion is the kubelets'; Talos upgrades leave it alone.
	KubernetesVersion string
	// Replicas is the size of the example deployment.
	Replicas int
	// Healthy says whether the Kubernetes API works; nothing is written while it does not.
	Healthy func() bool
	// Cluster is the cluster's name, Faults are asked for what goes wrong there, and Journal hears of what somebody else does.
	Cluster string
	Faults  *fault.Registry
	Journal *journal.Journal
}

// Controller is the cluster's inner life.
type Controller struct {
	Options

	mu      sync.Mutex
	stopped bool
	timers  map[timerKey]clock.Timer
	boots   map[string]string // Node name to the boot ID that its pods have last started in.
	stamps  map[string]stamp  // What the control planes have made their manifests from.
	hashes  map[types.UID]hashed
	owners  map[types.UID]bool // The sets and deployments that there were.
	proxies map[string]string  // The versions of kube-proxy that the journal knows, by node.
	foreign map[string]string  // Nodes that somebody else was ordered to cordon, with the annotation that was left.
}

// timerKey names something that will happen to a pod or node.
type timerKey struct {
	what string
	uid  types.UID
}

// New makes the controller and the cluster's objects.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, timers: map[timerKey]clock.Timer{}, boots: map[string]string{}, foreign: map[string]string{},
		stamps: map[string]stamp{}, hashes: map[types.UID]hashed{}, owners: map[types.UID]bool{}, proxies: map[string]string{},
	}
	c.createBase()
	return c
}

// Sync does whatever is to be done now.
func (c *Controller) Sync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || !c.Healthy() {
		return
	}
	c.syncAccounts()
	for _, m := range c.Machines {
		c.syncNode(m)
	}
	c.syncAbandoned()
	c.syncStrangers()
	c.syncManifests()
	c.syncStaticPods()
	c.syncDaemons()
	c.syncDeployments()
	c.syncReplicas()
	c.collectGarbage()
	c.schedule()
	c.syncPods()
	c.syncStorage()
	c.countDaemons()
	c.countReplicas()
	c.syncBudgets()
}

// Begin does the first Sync, and starts the pods at once: a simulation begins in the middle of a cluster's life.
func (c *Controller) Begin() {
	c.Sync()
	c.startAll()
	c.Sync()
}

func (c *Controller) startAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.knowProxies()
	for _, pod := range c.pods() {
		if pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" && !isMirror(pod) {
			c.cancel("start", pod.UID)
			c.started(pod)
		}
	}
}

// Stop ends it.
func (c *Controller) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for _, t := range c.timers {
		t.Stop()
	}
}

// after lets something happen once, unless it is already going to. The caller holds the lock; fn runs with it.
func (c *Controller) after(what string, uid types.UID, d time.Duration, fn func()) {
	key := timerKey{what: what, uid: uid}
	if _, ok := c.timers[key]; ok {
		return
	}
	c.timers[key] = c.Clock.AfterFunc(d, func() {
		if c.fire(key, fn) {
			c.Sync()
		}
	})
}

func (c *Controller) fire(key timerKey, fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.timers, key)
	if c.stopped || !c.Healthy() {
		return false // Sync finds what is left to do when the API is back.
	}
	fn()
	return true
}

func (c *Controller) cancel(what string, uid types.UID) {
	key := timerKey{what: what, uid: uid}
	if t, ok := c.timers[key]; ok {
		t.Stop()
		delete(c.timers, key)
	}
}

func (c *Controller) machine(name string) *machine.Machine {
	for _, m := range c.Machines {
		if nodeName(m) == name {
			return m
		}
	}
	return nil
}

// nodeName is the name under which a machine's kubelet registers.
func nodeName(m *machine.Machine) string {
	_, name := m.Told()
	return name
}

// kubeletReady says whether the node's kubelet does its work.
func (c *Controller) kubeletReady(node string) bool {
	m := c.machine(node)
	return m != nil && m.State().KubeletReady && c.alive(node)
}

func (c *Controller) alive(node string) bool { return c.Alive == nil || c.Alive(node) }

// admitted says whether a machine's kubelet and an API server accept each other: real ones have tried.
func (c *Controller) admitted(m *machine.Machine, node string) bool {
	if c.Alive != nil {
		return c.Alive(node)
	}
	return m.Admitted()
}

func (c *Controller) now() metav1.Time { return metav1.NewTime(c.Clock.Now().Truncate(time.Second)) }

func (c *Controller) pods() []*corev1.Pod {
	list, _ := c.Store.List(kubeapi.Pods, "")
	pods := make([]*corev1.Pod, 0, len(list))
	for _, obj := range list {
		pods = append(pods, obj.(*corev1.Pod)) //nolint:forcetypeassert // The store holds pods under Pods.
	}
	return pods
}

// changePod writes a pod; one that is gone needs no change.
func (c *Controller) changePod(pod *corev1.Pod, change func(*corev1.Pod)) {
	changePodIn(c.Store, pod, change)
}

// reportPod is changePod by the kubelet of the pod's node.
func (c *Controller) reportPod(pod *corev1.Pod, change func(*corev1.Pod)) {
	changePodIn(c.asKubelet(pod.Spec.NodeName), pod, change)
}

func changePodIn(store Store, pod *corev1.Pod, change func(*corev1.Pod)) {
	_, _ = store.Update(kubeapi.Pods, pod.Namespace, pod.Name, false, func(o kubeapi.Object) (kubeapi.Object, error) {
		change(o.(*corev1.Pod)) //nolint:forcetypeassert // The store holds pods under Pods.
		return o, nil
	})
}
