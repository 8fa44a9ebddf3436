// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"ichor.maesh.dev/hub/test/sim/control"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
	"ichor.maesh.dev/hub/test/sim/secrets"
	"ichor.maesh.dev/hub/test/sim/talosapi"
)

// Simulator is a running simulation.
type Simulator struct {
	options Options
	network *network
	journal *journal.Journal
	faults  *fault.Registry
	types   *talosapi.Registry
	control *control.Server

	mu       sync.Mutex
	clusters []*Cluster // In the order of their numbers; nil where a cluster was removed.
	stop     sync.Once
}

// Start starts the simulation. When it returns, every node is running and ready.
func Start(ctx context.Context, o Options) (*Simulator, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("the simulator needs Linux: elsewhere 127/8 has only one usable address")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if needsProcesses(o.Clusters) {
		if o.KubeAPIServer, err = findKubeAPIServer(o.KubeAPIServer); err != nil {
			return nil, err
		}
	}
	s := &Simulator{options: o, faults: &fault.Registry{}}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Simulator) start(ctx context.Context) error {
	var err error
	if s.network, err = claimNetwork(s.options.Dir, s.options.Network); err != nil {
		return err
	}
	if err := s.network.remember(s.options.Dir); err != nil {
		return fmt.Errorf("remember the network: %w", err)
	}
	if s.journal, err = journal.Open(filepath.Join(s.options.Dir, "journal.jsonl"), s.options.Clock); err != nil {
		return err
	}
	if s.types, err = talosapi.NewRegistry(); err != nil {
		return fmt.Errorf("resource types: %w", err)
	}
	if err := s.startClusters(ctx); err != nil {
		return err
	}
	s.faults.OnChange(s.sync)
	s.control, err = control.Serve(s.options.Dir, s)
	return err
}

// startClusters starts a few clusters at a time: making certificates is what takes the time, and it takes a processor.
func (s *Simulator) startClusters(ctx context.Context) error {
	clusters := make([]*Cluster, len(s.options.Clusters))
	s.clusters = clusters
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, spec := range s.options.Clusters {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			c, err := startCluster(s, spec, i+1)
			if err != nil {
				return fmt.Errorf("cluster %s: %w", spec.Name, err)
			}
			clusters[i] = c
			s.options.Logger.V(1).Info("Cluster is ready", "cluster", spec.Name, "endpoint", c.Endpoint())
			return nil
		})
	}
	return group.Wait()
}

// Add starts one more cluster.
func (s *Simulator) Add(spec ClusterSpec) (*Cluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return nil, err
	}
	if s.find(spec.Name) != nil {
		return nil, fmt.Errorf("cluster name %s is used twice", spec.Name)
	}
	if spec.Deep {
		var err error
		if s.options.KubeAPIServer, err = findKubeAPIServer(s.options.KubeAPIServer); err != nil {
			return nil, err
		}
	}
	i := slices.Index(s.clusters, nil)
	if i < 0 {
		i = len(s.clusters)
		s.clusters = append(s.clusters, nil)
	}
	if i >= maxClusters {
		return nil, fmt.Errorf("one cluster more is too many: the address plan has room for %d", maxClusters)
	}
	c, err := startCluster(s, spec, i+1)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", spec.Name, err)
	}
	s.clusters[i] = c
	return c, nil
}

// Remove stops a cluster for good. Its journal stays.
func (s *Simulator) Remove(name string) error {
	s.mu.Lock()
	c := s.find(name)
	if c == nil {
		s.mu.Unlock()
		return fmt.Errorf("no cluster is named %q", name)
	}
	s.clusters[slices.Index(s.clusters, c)] = nil
	s.mu.Unlock()
	return c.stop()
}

// Stop ends the simulation and keeps the nodes' systems for the next start with the same directory.
func (s *Simulator) Stop() { s.stop.Do(s.shutDown) }

func (s *Simulator) shutDown() {
	if s.control != nil {
		s.control.Close()
	}
	for _, c := range s.Clusters() {
		if err := c.stop(); err != nil {
			s.options.Logger.Error(err, "Cluster did not stop cleanly", "cluster", c.spec.Name)
		}
	}
	if s.journal != nil {
		_ = s.journal.Close()
	}
	if s.network != nil {
		s.network.release()
	}
}

// sync carries standing faults to the cluster that they concern, or to all.
func (s *Simulator) sync(cluster string) {
	for _, c := range s.Clusters() {
		if cluster != "" && cluster != c.spec.Name {
			continue
		}
		for _, m := range c.machines() {
			m.Certify()
		}
		c.refresh()
		c.talos.Sync()
		c.front.sync()
		c.front.certificatesChanged()
	}
}

// Cluster returns a cluster, or nil when there is none of that name.
func (s *Simulator) Cluster(name string) *Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(name)
}

// find is Cluster for whoever holds the lock.
func (s *Simulator) find(name string) *Cluster {
	for _, c := range s.clusters {
		if c != nil && c.spec.Name == name {
			return c
		}
	}
	return nil
}

// Clusters returns all clusters, those of the options first and in their order.
func (s *Simulator) Clusters() []*Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.clusters), func(c *Cluster) bool { return c == nil })
}

// Journal returns the journal.
func (s *Simulator) Journal() *journal.Journal { return s.journal }

// Inject puts a fault in force and returns its ID. A name of a cluster or node that does not exist is an error.
func (s *Simulator) Inject(f fault.Fault) (string, error) {
	if err := s.known(f.Cluster, f.Node); err != nil {
		return "", err
	}
	return s.faults.Add(f)
}

func (s *Simulator) known(cluster, node string) error {
	if cluster != "" && s.Cluster(cluster) == nil {
		return fmt.Errorf("no cluster is named %q", cluster)
	}
	if node == "" || node == fault.Endpoint {
		return nil
	}
	_, err := s.node(cluster, node)
	return err
}

func (s *Simulator) node(cluster, node string) (*Node, error) {
	for _, c := range s.Clusters() {
		if cluster != "" && cluster != c.spec.Name {
			continue
		}
		if n := c.Node(node); n != nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node is named %q", node)
}

// Clear ends a fault, or all when id is empty; it reports whether there was one.
func (s *Simulator) Clear(id string) bool { return s.faults.Clear(id) }

// Faults lists the faults in force.
func (s *Simulator) Faults() []fault.Active { return s.faults.List() }

// Power switches a node on or off.
func (s *Simulator) Power(cluster, node string, on bool) error {
	n, err := s.node(cluster, node)
	if err != nil {
		return err
	}
	if on {
		n.PowerOn()
	} else {
		n.PowerOff()
	}
	return nil
}

// Secrets says with which key each Secret of a cluster was encrypted when it was last written, by namespace/name.
func (s *Simulator) Secrets(cluster string) (map[string]secrets.EncryptionKey, error) {
	c := s.Cluster(cluster)
	if c == nil {
		return nil, fmt.Errorf("no cluster is named %q", cluster)
	}
	return c.Secrets(), nil
}

// NodeStates describes every node, for the control API.
func (s *Simulator) NodeStates() []control.Node {
	var list []control.Node
	for _, c := range s.Clusters() {
		leader := c.etcd.Leader()
		for _, n := range c.nodes {
			list = append(list, n.describe(leader == n.Name()))
		}
	}
	return list
}
