// SPDX-License-Identifier: Apache-2.0

// Package harness runs the whole hub in the process of a test: the embedded management API server, the hub's manager with its real
// providers, and a simulated fleet with fast timings. The manager can be stopped, killed and started again on the same API server.
package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/hub/manager"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/hub/service"
	"ichor.maesh.dev/hub/providers/blob"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// Namespace is where the harness keeps all objects.
const Namespace = "default"

// DefaultSpeed is how much faster than the demo the fleet lives: a reboot takes 150 milliseconds.
const DefaultSpeed = 40

// DefaultProbes look at targets often enough for a test, and seldom enough for two processors.
var DefaultProbes = observe.Options{Interval: time.Second, Timeout: 3 * time.Second, AtOnce: 32}

// setLogger tells the libraries where to log; they remember the first answer.
var setLogger sync.Once

// Options say what to run.
type Options struct {
	// Clusters are the simulated clusters. None is imported at first.
	Clusters []sim.ClusterSpec

	// Speed is how much faster than the demo the fleet lives; zero takes DefaultSpeed.
	Speed float64

	// Timings replace the demo's; Speed applies to them too.
	Timings *sim.Timings

	// Deadlines replace the deadlines of steps.
	Deadlines map[v1alpha1.OperationStep]time.Duration

	// Probes say how often targets are probed; zero takes DefaultProbes.
	Probes observe.Options

	// Looks say how what an operation waits for is looked at; zero takes the product's.
	Looks observe.Options

	// RestartAfter is when an API server that a rotation of keys waits for is restarted; zero takes the product's.
	RestartAfter time.Duration

	// KubeAPIServer is the binary that deep clusters run; there may be none where no cluster is deep.
	KubeAPIServer string

	// Log hears the hub; its zero value discards.
	Log logr.Logger
}

// Harness is a management API, a hub and a fleet.
type Harness struct {
	// Fleet is the simulated fleet.
	Fleet *sim.Simulator

	// Client is the administrator's access to the management API.
	Client client.WithWatch

	// Service is what people do with the hub, done as the administrator.
	Service *service.Service

	// Plane is the management API server.
	Plane *framework.Plane

	options Options
	dir     string
	front   *front
	hub     *process
}

// Start starts all three. The context bounds the start only.
func Start(ctx context.Context, o Options) (*Harness, error) {
	o.Speed = cmp.Or(o.Speed, DefaultSpeed)
	if o.Probes == (observe.Options{}) {
		o.Probes = DefaultProbes
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	setLogger.Do(func() { ctrl.SetLogger(o.Log) })
	dir, err := os.MkdirTemp("", "ichor-harness-")
	if err != nil {
		return nil, fmt.Errorf("creating the directory of the harness: %w", err)
	}
	h := &Harness{options: o, dir: dir}
	if err := h.start(ctx); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}

func (h *Harness) start(ctx context.Context) error {
	var err error
	if h.Plane, err = framework.StartPlane(ctx); err != nil {
		return err
	}
	access := rest.CopyConfig(h.Plane.Config)
	access.QPS = -1 // Many tests may share it.
	if h.Client, err = client.NewWithWatch(access, client.Options{Scheme: scheme.New()}); err != nil {
		return fmt.Errorf("connecting to the management API: %w", err)
	}
	h.Service = &service.Service{Client: h.Client, Now: time.Now}
	h.Fleet, err = sim.Start(ctx, sim.Options{
		Dir: h.FleetDir(), Speed: h.options.Speed, Timings: h.options.Timings, Clusters: h.options.Clusters,
		KubeAPIServer: h.options.KubeAPIServer,
	})
	if err != nil {
		return fmt.Errorf("starting the fleet: %w", err)
	}
	if h.front, err = newFront(ctx, filepath.Join(h.dir, "front")); err != nil {
		return err
	}
	return h.StartHub()
}

// Stop ends hub, fleet and API server.
func (h *Harness) Stop() error {
	var errs []error
	if h.hub != nil {
		errs = append(errs, h.StopHub())
	}
	if h.Fleet != nil {
		h.Fleet.Stop()
	}
	if h.Plane != nil {
		errs = append(errs, h.Plane.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(h.dir))...)
}

// StartHub starts a hub, which is a new process as far as anybody can tell: it remembers nothing, and its epoch is new.
func (h *Harness) StartHub() error {
	if h.hub != nil {
		return errors.New("the hub runs already")
	}
	serving, listener, err := h.front.serving()
	if err != nil {
		return err
	}
	h.hub = begin(h.Plane.HubConfig, listener, manager.Options{
		MetricsBindAddress: "0", HealthBindAddress: "0", ImageFactory: manager.DefaultImageFactory,
		Deadlines: h.options.Deadlines, Probes: h.options.Probes, Looks: h.options.Looks, SharedProcess: true, Serve: serving,
		RestartAfter: h.options.RestartAfter, Storage: blob.Opener{Directory: h.SnapshotDir()},
	})
	return nil
}

// StopHub ends the hub in good order, and returns the error it ended with.
func (h *Harness) StopHub() error { return h.endHub((*process).stop) }

// KillHub ends the hub as kill -9 would: from now on nothing that it says reaches the management API, no call that it makes goes on, and nobody hears of it.
func (h *Harness) KillHub() error { return h.endHub((*process).kill) }

func (h *Harness) endHub(end func(*process) error) error {
	hub := h.hub
	if hub == nil {
		return errors.New("no hub runs")
	}
	h.hub = nil
	return end(hub)
}

// FleetDir is where the fleet keeps its state, with the logs of what its deep clusters run.
func (h *Harness) FleetDir() string { return filepath.Join(h.dir, "fleet") }

// SnapshotDir is where the hub lets snapshots be stored, by file:// and this path.
func (h *Harness) SnapshotDir() string { return filepath.Join(h.dir, "snapshots") }

// Journal is what the machines were asked to do.
func (h *Harness) Journal() *journal.Journal { return h.Fleet.Journal() }

// Add starts one more cluster of the fleet, and imports it.
func (h *Harness) Add(ctx context.Context, spec sim.ClusterSpec) (*sim.Cluster, error) {
	cluster, err := h.Fleet.Add(spec)
	if err != nil {
		return nil, err
	}
	return cluster, h.Import(ctx, spec.Name)
}

// Remove makes the hub forget a cluster, with its operations, and ends it.
func (h *Harness) Remove(ctx context.Context, cluster string) error {
	target := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: cluster}}
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	if err := client.IgnoreNotFound(h.Client.Delete(ctx, target, background)); err != nil {
		return fmt.Errorf("deleting Cluster %s: %w", cluster, err)
	}
	err := h.Client.DeleteAllOf(ctx, &v1alpha1.TalosOperation{}, client.InNamespace(Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	if err != nil {
		return fmt.Errorf("deleting the operations of cluster %s: %w", cluster, err)
	}
	return h.Fleet.Remove(cluster)
}

// Rules are what must hold on a cluster at every moment.
func (h *Harness) Rules(cluster string) invariant.Rules {
	r := invariant.Rules{Cluster: cluster, Grace: 2 * h.options.Probes.Interval}
	for _, node := range h.Fleet.Cluster(cluster).Nodes() {
		if node.ControlPlane() {
			r.ControlPlanes = append(r.ControlPlanes, node.Name())
		}
	}
	return r
}

// Fault puts a fault in force and returns its ID.
func (h *Harness) Fault(f fault.Fault) (string, error) { return h.Fleet.Inject(f) }

// Fired is how often a fault that is in force has made something fail.
func (h *Harness) Fired(id string) int {
	for _, active := range h.Fleet.Faults() {
		if active.ID == id {
			return active.Fired
		}
	}
	return 0
}

// Clear ends a fault. One that is over already is no error.
func (h *Harness) Clear(id string) { h.Fleet.Clear(id) }
