// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/snapshot"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/providers/blob"
	"ichor.maesh.dev/hub/providers/talos"
	talosfake "ichor.maesh.dev/hub/providers/talos/fake"
	"ichor.maesh.dev/hub/test/framework"
)

var (
	plane *framework.Plane
	admin client.Client
)

func TestSnapshots(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Snapshot controllers")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	var err error
	plane, err = framework.StartPlane(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	plane.Config.QPS, plane.HubConfig.QPS = -1, -1 // The suite is its own only client.
	admin, err = client.New(plane.Config, client.Options{Scheme: scheme.New()})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(time.Minute))

// world is a target with three control planes in a namespace of its own, and a directory that its snapshots are stored in.
type world struct {
	namespace string
	talos     *talosfake.Talos
	clock     *clocktesting.FakeClock
	dir       string
	data      []byte
	revision  int64
	storage   snapshot.Storage // What hubs open buckets with.
}

// start is the time at which each world begins.
var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	w := &world{talos: talosfake.New(), clock: clocktesting.NewFakeClock(start), dir: GinkgoT().TempDir()}
	w.data, w.revision = etcdSnapshot(2000)
	w.storage = blob.Opener{Directory: w.dir}
	// It goes with the API server: deleted, it would wait for snapshots that no hub lets go of, and the API server would look again and again.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "snap-"}}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	w.namespace = namespace.Name
	w.addCluster(ctx)
	members := []talos.EtcdMember{{ID: 1, Hostname: "cp1"}, {ID: 2, Hostname: "cp2"}, {ID: 3, Hostname: "cp3"}}
	for i, m := range members {
		address := fmt.Sprintf("10.0.0.%d", i+1)
		w.talos.Add(address, talos.Machine{Version: "v1.14.1", NodeName: m.Hostname}, &talos.Etcd{MemberID: m.ID, Leader: 1, Members: members, Version: "3.6.4"})
		w.talos.Configure(address, talos.Config{Active: []byte("version: v1alpha1\nmachine:\n  type: controlplane\ncluster:\n  secretboxEncryptionSecret: c2VjcmV0\n")})
		w.talos.Store(address, w.data)
		machine := &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c-" + m.Hostname, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}},
			Spec:       v1alpha1.TalosMachineSpec{ClusterName: "c", Role: v1alpha1.ControlPlaneRole, Address: address, UUID: m.Hostname, Approval: v1alpha1.Approved},
		}
		Expect(admin.Create(ctx, machine)).To(Succeed())
	}
	return w
}

func (w *world) addCluster(ctx context.Context) {
	GinkgoHelper()
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c"}}
	capi.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "TalosCluster", Name: "c"}
	Expect(admin.Create(ctx, capi)).To(Succeed())
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "c"}}
	cluster.Spec.EtcdBackup = &v1alpha1.EtcdBackupSpec{BucketURL: "file://" + w.dir}
	Expect(admin.Create(ctx, cluster)).To(Succeed())
}

// hub is a running hub of this suite.
type hub struct{ kill context.CancelFunc }

// startHub starts the controllers. They end with the test, or when they are killed.
func (w *world) startHub() *hub {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(plane.HubConfig, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}}, GracefulShutdownTimeout: ptr.To(5 * time.Second),
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(snapshot.Index(ctx, mgr.GetFieldIndexer())).To(Succeed())
	options := controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 4, UsePriorityQueue: ptr.To(false)}
	reconciler := snapshot.New(ctx, snapshot.Options{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Talos: w.talos, Storage: w.storage, Clock: w.clock})
	Expect(reconciler.SetupWithManager(mgr, options)).To(Succeed())
	Expect((&snapshot.Keeper{Client: mgr.GetClient(), Clock: w.clock}).SetupWithManager(mgr, options)).To(Succeed())
	over := make(chan error, 1)
	go func() { over <- mgr.Start(ctx) }()
	stop := once(func() {
		cancel()
		Eventually(over).Should(Receive())
	})
	DeferCleanup(stop)
	return &hub{kill: stop}
}

// once is a function that does something once.
func once(do func()) func() {
	done := false
	return func() {
		if !done {
			done = true
			do()
		}
	}
}

func (w *world) ask(ctx context.Context, name string) *v1alpha1.EtcdSnapshot {
	GinkgoHelper()
	made := &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.EtcdSnapshotSpec{ClusterName: "c", Reason: v1alpha1.SnapshotManual},
	}
	Expect(admin.Create(ctx, made)).To(Succeed())
	return made
}

// get reads a snapshot.
func (w *world) get(ctx context.Context, name string) func() (*v1alpha1.EtcdSnapshot, error) {
	return func() (*v1alpha1.EtcdSnapshot, error) {
		s := &v1alpha1.EtcdSnapshot{}
		err := admin.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, s)
		return s, err
	}
}

// names are the names of all snapshots that are not being deleted.
func (w *world) names(ctx context.Context) func() ([]string, error) {
	return func() ([]string, error) {
		list := &v1alpha1.EtcdSnapshotList{}
		err := admin.List(ctx, list, client.InNamespace(w.namespace))
		names := []string{}
		for _, s := range list.Items {
			if s.DeletionTimestamp.IsZero() {
				names = append(names, s.Name)
			}
		}
		slices.Sort(names)
		return names, err
	}
}

func (w *world) configure(ctx context.Context, change func(*v1alpha1.EtcdBackupSpec)) {
	GinkgoHelper()
	cluster := &v1alpha1.TalosCluster{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "c"}, cluster)).To(Succeed())
	before := cluster.DeepCopy()
	change(cluster.Spec.EtcdBackup)
	Expect(admin.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// annotate sets annotations of the cluster, or takes them away where they are nil.
func (w *world) annotate(ctx context.Context, annotations map[string]any) {
	GinkgoHelper()
	cluster := &v1alpha1.TalosCluster{}
	cluster.Namespace, cluster.Name = w.namespace, "c"
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	Expect(err).NotTo(HaveOccurred())
	Expect(admin.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// stored are the files in the storage.
func (w *world) stored() []string {
	GinkgoHelper()
	found := []string{}
	Expect(filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // It went meanwhile.
		}
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, w.dir+"/"))
		}
		return err
	})).To(Succeed())
	return found
}

// is expects a state of condition Ready.
func is(status metav1.ConditionStatus, reason string, message any) OmegaMatcher {
	return WithTransform(func(s *v1alpha1.EtcdSnapshot) metav1.Condition {
		if found := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SnapshotReadyCondition); found != nil {
			return *found
		}
		return metav1.Condition{}
	}, And(HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message)))
}

var taken = And(is(metav1.ConditionTrue, "Ready", ""), HaveField("Spec.Contents", Not(BeNil())))

// etcdSnapshot is a snapshot of as many revisions.
func etcdSnapshot(revisions int) (data []byte, revision int64) {
	GinkgoHelper()
	db, err := bbolt.Open(filepath.Join(GinkgoT().TempDir(), "db"), 0o600, nil)
	Expect(err).NotTo(HaveOccurred())
	defer db.Close() //nolint:errcheck // It is read already.
	Expect(db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte("key"))
		for i := 1; err == nil && i <= revisions; i++ {
			key := append(binary.BigEndian.AppendUint64(nil, uint64(i)), '_')
			err = bucket.Put(binary.BigEndian.AppendUint64(key, 0), bytes.Repeat([]byte("v"), 200))
		}
		return err
	})).To(Succeed())
	var out bytes.Buffer
	Expect(db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(&out)
		return err
	})).To(Succeed())
	sum := sha256.Sum256(out.Bytes())
	return append(out.Bytes(), sum[:]...), int64(revisions)
}

func readFile(path string) []byte {
	GinkgoHelper()
	data, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return data
}
