// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/role"
	corev1 "k8s.io/api/core/v1"

	"ichor.maesh.dev/hub/test/sim/etcd"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/kubeapi"
	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/pki"
	"ichor.maesh.dev/hub/test/sim/talosapi"
	"ichor.maesh.dev/hub/test/sim/workload"
)

// Cluster is one simulated cluster.
type Cluster struct {
	sim   *Simulator
	spec  ClusterSpec
	index int
	dir   string
	nodes []*Node

	// Set by startCluster, in this order.
	pki         *pki.PKI
	kubeconfig  []byte
	talosconfig []byte
	etcd        machine.Etcd
	deep        *deepCluster   // Nil in the shallow simulation.
	memory      *kubeapi.Store // Nil in the deep one.
	store       workload.Store
	workload    *workload.Controller
	talos       *talosapi.Cluster
	front       *front
	serving     serving

	mu         sync.Mutex
	lastLeader string // The leader that the journal was told last.
}

func startCluster(s *Simulator, spec ClusterSpec, index int) (*Cluster, error) {
	c := &Cluster{sim: s, spec: spec, index: index, dir: filepath.Join(s.options.Dir, spec.Name)}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	steps := []func() error{
		c.loadCredentials,
		c.makeMachines,
		c.runProcesses,
		c.makeKubernetes,
		c.makeTalos,
		c.serve,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

func (c *Cluster) loadCredentials() error {
	var err error
	if c.pki, err = pki.Load(c.dir, c.spec.TalosVersion); err != nil {
		return err
	}
	if c.kubeconfig, err = c.pki.Kubeconfig(c.spec.Name, c.Endpoint()); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if c.talosconfig, err = c.TalosconfigFor(string(role.Admin)); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(c.dir, "kubeconfig"), c.kubeconfig, 0o600),
		os.WriteFile(filepath.Join(c.dir, "talosconfig"), c.talosconfig, 0o600),
	)
}

func (c *Cluster) makeMachines() error {
	o := c.sim.options
	kept, err := loadMachines(c.dir)
	if err != nil {
		return err
	}
	configs, err := machineConfigs(c)
	if err != nil {
		return fmt.Errorf("machine configs: %w", err)
	}
	env := machine.Environment{
		Clock: o.Clock, Timings: *o.Timings, Faults: c.sim.faults, Journal: c.sim.journal,
		Configs: configs, Kubernetes: c.drainer(), ControlPlanes: c.controlPlanes, Shared: []string{c.endpointIP()},
	}
	if c.spec.Deep {
		c.deep = newDeepCluster(c)
		c.etcd, env.Processes = c.deep, c.deep
	} else {
		model := etcd.New(c.spec.Name, o.Clock, *o.Timings, c.etcdChanged)
		model.Obey(c.sim.faults)
		model.Tell(func(name, event, message string) { c.sim.journal.Event(c.spec.Name, name, event, message) })
		c.etcd = model
	}
	env.Etcd = c.etcd
	for place, id := range c.identities() {
		m, err := c.makeMachine(id, machine.Slot{Version: c.spec.talos(place), Schematic: c.spec.Schematic}, place >= c.spec.ControlPlanes+c.spec.Workers, env, kept)
		if err != nil {
			return fmt.Errorf("node %s: %w", id.Name, err)
		}
		c.nodes = append(c.nodes, &Node{machine: m, cluster: c})
	}
	c.lastLeader = c.etcd.Leader()
	return nil
}

func (c *Cluster) makeMachine(
	id machine.Identity, system machine.Slot, blank bool, env machine.Environment, kept map[string]machine.Snapshot,
) (*machine.Machine, error) {
	if snapshot, ok := kept[id.Name]; ok {
		return machine.Restore(id, env, snapshot)
	}
	if blank {
		return machine.NewBlank(id, env, system)
	}
	return machine.New(id, env, system)
}

// identities are those of the cluster's machines, control planes first, and then of those that are blank.
func (c *Cluster) identities() []machine.Identity {
	ids := make([]machine.Identity, 0, c.spec.ControlPlanes+c.spec.Workers+c.spec.BlankControlPlanes+c.spec.BlankWorkers)
	for i := range c.spec.ControlPlanes {
		ids = append(ids, c.identity("cp", i, firstControlPlane, true))
	}
	for i := range c.spec.Workers {
		ids = append(ids, c.identity("worker", i, firstWorker, false))
	}
	for i := range c.spec.BlankControlPlanes {
		ids = append(ids, c.identity("cp", c.spec.ControlPlanes+i, firstControlPlane, true))
	}
	for i := range c.spec.BlankWorkers {
		ids = append(ids, c.identity("worker", c.spec.Workers+i, firstWorker, false))
	}
	return ids
}

// identity derives the hardware's IDs from the cluster's own, so that they survive a restart and differ between simulators.
func (c *Cluster) identity(kind string, i, octet int, controlPlane bool) machine.Identity {
	name := kind + "-" + strconv.Itoa(i+1)
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(c.pki.Bundle.Cluster.ID+"/"+name))
	node, hostname := c.names(name)
	return machine.Identity{
		Cluster: c.spec.Name, Name: node, Hostname: hostname,
		Address: c.sim.network.address(c.index, octet+i), SecondAddress: c.secondAddress(octet + i),
		ControlPlane: controlPlane, UUID: id.String(), MachineID: fmt.Sprintf("%x", id[:]),
		Platform: c.spec.Platform, SecureBoot: c.spec.SecureBoot,
		Extensions: c.spec.Extensions, UserVolumes: c.spec.UserVolumes, SystemVolumes: c.spec.SystemVolumes,
	}
}

// etcdChanged lets the cluster follow its etcd: elections go to the journal, and the Kubernetes side catches up.
// names are the names of a machine's Node and of the machine itself.
func (c *Cluster) names(short string) (node, hostname string) {
	switch c.spec.Hostnames {
	case ShortHostnames:
	case UpperHostnames:
		return short, strings.ToUpper(short)
	case FQDNHostnames:
		return short + ".example.org", short + ".Example.org"
	}
	return short, short
}

// secondAddress is an IPv6 address that nobody else has.
func (c *Cluster) secondAddress(node int) string {
	if !c.spec.DualStack {
		return ""
	}
	return fmt.Sprintf("fd00:%x:%x::%x", c.sim.network.octet, c.index, node)
}

func (c *Cluster) etcdChanged(leader string) {
	c.recordLeader(leader)
	c.workload.Sync()
}

func (c *Cluster) recordLeader(leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leader != "" && leader != c.lastLeader {
		c.sim.journal.Event(c.spec.Name, leader, "leader", "")
		c.lastLeader = leader
	}
}

// runProcesses starts what runs behind the APIs of a deep cluster.
func (c *Cluster) runProcesses() error {
	if c.deep == nil {
		return nil
	}
	return c.deep.run()
}

func (c *Cluster) makeKubernetes() error {
	if c.deep != nil {
		return c.deep.makeKubernetes()
	}
	model := c.etcd.(*etcd.Cluster) //nolint:forcetypeassert // It is one in the shallow simulation.
	objects, err := loadObjects(c.dir)
	if err != nil {
		return err
	}
	c.memory = kubeapi.NewStore(c.sim.options.Clock)
	c.memory.Load(objects)
	c.store = c.memory
	model.Hold(held{c.memory})
	if err := c.loadSealed(); err != nil {
		return err
	}
	o := c.workloadOptions()
	o.Healthy = c.etcd.Healthy
	c.workload = workload.New(o)
	c.workload.Begin()
	c.front = newFront(c, kubeapi.New(c.memory, kubeapi.Options{
		Cluster: c.spec.Name, Version: c.servedVersion, Server: c.apiServer,
		Spoiled: func(server *kubeapi.Server, problem string) (tls.Certificate, error) {
			return pki.Spoiled(problem, server.Certificate.Leaf, server.Issuer)
		},
		Faults: c.sim.faults, Site: c.site,
		Journal: c.sim.journal, Serving: model.Serve, Healthy: c.etcd.Healthy,
		DeletePod: c.workload.DeletePod, Changed: c.workload.Sync,
	}))
	return nil
}

// workloadOptions are those that both depths share.
func (c *Cluster) workloadOptions() workload.Options {
	return workload.Options{
		Store: c.store, Machines: c.machines(), Clock: c.sim.options.Clock, Timings: *c.sim.options.Timings,
		KubernetesVersion: c.spec.KubernetesVersion, Replicas: c.spec.replicas(),
		Cluster: c.spec.Name, Faults: c.sim.faults, Journal: c.sim.journal,
	}
}

// site is the node, or the load balancer, that has an address.
func (c *Cluster) site(local net.Addr) fault.Site {
	host, _, _ := net.SplitHostPort(local.String())
	for _, n := range c.nodes {
		if n.Address() == host {
			return n.machine.Site()
		}
	}
	return fault.Site{Cluster: c.spec.Name, Node: fault.Endpoint}
}

// servedVersion is the version of the API server at an address, or behind the load balancer. While none is there it is the oldest.
func (c *Cluster) servedVersion(local net.Addr, backend string) string {
	return c.controlPlaneAt(local, backend).ServedVersion()
}

func (c *Cluster) makeTalos() error {
	var err error
	c.talos, err = talosapi.New(talosapi.Options{
		Name: c.spec.Name, Journal: c.sim.journal, Faults: c.sim.faults, Registry: c.sim.types,
		Clock: c.sim.options.Clock, Timings: *c.sim.options.Timings, Endpoint: c.endpointIP(),
	}, c.machines())
	return err
}

// serve opens the ports. The Kubernetes side observes the machines first, so that a node that is seen ready on its Talos
// API has told Kubernetes so.
func (c *Cluster) serve() error {
	changed := c.workload.Sync
	if c.deep != nil {
		changed = c.deep.store.Poke // No machine is to wait for an API server.
	}
	for _, n := range c.nodes {
		if c.deep != nil && n.ControlPlane() {
			n.machine.Observe(func() { c.deep.follow(n.Name()) })
		}
		n.machine.Observe(changed)
		n.machine.Observe(c.front.sync)
		n.machine.Observe(c.certify)
	}
	return errors.Join(c.front.serve(), c.talos.Serve())
}

func (c *Cluster) stop() error {
	var errs []error
	if c.workload != nil {
		c.workload.Stop()
	}
	for _, n := range c.nodes {
		n.machine.Stop()
	}
	if c.talos != nil {
		errs = append(errs, c.talos.Close())
	}
	if c.front != nil {
		errs = append(errs, c.front.close())
	}
	if c.deep != nil {
		errs = append(errs, c.deep.Stop())
	}
	return errors.Join(append(errs, c.save())...)
}

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.spec.Name }

// Spec is the specification with its defaults filled in.
func (c *Cluster) Spec() ClusterSpec { return c.spec }

// Kubeconfig is an administrator's kubeconfig; it names the cluster's endpoint.
func (c *Cluster) Kubeconfig() []byte { return c.kubeconfig }

// Talosconfig is an administrator's talosconfig: one context named like the cluster, with the control planes as endpoints.
func (c *Cluster) Talosconfig() []byte { return c.talosconfig }

// TalosconfigFor makes a talosconfig for a client with other roles, such as "os:reader".
func (c *Cluster) TalosconfigFor(roles ...string) ([]byte, error) {
	set, unknown := role.Parse(roles)
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown roles %q", unknown)
	}
	return c.TalosconfigWith(set, c.controlPlaneAddresses(), Validity)
}

// Validity is how long credentials are valid unless a test wants others.
const Validity = pki.Validity

// TalosconfigWith makes a talosconfig with the given roles and endpoints, whose certificate ends after ttl.
func (c *Cluster) TalosconfigWith(roles role.Set, endpoints []string, ttl time.Duration) ([]byte, error) {
	config, err := c.pki.TalosconfigFor(c.spec.Name, endpoints, roles, ttl)
	if err != nil {
		return nil, fmt.Errorf("talosconfig: %w", err)
	}
	return config, nil
}

func (c *Cluster) controlPlaneAddresses() []string {
	endpoints := make([]string, 0, c.spec.ControlPlanes)
	for i := range c.spec.ControlPlanes {
		endpoints = append(endpoints, c.sim.network.address(c.index, firstControlPlane+i))
	}
	return endpoints
}

// Endpoint is the URL of the Kubernetes API behind the cluster's load balancer.
func (c *Cluster) Endpoint() string {
	return "https://" + net.JoinHostPort(c.endpointIP(), kubernetesPort)
}

// EndpointHost is the address of the load balancer in front of the control planes. It serves both APIs and is no node's.
func (c *Cluster) EndpointHost() string { return c.endpointIP() }

func (c *Cluster) endpointIP() string { return c.sim.network.address(c.index, endpointOctet) }

// Nodes returns the nodes, control planes first.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns a node, or nil when there is none of that name.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.nodes {
		if n.Name() == name {
			return n
		}
	}
	return nil
}

// Leader returns the node of the etcd leader, or nil while there is none.
func (c *Cluster) Leader() *Node { return c.Node(c.etcd.Leader()) }

func (c *Cluster) machines() []*machine.Machine {
	list := make([]*machine.Machine, 0, len(c.nodes))
	for _, n := range c.nodes {
		list = append(list, n.machine)
	}
	return list
}

// MinimumUpgrade is the least time that a rolling Talos upgrade of this cluster can take: one pull, which all machines do at
// once, then for each control plane in turn, and for the workers maxUnavailable at a time, the installation, the end of the
// pods and the reboot. It counts the machines' own time and nothing else.
func (c *Cluster) MinimumUpgrade(maxUnavailable int) time.Duration {
	t := c.sim.options.Timings
	drain := time.Duration(0)
	if c.spec.PodsPerWorker > 0 {
		drain = t.PodTermination
	}
	controlPlane, worker := t.Install+t.Reboot(true), t.Install+drain+t.Reboot(false)
	if c.spec.Workers == 0 {
		controlPlane += drain
	}
	batch := max(maxUnavailable, 1)
	batches := (c.spec.Workers + batch - 1) / batch
	return t.Pull + time.Duration(c.spec.ControlPlanes)*controlPlane + time.Duration(batches)*worker
}

// KubernetesNodes are the Nodes as etcd has them, whether or not the API can be reached.
func (c *Cluster) KubernetesNodes() []*corev1.Node {
	objects, _ := c.store.List(kubeapi.Nodes, "")
	nodes := make([]*corev1.Node, 0, len(objects))
	for _, obj := range objects {
		nodes = append(nodes, obj.(*corev1.Node)) //nolint:forcetypeassert // The store holds nodes under Nodes.
	}
	return nodes
}

// Processes are the process IDs of what really runs on a machine of a deep cluster, by the names of the programs.
func (c *Cluster) Processes(node string) map[string]int {
	if c.deep == nil {
		return nil
	}
	return c.deep.Processes(node)
}
