// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	// preDrain is the hub's hook on control planes, and theirPreDrain one of somebody else's.
	preDrain      = "pre-drain.delete.hook.machine.cluster.x-k8s.io/ichor"
	theirPreDrain = "pre-drain.delete.hook.machine.cluster.x-k8s.io/theirs"

	beforeUpgrade = "before-upgrade.hook.cluster.cluster.x-k8s.io/ichor"
	blockMove     = "clusterctl.cluster.x-k8s.io/block-move"
)

var _ = Describe("A control plane that Cluster API deletes", Ordered, func() {
	var doomed string // Its Machine.

	BeforeAll(func(ctx SpecContext) {
		w.adopt(ctx, "shrinking")
		Eventually(condition(ctx, "shrinking", &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
		for _, name := range []string{"cp-1", "cp-2", "cp-3"} {
			Eventually(func() map[string]string { return machineOf(ctx, "shrinking", name).Annotations }).WithContext(ctx).Should(HaveKey(preDrain))
		}
		Expect(machineOf(ctx, "shrinking", "worker-1").Annotations).NotTo(HaveKey(preDrain))
		doomed = machineOf(ctx, "shrinking", "cp-3").Name
	}, NodeTimeout(2*minute))

	It("waits for an upgrade, even where the hub is killed meanwhile", func(ctx SpecContext) {
		mark, leader := w.Fleet.Journal().Last(), w.Fleet.Cluster("shrinking").Leader().Name()
		w.ichor(ctx, 0, "upgrade", "talos", "1.14.1", "--cluster", "shrinking", "--yes")
		_, err := w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "shrinking", Method: invariant.RebootMethod, After: mark, Done: true})
		Expect(err).NotTo(HaveOccurred())
		op := operation(ctx, "shrinking")
		Expect(get(ctx, "shrinking", &clusterv1.Cluster{}).Annotations).To(HaveKeyWithValue(beforeUpgrade, "ichor-controller/op/default/"+op.Name))
		Expect(get(ctx, "shrinking", &v1alpha1.TalosCluster{}).Annotations).To(HaveKey(blockMove))

		annotate(ctx, get(ctx, doomed, &clusterv1.Machine{}), theirPreDrain, "")
		Expect(w.client.Delete(ctx, get(ctx, doomed, &clusterv1.Machine{}))).To(Succeed())
		Eventually(condition(ctx, doomed, &clusterv1.Machine{}, clusterv1.MachineDeletingCondition)).WithContext(ctx).Should(
			And(HavePrefix("True WaitingForPreDrainHook"), ContainSubstring(preDrain)))
		Eventually(notes).WithArguments(ctx, doomed).WithContext(ctx).Should(ContainElement(ContainSubstring(
			`the deletion waits for TalosOperation "default/` + op.Name + `"`)))
		Expect(w.KillHub()).To(Succeed())
		Expect(w.StartHub(ctx)).To(Succeed())
		Eventually(condition(ctx, doomed, &clusterv1.Machine{}, clusterv1.MachineDeletingCondition)).WithContext(ctx).Should(ContainSubstring(preDrain))

		Eventually(condition(ctx, op.Name, op, "Succeeded")).WithContext(ctx).Should(HavePrefix("True"))
		Expect(invariant.ReadRolling(w.Fleet.Journal(), "shrinking").Problems(leader, 1)).To(BeEmpty())
		Expect(rebootsOf("shrinking", mark)).To(HaveLen(4), "every machine once")
	}, SpecTimeout(4*minute))

	It("then goes on under the lock, which operations wait for, and leaves hooks of others alone", func(ctx SpecContext) {
		Eventually(func() string { return get(ctx, "shrinking", &v1alpha1.TalosCluster{}).Status.LockHolder }).WithContext(ctx).Should(
			Equal("ichor-controller/machine/default/shrinking-cp-3"))
		Eventually(func() map[string]string { return get(ctx, doomed, &clusterv1.Machine{}).Annotations }).WithContext(ctx).Should(
			And(Not(HaveKey(preDrain)), HaveKey(theirPreDrain)))
		for _, object := range []client.Object{&clusterv1.Cluster{}, &v1alpha1.TalosCluster{}} { // An operation that is over tidies up behind itself.
			Eventually(func() map[string]string { return get(ctx, "shrinking", object).GetAnnotations() }).WithContext(ctx).ShouldNot(
				Or(HaveKey(beforeUpgrade), HaveKey(blockMove)))
		}

		w.ichor(ctx, 0, "node", "reboot", "worker-1", "--cluster", "shrinking", "--yes")
		op := operation(ctx, "shrinking")
		Eventually(condition(ctx, op.Name, op, "Paused")).WithContext(ctx).Should(And(HavePrefix("True ClusterLockHeld"), ContainSubstring(doomed)))
		mark := w.Fleet.Journal().Last()
		unannotate(ctx, get(ctx, doomed, &clusterv1.Machine{}), theirPreDrain)
		Eventually(gone(ctx, doomed, &clusterv1.Machine{})).WithContext(ctx).Should(BeTrue())
		Eventually(condition(ctx, op.Name, op, "Succeeded")).WithContext(ctx).Should(HavePrefix("True"))
		Expect(rebootsOf("shrinking", mark)).To(Equal([]string{"worker-1"}))
		Eventually(func() string { return get(ctx, "shrinking", &v1alpha1.TalosCluster{}).Status.LockHolder }).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(2*minute))

	It("is not held any more once the hub lets the cluster go", func(ctx SpecContext) {
		Eventually(condition(ctx, "shrinking", &clusterv1.Cluster{}, v1alpha1.TalosAvailableCondition)).WithContext(ctx).ShouldNot(Equal("absent"))
		w.ichor(ctx, 0, "cluster", "forget", "shrinking", "--yes")
		for _, name := range []string{"cp-1", "cp-2"} {
			Eventually(func() map[string]string { return machineOf(ctx, "shrinking", name).Annotations }).WithContext(ctx).ShouldNot(HaveKey(preDrain))
		}
		Eventually(condition(ctx, "shrinking", &clusterv1.Cluster{}, v1alpha1.TalosAvailableCondition)).WithContext(ctx).Should(Equal("absent"))
	}, SpecTimeout(minute))

	It("is not adopted against the will of whoever owns the Cluster", func(ctx SpecContext) {
		annotate(ctx, get(ctx, "shrinking", &clusterv1.Cluster{}), v1alpha1.OptOutAnnotation, "")
		result, err := w.CLI(ctx, "cluster", "import", "shrinking")
		Expect(err).NotTo(HaveOccurred())
		Expect(result.Code).NotTo(BeZero())
		Expect(result.Err).To(ContainSubstring("ichor.maesh.dev/opt-out"))
		unannotate(ctx, get(ctx, "shrinking", &clusterv1.Cluster{}), v1alpha1.OptOutAnnotation)
		w.ichor(ctx, 0, "cluster", "import", "shrinking")
		Eventually(func() map[string]string { return machineOf(ctx, "shrinking", "cp-1").Annotations }).WithContext(ctx).Should(HaveKey(preDrain))
	}, SpecTimeout(minute))
})

func annotate(ctx context.Context, object client.Object, key, value string) {
	GinkgoHelper()
	before, ok := object.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
	Expect(w.client.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
}

func unannotate(ctx context.Context, object client.Object, key string) {
	GinkgoHelper()
	before, ok := object.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	annotations := object.GetAnnotations()
	delete(annotations, key)
	object.SetAnnotations(annotations)
	Expect(w.client.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
}

// notes are the notes of the events about an object.
func notes(ctx context.Context, name string) []string {
	list := &eventsv1.EventList{}
	Expect(w.client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	var found []string
	for _, event := range list.Items {
		if event.Regarding.Name == name {
			found = append(found, event.Note)
		}
	}
	return found
}

// rebootsOf are the machines of a cluster that the hub rebooted after a point in the journal.
func rebootsOf(cluster string, after uint64) []string {
	var nodes []string
	for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, Method: invariant.RebootMethod, After: after}) {
		nodes = append(nodes, entry.Node)
	}
	return nodes
}

// hubWrites are the annotations of a Machine that the hub has written, as its managed fields tell them.
func hubWrites(entries []metav1.ManagedFieldsEntry) (fields []string) {
	for _, entry := range entries {
		if strings.HasPrefix(entry.Manager, "ichor-hub") {
			fields = append(fields, entry.Subresource+entry.FieldsV1.GetRawString())
		}
	}
	return fields
}
