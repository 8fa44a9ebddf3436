// SPDX-License-Identifier: Apache-2.0

// Package move_test moves targets from one management cluster to another, with the real clusterctl.
package move_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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

// The clusters, each in a namespace of its name: clusterctl moves all that is in one.
var (
	finished = sim.ClusterSpec{Name: "finished", ControlPlanes: 1, Workers: 1}
	running  = sim.ClusterSpec{Name: "running", ControlPlanes: 1, Workers: 3}
)

// TestMain says aloud when there is nothing to test with.
func TestMain(m *testing.M) {
	for _, binary := range []string{"capi-core", "clusterctl"} {
		if !framework.MayRun(os.Stderr, binary) {
			if os.Getenv(framework.RequireVariable) == "1" {
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func TestMove(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Move")
}

// side is a management cluster: a hub and Cluster API's core controllers.
type side struct {
	*e2e.Installation

	client client.Client
	core   *capi.Core
}

func newSide(ctx context.Context, dir string, clusters ...sim.ClusterSpec) *side {
	GinkgoHelper()
	s := &side{}
	var err error
	s.Installation, err = e2e.Install(ctx, dir, speed, clusters...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return s.Installation.Stop() })
	s.core, err = capi.Start(ctx, filepath.Join(dir, "core"), s.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return s.core.Stop() })
	config, err := s.RESTConfig()
	Expect(err).NotTo(HaveOccurred())
	s.client, err = client.New(config, client.Options{Scheme: scheme.New()})
	Expect(err).NotTo(HaveOccurred())
	return s
}

var (
	from, to   *side
	clusterctl capi.Clusterctl
)

var _ = BeforeSuite(func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	from = newSide(ctx, filepath.Join(dir, "from"), finished, running)
	to = newSide(ctx, filepath.Join(dir, "to"))
	clusterctl = capi.Clusterctl{Dir: dir}
}, NodeTimeout(10*time.Minute))

var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() || to == nil || to.core == nil {
		return
	}
	for _, path := range []string{from.core.Log(), from.HubLog(), to.core.Log(), to.HubLog()} {
		const most = 4 << 10
		log, _ := os.ReadFile(path)
		AddReportEntry("end of "+path, string(log[max(0, len(log)-most):]), ReportEntryVisibilityFailureOrVerbose)
	}
})

// adopt makes a cluster as Cluster API's providers do, and lets the hub manage it.
func adopt(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(from.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	provider, cluster := capi.Provider{Client: from.client, Namespace: name}, from.Fleet.Cluster(name)
	Expect(provider.Cluster(ctx, cluster)).To(Succeed())
	for _, node := range cluster.Nodes() {
		Expect(provider.Machine(ctx, cluster, node)).To(Succeed())
	}
	from.ichor(ctx, 0, "cluster", "import", name, "-n", name)
	Eventually(condition(ctx, from, name, &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
	Eventually(func() []string { return withoutNode(ctx, from, name) }).WithContext(ctx).Should(BeEmpty())
	Eventually(condition(ctx, from, name, &clusterv1.Cluster{}, clusterv1.ClusterControlPlaneInitializedCondition)).WithContext(ctx).Should(HavePrefix("True"))
}

// withoutNode are the Machines of a cluster that Cluster API has not found the Nodes of.
func withoutNode(ctx context.Context, s *side, cluster string) (names []string) {
	list := &clusterv1.MachineList{}
	Expect(s.client.List(ctx, list, client.InNamespace(cluster))).To(Succeed())
	for i := range list.Items {
		if !list.Items[i].Status.NodeRef.IsDefined() {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// ichor runs the CLI and expects it to end with an exit code.
func (s *side) ichor(ctx context.Context, code int, args ...string) e2e.Result {
	GinkgoHelper()
	result, err := s.CLI(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	Expect(result.Code).To(Equal(code), "ichor %v: %s", args, result)
	return result
}

// move moves all that is in a namespace.
func move(ctx context.Context, namespace string) {
	GinkgoHelper()
	out, err := clusterctl.Run(ctx, "move", "-n", namespace, "--kubeconfig", from.Kubeconfig(), "--to-kubeconfig", to.Kubeconfig(), "-v", "5")
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("clusterctl move", out, ReportEntryVisibilityFailureOrVerbose)
}

func operationOn(ctx context.Context, s *side, cluster string) *v1alpha1.TalosOperation {
	GinkgoHelper()
	list := &v1alpha1.TalosOperationList{}
	Expect(s.client.List(ctx, list, client.InNamespace(cluster))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

// condition says how a condition of an object in the namespace of a cluster stands: status, reason and message.
func condition(ctx context.Context, s *side, cluster string, into interface {
	client.Object
	GetConditions() []metav1.Condition
}, kind string,
) func() string {
	name := into.GetName()
	if name == "" {
		name = cluster
	}
	return func() string {
		if err := s.client.Get(ctx, client.ObjectKey{Namespace: cluster, Name: name}, into); err != nil {
			return err.Error()
		}
		found := meta.FindStatusCondition(into.GetConditions(), kind)
		if found == nil {
			return "absent"
		}
		return fmt.Sprintf("%s %s %s", found.Status, found.Reason, found.Message)
	}
}

// reboots are the machines of a cluster that were rebooted after a point in the journal.
func reboots(cluster string, after uint64) (nodes []string) {
	for _, entry := range from.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, Method: invariant.RebootMethod, After: after}) {
		nodes = append(nodes, entry.Node)
	}
	return nodes
}

// left is what a move has left behind in a namespace.
func left(ctx context.Context, s *side, namespace string) (names []string) {
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.MachineList{}, &v1alpha1.TalosClusterList{}, &v1alpha1.TalosMachineList{}, &v1alpha1.TalosOperationList{},
	} {
		Expect(s.client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		items, err := meta.ExtractList(list)
		Expect(err).NotTo(HaveOccurred())
		for _, item := range items {
			object, ok := item.(client.Object)
			Expect(ok).To(BeTrue())
			names = append(names, fmt.Sprintf("%T %s (deleted %v, finalizers %v, annotations %v)", object, object.GetName(), object.GetDeletionTimestamp(), object.GetFinalizers(), object.GetAnnotations()))
		}
	}
	return names
}
