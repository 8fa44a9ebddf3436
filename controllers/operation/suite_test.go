// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/controllers/machineconfig/bases"
	"ichor.maesh.dev/hub/controllers/observe"
	"ichor.maesh.dev/hub/controllers/operation"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/config"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes"
	"ichor.maesh.dev/hub/controllers/operation/kind/shutdown"
	talosupgrade "ichor.maesh.dev/hub/controllers/operation/kind/talos"
	"ichor.maesh.dev/hub/hub/scheme"
	installationfake "ichor.maesh.dev/hub/providers/installation/fake"
	"ichor.maesh.dev/hub/providers/kube"
	kubefake "ichor.maesh.dev/hub/providers/kube/fake"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/test/framework"
)

const (
	oldVersion = "v1.13.6"
	newVersion = "v1.14.1"
	ownerID    = "11111111-2222-3333-4444-555555555555"
	schematic  = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

var (
	plane *framework.Plane
	admin client.Client
)

func TestOperation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Operation controller")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	var err error
	plane, err = framework.StartPlane(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	plane.Config.QPS, plane.HubConfig.QPS = -1, -1 // The suite is its own only client.
	admin, err = client.New(plane.Config, client.Options{Scheme: scheme.New()})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(time.Minute))

// fleet is one target in a namespace of its own, with fakes in place of its APIs.
type fleet struct {
	namespace string
	talos     *talosfake.Talos
	kube      *kubefake.Kube
	snapshots *snapshots
	vault     *vault
	stored    *stored
	addresses map[string]string // By node name.
	lost      []string          // The names of Nodes that are gone for good.

	// annotations are those of every operation that is created.
	annotations map[string]string

	// hub is the installation of the hub itself, and hubVersion the version that its processes are.
	hub        *installationfake.Installation
	hubVersion atomic.Value

	executors map[v1alpha1.OperationKind]kind.Executor
	deadlines map[v1alpha1.OperationStep]time.Duration
	lease     flakyLease

	// management is what a rotation of keys makes on the management cluster by, renewed are the bundles of secrets that it has made, and marks
	// are those by which API servers were restarted, by address.
	management *management
	renewed    []*secrets.Bundle
	marks      map[string]string

	// sharedEndpoint says that kubelets reach all API servers by one address; refused are the names of the Nodes that were refused by one.
	sharedEndpoint bool
	refused        sync.Map

	// ticks counts what happens on machines, where time matters.
	ticks atomic.Int64

	// crashing is a part of the images that do not start; empty if all do.
	crashing string

	// client is what a hub gets of the management API; nil means all of it.
	client func(client.Client) client.Client
}

// flakyLease is how guards read Leases: it can be made to fail.
type flakyLease struct {
	client.Reader

	mu    sync.Mutex
	fails int
}

// fail makes the next reads fail as those of an API server do whose etcd elects a leader.
func (l *flakyLease) fail(times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = times
}

// Get implements client.Reader.
func (l *flakyLease) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	l.mu.Lock()
	if l.fails > 0 {
		l.fails--
		l.mu.Unlock()
		return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	}
	l.mu.Unlock()
	return l.Reader.Get(ctx, key, object, options...)
}

// newFleet makes a target "c" with machines "c-<node>", all of them running oldVersion. cp1 leads etcd.
func newFleet(ctx context.Context, controlPlanes, workers int) *fleet {
	f := &fleet{talos: talosfake.New(), kube: kubefake.New(), snapshots: &snapshots{Script: script.New()}, vault: newVault(), stored: &stored{Script: script.New()}, addresses: map[string]string{}}
	f.executors = map[v1alpha1.OperationKind]kind.Executor{
		v1alpha1.TalosKind:      talosupgrade.New(f.talos, f.kube, "factory.example", f.snapshots),
		v1alpha1.NodeKind:       newNodeExecutor(f.talos, f.kube),
		v1alpha1.KubernetesKind: kubernetes.New(f.talos, f.kube, f.snapshots),
		v1alpha1.ConfigKind:     config.New(f.talos, f.kube, admin, &bases.Comparer{Store: &bases.Store{Client: admin, Live: admin}}),
		v1alpha1.ShutdownKind:   shutdown.New(f.talos, f.kube, f.snapshots),

		v1alpha1.KeyRotationKind: newKeyExecutor(f),
		v1alpha1.CARotationKind:  newRotationExecutor(f),
		v1alpha1.EtcdRestoreKind: newRestoreExecutor(f),
		v1alpha1.IchorKind:       newHubExecutor(f),
	}
	// It goes with the API server: deleted, it would wait for operations that no hub lets go of, and the API server would look again and again.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "op-"}}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	f.namespace = namespace.Name

	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: f.namespace, Name: "c", Annotations: map[string]string{
			v1alpha1.MembersApprovedAtAnnotation: "2026-01-01T00:00:00Z", v1alpha1.OwnerIDAnnotation: ownerID,
		},
	}}
	cluster.Spec.TalosVersion = newVersion
	Expect(admin.Create(ctx, cluster)).To(Succeed())
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
	capi.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "TalosCluster", Name: "c"}
	Expect(admin.Create(ctx, capi)).To(Succeed())

	var members []talos.EtcdMember
	for i := range controlPlanes {
		members = append(members, talos.EtcdMember{ID: uint64(i + 1), Hostname: fmt.Sprintf("cp%d", i+1), Started: true})
	}
	for i := range controlPlanes {
		etcd := &talos.Etcd{MemberID: uint64(i + 1), Leader: 1, Members: slices.Clone(members)}
		f.addMachine(ctx, fmt.Sprintf("cp%d", i+1), fmt.Sprintf("10.0.0.%d", i+1), etcd)
	}
	for i := range workers {
		f.addMachine(ctx, fmt.Sprintf("w%d", i+1), fmt.Sprintf("10.0.1.%d", i+1), nil)
	}
	f.talos.Rebooted = func(_ string, now talos.Machine) {
		f.kube.Change(now.NodeName, func(n *kube.Node) { n.BootID = now.BootID })
	}
	f.talos.PoweredOff = f.down
	return f
}

func (f *fleet) addMachine(ctx context.Context, name, address string, etcd *talos.Etcd) {
	role := v1alpha1.WorkerRole
	if etcd != nil {
		role = v1alpha1.ControlPlaneRole
	}
	f.addresses[name] = address
	facts := talos.Machine{
		Version: oldVersion, BootID: name + "-boot-0", UUID: "uuid-" + name, NodeName: name, Stage: talos.StageRunning, Ready: true,
		SchematicID: schematic, Platform: "metal",
	}
	f.talos.Add(address, facts, etcd)
	f.furnish(address)
	f.kube.Set(kube.Node{Name: name, UUID: facts.UUID, BootID: facts.BootID, Ready: true, ControlPlane: etcd != nil})
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-" + name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}},
		Spec:       v1alpha1.TalosMachineSpec{ClusterName: "c", Role: role, Address: address, UUID: facts.UUID, Approval: v1alpha1.Approved},
	}
	Expect(admin.Create(ctx, machine)).To(Succeed())
	machine.Status = v1alpha1.TalosMachineStatus{NodeName: name, TalosVersion: oldVersion, SchematicID: schematic, Platform: "metal", BootID: facts.BootID}
	if etcd != nil {
		machine.Status.EtcdMemberID = fmt.Sprintf("%x", etcd.MemberID)
	}
	Expect(admin.Status().Update(ctx, machine)).To(Succeed())
}

// runs makes every machine run a version of Talos, and the cluster ask for another.
func (f *fleet) runs(ctx context.Context, version, wanted string) {
	GinkgoHelper()
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
	change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = wanted })
	for name := range f.addresses {
		f.machineRuns(ctx, name, version)
	}
}

// machineRuns makes one machine run a version of Talos.
func (f *fleet) machineRuns(ctx context.Context, name, version string) {
	GinkgoHelper()
	f.talos.Change(f.addresses[name], func(m *talos.Machine, _ *talos.Etcd) { m.Version = version })
	machine := &v1alpha1.TalosMachine{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "c-" + name}, machine)).To(Succeed())
	machine.Status.TalosVersion = version
	Expect(admin.Status().Update(ctx, machine)).To(Succeed())
}

// holdsReplicas puts replicas on a Node, and a storage operator into the cluster that moves them off when it is asked to.
func (f *fleet) holdsReplicas(name string, count int) {
	f.kube.Change(name, func(n *kube.Node) {
		n.Storage = map[string]string{v1alpha1.StorageReplicasAnnotation: strconv.Itoa(count)}
	})
	f.kube.Annotated = func(n *kube.Node) {
		if n.Storage[v1alpha1.StorageEvacuatedByAnnotation] != "" {
			n.Storage[v1alpha1.StorageReplicasAnnotation] = "0"
		}
	}
}

// hub is a running hub process. Killing it ends its tasks in the middle of their calls.
type hub struct {
	cancel context.CancelFunc
	done   chan error

	// fenced is closed once the hub knows that another one has taken its place.
	fenced chan struct{}
}

func (f *fleet) startHub() *hub {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(plane.HubConfig, ctrl.Options{
		Scheme: scheme.New(), Logger: GinkgoLogr, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{f.namespace: {}}},
	})
	Expect(err).NotTo(HaveOccurred())
	f.lease.Reader = mgr.GetAPIReader()
	h := &hub{cancel: cancel, done: make(chan error, 1), fenced: make(chan struct{})}
	management := mgr.GetClient()
	if f.client != nil {
		management = f.client(management)
	}
	reconciler := operation.New(ctx, operation.Options{
		Client: management, APIReader: mgr.GetAPIReader(), Executors: f.executors, Clock: clock.RealClock{}, Deadlines: f.deadlines,
		Locks:  &lock.Locks{Client: mgr.GetClient(), Reader: &f.lease, Epoch: uuid.NewString(), Clock: clock.RealClock{}},
		Viewer: gate.Viewer{Talos: f.talos, Kube: f.kube}, Kube: f.kube,
		Recorder: mgr.GetEventRecorder("ichor-hub"), Fenced: h.fence(),
		Installation: f.installation(),
		Looks:        observe.Options{Interval: 20 * time.Millisecond, Timeout: time.Minute, AtOnce: 16},
	})
	Expect(reconciler.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: ptr.To(true)})).To(Succeed())
	go func() { h.done <- mgr.Start(ctx) }()
	DeferCleanup(h.kill)
	return h
}

// fence closes fenced, however often another hub is met.
func (h *hub) fence() func(error) {
	closing := sync.OnceFunc(func() { close(h.fenced) })
	return func(error) { closing() }
}

func (h *hub) kill() {
	h.cancel()
	if h.done != nil {
		Eventually(h.done).Should(Receive())
		h.done = nil
	}
}

func (f *fleet) create(ctx context.Context, name string, spec v1alpha1.TalosOperationSpec) *v1alpha1.TalosOperation {
	GinkgoHelper()
	spec.ClusterName = "c"
	op := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Annotations: maps.Clone(f.annotations)}, Spec: spec}
	Expect(admin.Create(ctx, op)).To(Succeed())
	return op
}

func upgrade() v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{Kind: v1alpha1.TalosKind}
}

func reboot(machine string) v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Machine: machine, Action: v1alpha1.RebootAction}}
}

// twoAtOnce is a maxUnavailable.
var twoAtOnce = intstr.FromInt32(2)

// talosMachine is what the Talos API tells of a machine.
type talosMachine = talos.Machine

// movable says whether nothing keeps "clusterctl move" from the target.
func (f *fleet) movable(ctx context.Context) bool {
	GinkgoHelper()
	cluster := f.cluster()
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	_, blocked := cluster.Annotations[v1alpha1.BlockMoveAnnotation]
	return !blocked
}

func pauseCluster(ctx context.Context, f *fleet, paused bool) {
	GinkgoHelper()
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
	change(ctx, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(paused) })
}

// events are what was recorded about an object, as "Type Reason: note".
func (f *fleet) events(ctx context.Context, object client.Object) func() ([]string, error) {
	return func() ([]string, error) {
		list := &eventsv1.EventList{}
		err := admin.List(ctx, list, client.InNamespace(f.namespace))
		var lines []string
		for _, event := range list.Items {
			if event.Regarding.Name == object.GetName() {
				lines = append(lines, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Note))
			}
		}
		return lines, err
	}
}

// now reads an operation again and again, for Eventually.
func now(ctx context.Context, op *v1alpha1.TalosOperation) func() (*v1alpha1.TalosOperation, error) {
	return func() (*v1alpha1.TalosOperation, error) {
		current := &v1alpha1.TalosOperation{}
		err := admin.Get(ctx, client.ObjectKeyFromObject(op), current)
		return current, err
	}
}

func change[T client.Object](ctx context.Context, object T, mutate func(T)) {
	GinkgoHelper()
	Eventually(func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		mutate(object)
		return admin.Update(ctx, object)
	}).Should(Succeed())
}

func haveCondition(kind string, status metav1.ConditionStatus, reason any, message types.GomegaMatcher) types.GomegaMatcher {
	return WithTransform(func(o interface{ GetConditions() []metav1.Condition }) metav1.Condition {
		for _, condition := range o.GetConditions() {
			if condition.Type == kind {
				return condition
			}
		}
		return metav1.Condition{}
	}, And(HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message)))
}

func beCompleted() types.GomegaMatcher {
	return HaveField("Status.Phase", v1alpha1.OperationCompleted)
}

func bePaused(reason string, message types.GomegaMatcher) types.GomegaMatcher {
	return And(HaveField("Status.Phase", v1alpha1.OperationPaused), haveCondition("Paused", metav1.ConditionTrue, reason, message))
}

// calls are the minutes of the Talos API, with node names for addresses.
func (f *fleet) calls(kinds ...string) []string {
	names := map[string]string{}
	for name, address := range maps.All(f.addresses) {
		names[address] = name
	}
	var list []string
	for _, line := range f.talos.Calls() {
		var call, address string
		if _, err := fmt.Sscanf(line, "%s %s", &call, &address); err != nil {
			panic(err)
		}
		if len(kinds) == 0 || slices.Contains(kinds, call) {
			list = append(list, call+" "+names[address])
		}
	}
	return list
}

// errNoSuchImage is what Talos answers that is told to upgrade to an image which is not there.
var errNoSuchImage = status.Error(codes.Unknown, "error validating installer image")

// errForbidden is what an API server answers to who may not evict.
var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "p", errors.New("may not"))
