// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"ichor.maesh.dev/hub/test/sim/machine"
	"ichor.maesh.dev/hub/test/sim/timing"
)

// Defaults of a ClusterSpec.
const (
	// DefaultTalosVersion has the lifecycle API and can be upgraded to 1.14.
	DefaultTalosVersion = "v1.13.6"
	// DefaultKubernetesVersion is supported by Talos 1.13 and 1.14.
	DefaultKubernetesVersion = "v1.35.2"
	// DeepKubernetesVersion is that of the API servers of deep clusters, whatever their machine configs say.
	DeepKubernetesVersion = "v1.36.3"
	// VanillaSchematic has no extensions and no kernel arguments.
	VanillaSchematic = machine.VanillaSchematic

	defaultPlatform      = "metal"
	defaultPodsPerWorker = 2
)

// Limits of the address plan 127.<network>.<cluster>.<node>.
const (
	maxClusters      = 254
	maxControlPlanes = 100
	maxWorkers       = 150
)

// Timings is the table of durations; see the package timing.
type Timings = timing.Timings

// DefaultTimings is the demo table.
func DefaultTimings() Timings { return timing.Default() }

// Options say what to simulate.
type Options struct {
	// Dir keeps the state: secrets bundles, credentials, the journal, and the systems that the nodes run.
	Dir string
	// Network is the second octet of all addresses; zero picks a free one.
	Network byte
	// Speed divides all durations; zero and one are demo speed.
	Speed float64
	// Timings replaces the demo table; Speed applies to it too.
	Timings *Timings
	// Clusters are the clusters, each with a name of its own.
	Clusters []ClusterSpec
	// Clock paces the machines; nil is the real one.
	Clock clock.WithDelayedExecution
	// KubeAPIServer is the binary that deep clusters run; without one it is that which ICHOR_KUBE_APISERVER_BINARY names, or the one
	// beside the simulator's own.
	KubeAPIServer string
	// Logger hears of starts and stops; its zero value discards.
	Logger logr.Logger
}

// ClusterSpec describes one cluster.
type ClusterSpec struct {
	// Name is the cluster's name; its nodes are cp-<n> and worker-<n>.
	Name string `json:"name"`
	// ControlPlanes and Workers are how many machines it has.
	ControlPlanes int `json:"controlPlanes"`
	Workers       int `json:"workers"`
	// BlankControlPlanes and BlankWorkers are machines beside those: in maintenance mode, with nothing on their disks and with no part in
	// the cluster until somebody gives them a machine config. They are named on from the others. What a simulated machine becomes is
	// settled beforehand: it refuses the config of the other role.
	BlankControlPlanes int `json:"blankControlPlanes,omitempty"`
	BlankWorkers       int `json:"blankWorkers,omitempty"`
	// TalosVersion is what the machines run at first, such as "v1.13.6".
	TalosVersion string `json:"talosVersion"`
	// Mixed are what the machines run at first instead, in turn and control planes before workers. Their configs have the form of
	// TalosVersion, which is the one that all were installed with.
	Mixed []string `json:"mixed,omitempty"`
	// KubernetesVersion is the kubelets' and API servers'.
	KubernetesVersion string `json:"kubernetesVersion"`
	// Schematic is the Image Factory schematic of the machines' first system.
	Schematic string `json:"schematic"`
	// Platform is Talos's platform name.
	Platform string `json:"platform"`
	// SecureBoot machines report that they booted a signed image.
	SecureBoot bool `json:"secureBoot,omitempty"`
	// PodsPerWorker sizes the example deployment; negative is none. Clusters without workers count their control planes.
	PodsPerWorker int `json:"podsPerWorker"`
	// Hostnames says how Talos names the machines: Short as the Nodes, Upper in upper case, FQDN with a domain.
	Hostnames HostnameStyle `json:"hostnames,omitempty"`
	// Extensions are services of system extensions that every machine has, without the prefix ext-.
	Extensions []string `json:"extensions,omitempty"`
	// UserVolumes are volumes of users that every machine has, each on a disk of its own.
	UserVolumes []string `json:"userVolumes,omitempty"`
	// SystemVolumes are volumes of the system that have partitions of their own on every machine, such as ETCD.
	SystemVolumes []string `json:"systemVolumes,omitempty"`
	// Deep control planes run a real etcd member and a real API server each. Faults of etcd, of certificates of the Kubernetes API and of
	// single requests to it are the shallow simulation's.
	Deep bool `json:"deep,omitempty"`
	// DualStack machines tell of an IPv6 address as well. Nothing listens there.
	DualStack bool `json:"dualStack,omitempty"`
}

// HostnameStyle says how Talos names the machines.
type HostnameStyle string

// The styles of host names.
const (
	ShortHostnames HostnameStyle = ""
	UpperHostnames HostnameStyle = "Upper"
	FQDNHostnames  HostnameStyle = "FQDN"
)

func (c ClusterSpec) withDefaults() ClusterSpec {
	c.TalosVersion = cmp.Or(c.TalosVersion, DefaultTalosVersion)
	if c.Deep {
		c.KubernetesVersion = cmp.Or(c.KubernetesVersion, DeepKubernetesVersion)
	}
	c.KubernetesVersion = cmp.Or(c.KubernetesVersion, DefaultKubernetesVersion)
	c.Schematic = cmp.Or(c.Schematic, VanillaSchematic)
	c.Platform = cmp.Or(c.Platform, defaultPlatform)
	c.PodsPerWorker = cmp.Or(c.PodsPerWorker, defaultPodsPerWorker)
	return c
}

// talos is the version that a machine runs at first, by its place among all of the cluster.
func (c ClusterSpec) talos(place int) string {
	if len(c.Mixed) == 0 {
		return c.TalosVersion
	}
	return c.Mixed[place%len(c.Mixed)]
}

// replicas is the size of the example deployment.
func (c ClusterSpec) replicas() int {
	return max(c.PodsPerWorker, 0) * cmp.Or(c.Workers, c.ControlPlanes)
}

var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$`)

func (c ClusterSpec) validate() error {
	switch {
	case !clusterName.MatchString(c.Name):
		return fmt.Errorf("cluster name %q must be a DNS label of at most 42 characters", c.Name)
	case c.ControlPlanes < 1 || c.ControlPlanes > maxControlPlanes:
		return fmt.Errorf("cluster %s: want 1 to %d control planes, not %d", c.Name, maxControlPlanes, c.ControlPlanes)
	case c.Workers < 0 || c.Workers > maxWorkers:
		return fmt.Errorf("cluster %s: want 0 to %d workers, not %d", c.Name, maxWorkers, c.Workers)
	case c.BlankControlPlanes < 0 || c.ControlPlanes+c.BlankControlPlanes > maxControlPlanes:
		return fmt.Errorf("cluster %s: %d control planes and %d blank ones are not 1 to %d in all", c.Name, c.ControlPlanes, c.BlankControlPlanes, maxControlPlanes)
	case c.BlankWorkers < 0 || c.Workers+c.BlankWorkers > maxWorkers:
		return fmt.Errorf("cluster %s: %d workers and %d blank ones are not 0 to %d in all", c.Name, c.Workers, c.BlankWorkers, maxWorkers)
	case c.Deep && c.BlankControlPlanes+c.BlankWorkers > 0:
		return fmt.Errorf("cluster %s: deep clusters have no blank machines", c.Name)
	}
	return nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("a state directory is required")
	}
	if len(o.Clusters) > maxClusters {
		return o, fmt.Errorf("%d clusters are too many: the address plan has room for %d", len(o.Clusters), maxClusters)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	table := timing.Default()
	if o.Timings != nil {
		table = *o.Timings
	}
	table = table.Scaled(o.Speed)
	o.Timings = &table
	return o, o.completeClusters()
}

// needsProcesses says whether there is a deep cluster among some.
func needsProcesses(specs []ClusterSpec) bool {
	return slices.ContainsFunc(specs, func(c ClusterSpec) bool { return c.Deep })
}

func (o *Options) completeClusters() error {
	seen := map[string]bool{}
	clusters := make([]ClusterSpec, 0, len(o.Clusters))
	for _, c := range o.Clusters {
		c = c.withDefaults()
		if err := c.validate(); err != nil {
			return err
		}
		if seen[c.Name] {
			return fmt.Errorf("cluster name %s is used twice", c.Name)
		}
		seen[c.Name] = true
		clusters = append(clusters, c)
	}
	o.Clusters = clusters
	return nil
}

// Demo returns n clusters of three shapes in turn: 3 control planes and 2 workers, 1 and 2, 3 and none.
func Demo(n int) []ClusterSpec {
	shapes := []ClusterSpec{{ControlPlanes: 3, Workers: 2}, {ControlPlanes: 1, Workers: 2}, {ControlPlanes: 3}}
	clusters := make([]ClusterSpec, 0, n)
	for i := range n {
		c := shapes[i%len(shapes)]
		c.Name = "demo-" + strconv.Itoa(i+1)
		clusters = append(clusters, c)
	}
	return clusters
}

var clusterText = regexp.MustCompile(`^([^=]+)=(\d+)\+(\d+)$`)

// ParseClusterSpec reads "name=3+2": three control planes and two workers.
func ParseClusterSpec(s string) (ClusterSpec, error) {
	name, controlPlanes, workers, err := parseCounts(s)
	c := ClusterSpec{Name: name, ControlPlanes: controlPlanes, Workers: workers}
	if err != nil {
		return c, err
	}
	return c, c.validate()
}

func parseCounts(s string) (name string, controlPlanes, workers int, err error) {
	m := clusterText.FindStringSubmatch(s)
	if m == nil {
		return "", 0, 0, fmt.Errorf("%q is not of the form NAME=CONTROLPLANES+WORKERS", s)
	}
	controlPlanes, cpErr := strconv.Atoi(m[2])
	workers, wErr := strconv.Atoi(m[3])
	return m[1], controlPlanes, workers, errors.Join(cpErr, wErr)
}

// AddBlank reads "name=2+1" and adds two blank control planes and one blank worker to the cluster of that name.
func AddBlank(specs []ClusterSpec, s string) error {
	name, controlPlanes, workers, err := parseCounts(s)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(specs, func(c ClusterSpec) bool { return c.Name == name })
	if i < 0 {
		return fmt.Errorf("machines in maintenance mode for cluster %q, which there is none of", name)
	}
	specs[i].BlankControlPlanes, specs[i].BlankWorkers = controlPlanes, workers
	return nil
}
