// SPDX-License-Identifier: Apache-2.0

// Package manager runs the hub's controllers on a management API.
package manager

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/beside"
	"ichor.maesh.dev/hub/controllers/cluster"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/operation"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/carotation"
	"ichor.maesh.dev/hub/controllers/operation/kind/config"
	"ichor.maesh.dev/hub/controllers/operation/kind/etcdrestore"
	"ichor.maesh.dev/hub/controllers/operation/kind/keyrotation"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes"
	"ichor.maesh.dev/hub/controllers/operation/kind/node"
	"ichor.maesh.dev/hub/controllers/operation/kind/shutdown"
	talosupgrade "ichor.maesh.dev/hub/controllers/operation/kind/talos"
	"ichor.maesh.dev/hub/controllers/remediation"
	"ichor.maesh.dev/hub/controllers/remediation/external"
	"ichor.maesh.dev/hub/controllers/snapshot"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/providers/blob"
	"ichor.maesh.dev/hub/providers/capi"
	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
)

const (
	// workers is how many objects each controller reconciles at once. A reconcile never waits for a target.
	workers = 50

	// managementQPS makes the hub's requests to the management API wait for nothing but that API: its priority and fairness knows better than
	// a fixed rate what it can take, and 200 operations that begin at once are some 2,000 requests.
	managementQPS = -1

	// shutdownTimeout bounds the end of a hub: reconciles are short, and tasks may end anywhere.
	shutdownTimeout = 10 * time.Second
)

// DefaultImageFactory is where machines pull installers from, unless the hub is told otherwise.
const DefaultImageFactory = "factory.talos.dev"

// Options are what a manager needs to know beyond how to reach the management API.
type Options struct {
	// MetricsBindAddress, HealthBindAddress and PprofBindAddress are addresses to listen on; "0" listens on none. Metrics on another address
	// than a loopback one are served by HTTPS, to whom the management API lets get /metrics.
	MetricsBindAddress string
	HealthBindAddress  string
	PprofBindAddress   string

	// Election makes replicas elect the one that reconciles; nil elects nobody. In standalone mode the lock of the data directory does.
	Election *Election

	// ImageFactory is the host, and path if any, of the Image Factory that machines pull installers from.
	ImageFactory string

	// Storage opens the buckets that snapshots of etcd are stored in.
	Storage blob.Opener

	// Deadlines replace the deadlines of steps.
	Deadlines map[v1alpha1.OperationStep]time.Duration

	// Probes say how often targets are probed; zero takes the default.
	Probes observe.Options

	// Looks say how what a running operation waits for is looked at; zero takes the default.
	Looks observe.Options

	// RestartAfter is how long an API server may take to come back with new keys before it is restarted once more; zero takes the default.
	RestartAfter time.Duration

	// Serve serves the hub's services; nil serves nothing.
	Serve *Serving

	// Namespace is the only namespace that the hub works in; empty means all.
	Namespace string

	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that the clusters have which the hub works on; empty means all
	// clusters, whatever they have.
	WatchFilter string

	// Installation is the hub itself. One without a namespace cannot be upgraded, and is not written down anywhere.
	Installation Installation

	// SharedProcess lets several managers run in one process, at once or one after the other, as tests do. Controllers of the same name
	// then share their metrics.
	SharedProcess bool
}

// Election is how replicas elect the one that reconciles.
type Election struct {
	// Namespace is where the election's Lease is; empty means the namespace of the hub's pod.
	Namespace string

	// LeaseDuration is how long the others wait for a leader that gives no sign of life, RenewDeadline how long a leader tries to give one
	// before it ends, and RetryPeriod the pause between attempts. Zero takes DefaultElection's.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// DefaultElection has the durations that Kubernetes' own controllers elect with.
var DefaultElection = Election{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}

// apply makes a manager take part in the election.
func (e *Election) apply(o *ctrl.Options) {
	if e == nil {
		return
	}
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "ichor-hub", e.Namespace
	o.LeaderElectionReleaseOnCancel = true
	o.LeaseDuration = ptr.To(cmp.Or(e.LeaseDuration, DefaultElection.LeaseDuration))
	o.RenewDeadline = ptr.To(cmp.Or(e.RenewDeadline, DefaultElection.RenewDeadline))
	o.RetryPeriod = ptr.To(cmp.Or(e.RetryPeriod, DefaultElection.RetryPeriod))
}

// Run runs the controllers until ctx ends. Losing the leadership is an error: the process must end with it.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	config = rest.CopyConfig(config)
	config.QPS = managementQPS
	config.UserAgent = "ichor-hub"
	mgr, err := newManager(config, o)
	if err != nil {
		return err
	}
	running, fence := context.WithCancelCause(ctx)
	defer fence(nil)
	reach := newReach(mgr.GetClient())
	if err := setUp(running, mgr, o, reach, fence); err != nil {
		return err
	}
	served, err := serve(running, mgr, config, reach, o, fence)
	if err != nil {
		return err
	}
	err = mgr.Start(running)
	fence(err)
	<-served
	if err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	if ctx.Err() == nil {
		return fmt.Errorf("running the controllers: %w", context.Cause(running))
	}
	return nil
}

func newManager(config *rest.Config, o Options) (ctrl.Manager, error) {
	s := scheme.New()
	options := ctrl.Options{
		Scheme:                  s,
		Cache:                   cacheOptions(o.Namespace, o.Installation.Namespace),
		NewClient:               newClient,
		Client:                  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                 metricsOptions(o),
		HealthProbeBindAddress:  o.HealthBindAddress,
		PprofBindAddress:        o.PprofBindAddress,
		GracefulShutdownTimeout: ptr.To(shutdownTimeout),
	}
	o.Election.apply(&options)
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("preparing the controllers: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	return mgr, nil
}

// cacheOptions keep out of memory what the hub does not need: Secrets and Leases of no cluster, and who managed which field. Of the namespaces
// it keeps one, or all; the hub's own is that of its IchorInstallation.
func cacheOptions(namespace, own string) cache.Options {
	ofClusters, err := labels.Parse(clusterv1.ClusterNameLabel)
	utilruntime.Must(err) // The label is a constant.
	var namespaces map[string]cache.Config
	if namespace != "" {
		namespaces = map[string]cache.Config{namespace: {}}
	}
	var hub map[string]cache.Config
	if own != "" {
		hub = map[string]cache.Config{own: {}}
	}
	return cache.Options{
		DefaultNamespaces: namespaces,
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:        {Label: ofClusters, Transform: lightSecrets},
			&coordinationv1.Lease{}: {Label: ofClusters},

			&v1alpha1.IchorInstallation{}: {Namespaces: hub},
		},
	}
}

// lightSecrets keeps out of memory what is seldom read.
func lightSecrets(object any) (any, error) {
	object, err := cache.TransformStripManagedFields()(object)
	if err != nil {
		return nil, err
	}
	return bases.Lighten(object)
}

// reach is how the hub reaches targets.
type reach struct {
	store *credentials.Store
	talos *talos.Pool
	kube  *kube.Pool
}

// newReach returns what reaches targets by the credentials that a reader finds.
func newReach(reader client.Reader) reach {
	store := &credentials.Store{Reader: reader}
	return reach{store: store, talos: talos.NewPool(store), kube: kube.NewPool(store)}
}

func setUp(ctx context.Context, mgr ctrl.Manager, o Options, reach reach, fence context.CancelCauseFunc) error {
	if err := indexMachines(ctx, mgr); err != nil {
		return err
	}
	if err := snapshot.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	store, talosPool, kubePool := reach.store, reach.talos, reach.kube
	watched := &capi.Filter{Reader: mgr.GetClient(), Value: o.WatchFilter}
	options := controller.Options{
		MaxConcurrentReconciles: workers, SkipNameValidation: ptr.To(o.SharedProcess),
		// The priority queue may lock itself up when it is shut down (controller-runtime #3538): the process then ends with an error, and
		// only after shutdownTimeout.
		UsePriorityQueue: ptr.To(false),
	}

	configs := &bases.Comparer{Store: &bases.Store{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}}
	clusters := cluster.New(ctx, cluster.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Credentials: store, Talos: talosPool, Kube: kubePool, Clock: clock.RealClock{},
		Configs: configs, Forgetters: []cluster.Forgetter{talosPool, kubePool, configs}, Probes: orDefault(o.Probes, cluster.Probes),
		Watched: watched,
	})
	if err := clusters.SetupWithManager(ctx, mgr, options); err != nil {
		return fmt.Errorf("setting up the controller of TalosClusters: %w", err)
	}

	helper := &external.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Watched: watched}
	if err := helper.SetupWithManager(mgr, options); err != nil {
		return fmt.Errorf("setting up the controller of TalosRemediations: %w", err)
	}
	locks := &lock.Locks{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Epoch: uuid.NewString(), Clock: clock.RealClock{}}
	nodes := node.New(talosPool, kubePool)
	nodes.Configs = node.Configs{Client: mgr.GetClient(), Bases: configs.Store, Factory: o.ImageFactory}
	nodes.Records = node.Machines{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	operations := operation.New(ctx, operation.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
		Locks: locks,
		Executors: map[v1alpha1.OperationKind]kind.Executor{
			v1alpha1.TalosKind:      talosupgrade.New(talosPool, kubePool, o.ImageFactory, snapshotsFor(mgr, v1alpha1.SnapshotUpgrade)),
			v1alpha1.NodeKind:       nodes,
			v1alpha1.KubernetesKind: kubernetes.New(talosPool, kubePool, snapshotsFor(mgr, v1alpha1.SnapshotUpgrade)),
			v1alpha1.ConfigKind:     config.New(talosPool, kubePool, mgr.GetClient(), configs),
			v1alpha1.ShutdownKind:   shutdown.New(talosPool, kubePool, snapshotsFor(mgr, v1alpha1.SnapshotShutdown)),
			v1alpha1.KeyRotationKind: keyrotation.New(keyrotation.Options{
				Talos: talosPool, Kube: kubePool, Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
				Snapshots: snapshotsFor(mgr, v1alpha1.SnapshotRotation), Bundles: bundlesOf(mgr), RestartAfter: o.RestartAfter,
			}),
			v1alpha1.CARotationKind: carotation.New(rotationOptions(mgr, reach)),
			v1alpha1.EtcdRestoreKind: etcdrestore.New(talosPool, kubePool, snapshotsFor(mgr, v1alpha1.SnapshotRestore), snapshot.Stored{
				Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Storage: o.Storage, Clock: clock.RealClock{},
			}),
		},
		Viewer: gate.Viewer{Talos: talosPool, Kube: kubePool}, Kube: kubePool, Clock: clock.RealClock{},
		Recorder: mgr.GetEventRecorder("ichor-hub"), Deadlines: o.Deadlines, Looks: orDefault(o.Looks, operation.Looks), Fenced: fence,
		Watched: watched,
	})
	if err := o.Installation.setUp(mgr, operations, options); err != nil {
		return err
	}
	if err := operations.SetupWithManager(ctx, mgr, options); err != nil {
		return fmt.Errorf("setting up the controller of TalosOperations: %w", err)
	}
	if err := setUpSnapshots(ctx, mgr, o, talosPool, watched, options); err != nil {
		return err
	}
	remedies := &remediation.Reconciler{
		Client: mgr.GetClient(), Machines: capi.Machines{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}, Clock: clock.RealClock{},
		Watched: watched,
	}
	if err := remedies.SetupWithManager(mgr, options); err != nil {
		return fmt.Errorf("setting up the controller that gives machines back to health checks: %w", err)
	}
	neighbours := beside.New(beside.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Locks: locks, Operations: operations, Recorder: mgr.GetEventRecorder("ichor-hub"),
		Watched: watched,
	})
	if err := neighbours.SetupWithManager(mgr, options); err != nil {
		return fmt.Errorf("setting up the controller of what the hub has on Cluster API's objects: %w", err)
	}
	return nil
}

// rotationOptions are what a rotation of authorities needs. It reads credentials and Secrets as they are now.
func rotationOptions(mgr ctrl.Manager, reach reach) carotation.Options {
	return carotation.Options{
		Talos: reach.talos, Kube: reach.kube, Prover: carotation.Servers{TalosPool: reach.talos, KubePool: reach.kube},
		Vault:       carotation.Secrets{Keeper: &credentials.Keeper{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}},
		Credentials: &credentials.Store{Reader: mgr.GetAPIReader()}, Operations: mgr.GetClient(), Clock: clock.RealClock{},
	}
}

// bundlesOf brings bundles of secrets up to date.
func bundlesOf(mgr ctrl.Manager) keyrotation.Bundles {
	keeper := &credentials.Keeper{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	return func(ctx context.Context, t target.Target, change func(*secrets.Bundle) error) error {
		return keeper.ReplaceBundle(ctx, t.NamespacedName, change)
	}
}

// snapshotsFor takes the snapshots that operations ask for.
func snapshotsFor(mgr ctrl.Manager, reason v1alpha1.SnapshotReason) kind.Snapshots {
	return snapshot.ForOperations{Client: mgr.GetClient(), Clock: clock.RealClock{}, Reason: reason}
}

func setUpSnapshots(ctx context.Context, mgr ctrl.Manager, o Options, pool *talos.Pool, watched *capi.Filter, options controller.Options) error {
	snapshots := snapshot.New(ctx, snapshot.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Talos: pool, Storage: o.Storage, Clock: clock.RealClock{},
		Watched: watched,
	})
	if err := snapshots.SetupWithManager(mgr, options); err != nil {
		return fmt.Errorf("setting up the controller of EtcdSnapshots: %w", err)
	}
	keeper := &snapshot.Keeper{Client: mgr.GetClient(), Clock: clock.RealClock{}, Watched: watched}
	if err := keeper.SetupWithManager(mgr, options); err != nil {
		return fmt.Errorf("setting up the controller that keeps the schedules of snapshots: %w", err)
	}
	return nil
}

func orDefault(o, standard observe.Options) observe.Options {
	if o == (observe.Options{}) {
		return standard
	}
	return o
}
