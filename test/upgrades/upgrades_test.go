// SPDX-License-Identifier: Apache-2.0

// Package upgrades_test upgrades simulated clusters whose machines need more than the common way: an old Talos, storage to be moved.
package upgrades_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	upgradeMethod = "MachineService/Upgrade"
	evictMethod   = "kube POST pods/*"
)

// world is a hub and one simulated cluster that it knows.
type world struct {
	*WithT
	*harness.Harness

	ctx  context.Context
	kube kubernetes.Interface
}

func start(t *testing.T, o harness.Options, cluster sim.ClusterSpec) *world {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	o.Clusters = []sim.ClusterSpec{cluster}
	h, err := harness.Start(ctx, o)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Stop()).To(Succeed()) })
	g.Expect(h.Import(ctx, cluster.Name)).To(Succeed())
	config, err := clientcmd.RESTConfigFromKubeConfig(h.Fleet.Cluster(cluster.Name).Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	kube, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return &world{WithT: g, Harness: h, ctx: ctx, kube: kube}
}

// hold makes rolling operations skip a machine, or take it again.
func (w *world) hold(machine string, held bool) {
	m := &v1alpha1.TalosMachine{}
	w.Expect(w.Client.Get(w.ctx, client.ObjectKey{Namespace: harness.Namespace, Name: machine}, m)).To(Succeed())
	before := m.DeepCopy()
	delete(m.Annotations, v1alpha1.UpgradeHoldAnnotation)
	if held {
		m.Annotations = map[string]string{v1alpha1.UpgradeHoldAnnotation: "not yet"}
	}
	w.Expect(w.Client.Patch(w.ctx, m, client.MergeFrom(before))).To(Succeed())
}

// upgrade upgrades the cluster and waits for the end.
func (w *world) upgrade(cluster, version string) *v1alpha1.TalosOperation {
	op, err := w.Upgrade(w.ctx, cluster, version, 0)
	w.Expect(err).NotTo(HaveOccurred())
	op, err = w.WaitFor(w.ctx, op, harness.Completed())
	w.Expect(err).NotTo(HaveOccurred())
	return op
}

// versions are what the nodes of a cluster run.
func (w *world) versions(cluster string) map[string]string {
	running := map[string]string{}
	for _, node := range w.Fleet.Cluster(cluster).Nodes() {
		running[node.Name()] = node.State().Running.Version
	}
	return running
}

// called are the nodes on which a method has succeeded, sorted.
func (w *world) called(method string) []string {
	nodes := map[string]bool{}
	for _, entry := range w.Journal().Entries(journal.Filter{Method: method, Done: true}) {
		if entry.Code == "OK" {
			nodes[entry.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// Machines that run Talos before 1.13 are upgraded by their one call, drained by the hub before it; those that run a later one, in the same
// operation, by the calls of that. A hub that is killed meanwhile changes nothing about it.
func TestOneClusterOfTalosBeforeAndAfter113(t *testing.T) {
	w := start(t, harness.Options{}, sim.ClusterSpec{Name: "old", ControlPlanes: 3, Workers: 2, TalosVersion: "v1.12.4"})
	w.hold("old-cp-1", true)
	w.hold("old-worker-1", true)
	w.upgrade("old", "v1.13.6")
	w.Expect(w.versions("old")).To(Equal(map[string]string{
		"cp-1": "v1.12.4", "cp-2": "v1.13.6", "cp-3": "v1.13.6", "worker-1": "v1.12.4", "worker-2": "v1.13.6",
	}))
	w.Expect(w.called(upgradeMethod)).To(Equal([]string{"cp-2", "cp-3", "worker-2"}))
	w.Expect(w.called(invariant.InstallMethod)).To(BeEmpty())
	w.expectDrainedByTheHub("worker-2")

	w.hold("old-cp-1", false)
	w.hold("old-worker-1", false)
	before := w.Journal().Last()
	op, err := w.Upgrade(w.ctx, "old", "v1.13.9", 0)
	w.Expect(err).NotTo(HaveOccurred())
	_, err = w.Journal().Wait(w.ctx, journal.Filter{Node: "cp-1", Method: upgradeMethod, After: before})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.KillHub()).To(Succeed())
	w.Expect(w.StartHub()).To(Succeed())
	_, err = w.WaitFor(w.ctx, op, harness.Completed())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(slices.Compact(slices.Sorted(maps.Values(w.versions("old"))))).To(Equal([]string{"v1.13.9"}))
	w.Expect(w.called(upgradeMethod)).To(Equal([]string{"cp-1", "cp-2", "cp-3", "worker-1", "worker-2"}))
	w.Expect(w.called(invariant.InstallMethod)).To(Equal([]string{"cp-2", "cp-3", "worker-2"}))
	w.Expect(w.called(invariant.RebootMethod)).To(Equal([]string{"cp-2", "cp-3", "worker-2"}))
	for _, node := range w.Fleet.Cluster("old").Nodes() {
		boots := 1
		if slices.Contains([]string{"cp-2", "cp-3", "worker-2"}, node.Name()) {
			boots = 2
		}
		w.Expect(w.Journal().Entries(journal.Filter{Node: node.Name(), Method: invariant.BootEvent})).To(HaveLen(boots), node.Name())
	}
	w.Expect(w.Rules("old").Violations(w.Journal())).To(BeEmpty())
	w.expectSchedulable()
}

// expectDrainedByTheHub finds that the hub cordoned a node and evicted its pods before it told it to upgrade.
func (w *world) expectDrainedByTheHub(node string) {
	told := w.Journal().Entries(journal.Filter{Node: node, Method: upgradeMethod})
	w.Expect(told).NotTo(BeEmpty())
	evicted := 0
	for _, entry := range w.Journal().Entries(journal.Filter{Method: evictMethod, Done: true}) {
		if entry.Arguments["node"] == node && entry.Code == "201" && entry.Sequence < told[0].Sequence {
			w.Expect(entry.Arguments["agent"]).To(Equal(invariant.HubAgent), "%+v\n%+v", entry, told)
			evicted++
		}
	}
	w.Expect(evicted).To(BeNumerically(">", 0))
}

func (w *world) expectSchedulable() {
	list, err := w.kube.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	for _, node := range list.Items {
		w.Expect(node.Spec.Unschedulable).To(BeFalse(), node.Name)
		w.Expect(node.Annotations).NotTo(HaveKey(v1alpha1.StorageEvacuatedByAnnotation), node.Name)
	}
}

// storage puts replicas on a Node, which makes the simulated storage operator use it.
func (w *world) storage(node, replicas string) {
	w.change(node, func(annotations map[string]string) { annotations[v1alpha1.StorageReplicasAnnotation] = replicas })
}

func (w *world) change(node string, change func(map[string]string)) {
	w.Eventually(func() error {
		n, err := w.kube.CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		change(n.Annotations)
		_, err = w.kube.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{})
		return err
	}).WithContext(w.ctx).Should(Succeed())
}

func (w *world) annotation(node, key string) string {
	n, err := w.kube.CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	return n.Annotations[key]
}

// Replicas leave a machine before its pods do, and may come again when it is back; machines without storage are asked nothing.
func TestStorageIsEvacuatedBeforeTheDrain(t *testing.T) {
	w := start(t, harness.Options{}, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 3})
	w.storage("worker-1", "2")
	w.storage("worker-2", "1")
	op := w.upgrade("a", "v1.14.1")
	steps := map[string][]v1alpha1.OperationStep{}
	for _, unit := range op.Status.Machines {
		for _, record := range unit.Steps {
			if record.Step == v1alpha1.EvacuatingStep || record.Step == v1alpha1.DrainingStep {
				steps[unit.Name] = append(steps[unit.Name], record.Step)
			}
		}
	}
	w.Expect(steps).To(Equal(map[string][]v1alpha1.OperationStep{
		"a-cp-1": {"Draining"}, "a-worker-1": {"Evacuating", "Draining"}, "a-worker-2": {"Evacuating", "Draining"}, "a-worker-3": {"Draining"},
	}))
	w.Expect(w.annotation("worker-1", v1alpha1.StorageReplicasAnnotation)).To(Equal("3"), "it was there when the other went away")
	w.Expect(w.annotation("worker-2", v1alpha1.StorageReplicasAnnotation)).To(Equal("0"))
	w.expectSchedulable()
}

// Replicas that have nowhere to go stop the operation, which never goes on without them, and their Node is used again. With room for them
// a retry goes on.
func TestCaseD17StorageThatDoesNotLeavePauses(t *testing.T) {
	w := start(t, harness.Options{Deadlines: map[v1alpha1.OperationStep]time.Duration{v1alpha1.EvacuatingStep: time.Second}},
		sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 2})
	w.storage("worker-1", "2")
	op, err := w.Reboot(w.ctx, "a", "worker-1")
	w.Expect(err).NotTo(HaveOccurred())
	_, err = w.WaitFor(w.ctx, op, harness.Paused(v1alpha1.StepFailedReason, "Evacuating failed", "waiting for the storage to move 2 replicas off Node worker-1"))
	w.Expect(err).NotTo(HaveOccurred())
	w.expectSchedulable()
	w.Expect(w.called(invariant.RebootMethod)).To(BeEmpty())
	w.Expect(w.Journal().Entries(journal.Filter{Method: evictMethod})).To(BeEmpty())

	w.storage("worker-2", "0")
	w.Expect(w.Resume(w.ctx, op)).To(Succeed())
	_, err = w.WaitFor(w.ctx, op, harness.Completed())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.annotation("worker-2", v1alpha1.StorageReplicasAnnotation)).To(Equal("2"))
	w.expectSchedulable()
}

// An operation that is deleted while replicas move gives the Node back to the storage.
func TestCaseD17StorageIsRestoredOnDeletion(t *testing.T) {
	w := start(t, harness.Options{}, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 2})
	w.storage("worker-1", "2")
	op, err := w.Reboot(w.ctx, "a", "worker-1")
	w.Expect(err).NotTo(HaveOccurred())
	_, err = w.WaitFor(w.ctx, op, harness.InStep("a-worker-1", v1alpha1.EvacuatingStep))
	w.Expect(err).NotTo(HaveOccurred())
	w.Eventually(func() string { return w.annotation("worker-1", v1alpha1.StorageEvacuatedByAnnotation) }).Should(Equal("default/" + op.Name))
	w.Expect(w.Client.Delete(w.ctx, op)).To(Succeed())
	w.Expect(w.WaitForGone(w.ctx, op)).To(Succeed())
	w.expectSchedulable()
	w.Expect(w.called(invariant.RebootMethod)).To(BeEmpty())
}
