// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/capi"
	"ichor.maesh.dev/hub/test/e2e"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// speed is how much faster than in the demo the fleet lives.
const speed = 8

const (
	namespace = "default"
	minute    = time.Minute
)

// The clusters: one that is imported, one that Git brings, and some that Cluster API's providers made.
var (
	imported = sim.ClusterSpec{Name: "imported", ControlPlanes: 1, Workers: 1}
	fromGit  = sim.ClusterSpec{Name: "from-git", ControlPlanes: 1}
	adopted  = sim.ClusterSpec{Name: "adopted", ControlPlanes: 3, Workers: 2}
	checked  = sim.ClusterSpec{Name: "checked", ControlPlanes: 1, Workers: 3}
	stranger = sim.ClusterSpec{Name: "stranger", ControlPlanes: 1, Workers: 2}
	remedied = sim.ClusterSpec{Name: "remedied", ControlPlanes: 1, Workers: 3}
	shrinks  = sim.ClusterSpec{Name: "shrinking", ControlPlanes: 3, Workers: 1}
	doomed   = sim.ClusterSpec{Name: "doomed", ControlPlanes: 3, Workers: 2}
)

// TestMain says aloud when there is nothing to test with.
func TestMain(m *testing.M) {
	if !framework.MayRun(os.Stderr, "capi-core") {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestBesideClusterAPI(t *testing.T) {
	if _, err := capi.Binary(); err != nil {
		t.Skipf("Cluster API's core controllers are not built: %s", err)
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Beside Cluster API")
}

// world is a hub and Cluster API's core controllers on one management API, and a simulated fleet.
type world struct {
	*e2e.Installation

	client   client.WithWatch
	core     *capi.Core
	provider capi.Provider
}

var w *world

var _ = BeforeSuite(func(ctx SpecContext) {
	w = &world{}
	var err error
	dir := GinkgoT().TempDir()
	w.Installation, err = e2e.Install(ctx, dir, speed, imported, fromGit, adopted, checked, stranger, shrinks, remedied, doomed)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return w.Installation.Stop() })
	w.core, err = capi.Start(ctx, filepath.Join(dir, "core"), w.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return w.core.Stop() })
	config, err := w.RESTConfig()
	Expect(err).NotTo(HaveOccurred())
	w.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	Expect(err).NotTo(HaveOccurred())
	w.provider = capi.Provider{Client: w.client, Namespace: namespace}
}, NodeTimeout(2*time.Minute))

var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() || w == nil || w.core == nil {
		return
	}
	for _, path := range []string{w.core.Log(), w.HubLog()} {
		const most = 8 << 10
		log, _ := os.ReadFile(path)
		AddReportEntry("end of "+filepath.Base(path), string(log[max(0, len(log)-most):]), ReportEntryVisibilityFailureOrVerbose)
	}
})

// adopt makes a cluster as Cluster API's providers do, with Machines of all nodes but some, and lets the hub manage it.
func (w *world) adopt(ctx context.Context, name string, but ...string) {
	GinkgoHelper()
	cluster := w.Fleet.Cluster(name)
	Expect(w.provider.Cluster(ctx, cluster)).To(Succeed())
	for _, node := range cluster.Nodes() {
		if strings.Join(but, "") != node.Name() {
			Expect(w.provider.Machine(ctx, cluster, node)).To(Succeed())
		}
	}
	w.ichor(ctx, 0, "cluster", "import", name)
}

// ichor runs the CLI and expects it to end with an exit code.
func (w *world) ichor(ctx context.Context, code int, args ...string) e2e.Result {
	GinkgoHelper()
	result, err := w.CLI(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	Expect(result.Code).To(Equal(code), "ichor %v: %s", args, result)
	return result
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: namespace, Name: name} }

// get reads an object.
func get[T client.Object](ctx context.Context, name string, into T) T {
	GinkgoHelper()
	Expect(w.client.Get(ctx, key(name), into)).To(Succeed())
	return into
}

// condition says how a condition of an object stands: status, reason and message.
func condition(ctx context.Context, name string, into interface {
	client.Object
	GetConditions() []metav1.Condition
}, kind string,
) func() string {
	return func() string {
		if err := w.client.Get(ctx, key(name), into); err != nil {
			return err.Error()
		}
		found := meta.FindStatusCondition(into.GetConditions(), kind)
		if found == nil {
			return "absent"
		}
		return fmt.Sprintf("%s %s %s", found.Status, found.Reason, found.Message)
	}
}

// machineOf is the Machine of a node.
func machineOf(ctx context.Context, cluster, node string) *clusterv1.Machine {
	GinkgoHelper()
	simulated := w.Fleet.Cluster(cluster)
	return get(ctx, w.provider.MachineName(simulated, simulated.Node(node)), &clusterv1.Machine{})
}

// operation is the newest operation of a cluster.
func operation(ctx context.Context, cluster string) *v1alpha1.TalosOperation {
	GinkgoHelper()
	var list v1alpha1.TalosOperationList
	Expect(w.client.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
	var newest *v1alpha1.TalosOperation
	for i := range list.Items {
		op := &list.Items[i]
		if op.Spec.ClusterName == cluster && (newest == nil || newest.CreationTimestamp.Before(&op.CreationTimestamp)) {
			newest = op
		}
	}
	Expect(newest).NotTo(BeNil(), "cluster %s has no operation", cluster)
	return newest
}

// changes are the calls that changed a cluster after a point in the journal: all of the Talos API, and the hub's of the Kubernetes API.
// What Cluster API does to the Nodes of its Machines is its own business.
func changes(cluster string, after uint64) []string {
	var calls []string
	reads := w.Fleet.Journal().Reads()
	for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, After: after}) {
		_, read := reads[cluster+"/"+entry.Node+"/"+entry.Method]
		event := strings.HasPrefix(entry.Method, "event ")
		theirs := strings.HasPrefix(entry.Method, "kube ") && entry.Arguments["agent"] != invariant.HubAgent
		if !read && !event && !theirs {
			calls = append(calls, entry.Node+" "+entry.Method)
		}
	}
	return calls
}
