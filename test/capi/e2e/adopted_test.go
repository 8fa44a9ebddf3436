// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// skip is the annotation that keeps health checks from a Machine.
const skip = clusterv1.MachineSkipRemediationAnnotation

var _ = Describe("A cluster of Cluster API's providers", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		w.adopt(ctx, "adopted")
		Eventually(condition(ctx, "adopted", &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
	}, NodeTimeout(minute))

	It("is found by its Machines", func(ctx SpecContext) {
		for _, node := range w.Fleet.Cluster("adopted").Nodes() {
			Eventually(func() string { return machineOf(ctx, "adopted", node.Name()).Status.NodeRef.Name }).WithContext(ctx).Should(Equal(node.Name()))
			machine, talos := machineOf(ctx, "adopted", node.Name()), get(ctx, "adopted-"+node.Name(), &v1alpha1.TalosMachine{})
			Expect(talos.Status.MachineName).To(Equal(machine.Name))
			Expect(talos.Spec.UUID).To(Equal(machine.Status.NodeInfo.SystemUUID))
			Expect(talos.Spec.Approval).To(Equal(v1alpha1.Approved))
			Expect(talos.OwnerReferences).To(ConsistOf(HaveField("UID", machine.UID)), "it goes with its Machine, and moves with it")
		}
		talos := get(ctx, "adopted", &v1alpha1.TalosCluster{})
		Expect(talos.OwnerReferences).To(ConsistOf(HaveField("UID", get(ctx, "adopted", &clusterv1.Cluster{}).UID)))
		Expect(talos.Spec.KubernetesVersion).To(BeEmpty(), "the version of Kubernetes is its control plane provider's")
		Expect(condition(ctx, "adopted", talos, "MachinesDiscovered")()).To(HavePrefix("True"))
	}, SpecTimeout(minute))

	It("is left alone by both sides once it is settled", func(ctx SpecContext) { expectQuiet(ctx, "adopted") }, SpecTimeout(4*minute))

	It("is upgraded by the hub, which keeps health checks from the machine in work and from no other", func(ctx SpecContext) {
		leader := w.Fleet.Cluster("adopted").Leader().Name()
		skips := watchSkips(ctx, "adopted")
		w.ichor(ctx, 0, "upgrade", "talos", "1.14.1", "--cluster", "adopted", "--follow", "--yes")

		Expect(invariant.ReadRolling(w.Fleet.Journal(), "adopted").Problems(leader, 1)).To(BeEmpty())
		op := operation(ctx, "adopted")
		for _, node := range w.Fleet.Cluster("adopted").Nodes() {
			Expect(node.State().Running.Version).To(Equal("v1.14.1"))
			Eventually(func() []skipped { return skips.of(machineOf(ctx, "adopted", node.Name()).Name) }).WithContext(ctx).Should(HaveLen(2), "%s: asked for and taken back, once", node.Name())
			asked := skips.of(machineOf(ctx, "adopted", node.Name()).Name)
			Expect(asked[0].owner).To(Equal("ichor-controller/op/default/" + op.Name))
			Expect(asked[1].owner).To(BeEmpty())
			drained, ready := span(node.Name())
			Expect(asked[0].seen).To(BeTemporally("<", drained), "%s: before anything was done to it", node.Name())
			Expect(asked[1].seen).To(BeTemporally(">", ready), "%s: not before it was back", node.Name())
		}
	}, SpecTimeout(2*minute))

	It("is written by the hub nowhere but at that annotation, its hook and its condition", func(ctx SpecContext) {
		cluster := get(ctx, "adopted", &clusterv1.Cluster{})
		Expect(statusWriters(cluster)).To(ConsistOf("capi-core", conditionOwner))
		for _, fields := range hubWrites(cluster.ManagedFields) {
			Expect(fields).To(Or(Equal(`{}`), And(HavePrefix(`status{"f:status":{"f:conditions":{"k:{\"type\":\"ichor.maesh.dev/TalosAvailable\"}":`), Not(ContainSubstring("},\"k:")))))
		}
		for _, node := range w.Fleet.Cluster("adopted").Nodes() {
			machine := machineOf(ctx, "adopted", node.Name())
			Expect(statusWriters(machine)).To(ConsistOf("capi-core"))
			Expect(machine.Annotations).NotTo(HaveKey(skip))
			for _, fields := range hubWrites(machine.ManagedFields) {
				if node.ControlPlane() {
					Expect(fields).To(Equal(`{"f:metadata":{"f:annotations":{"f:` + preDrain + `":{}}}}`))
				} else {
					Expect(fields).To(Equal(`{}`), "it took back all that it wrote")
				}
			}
		}
	}, SpecTimeout(minute))

	It("is told of by a condition of its Cluster, which may be a gate of that", func(ctx SpecContext) {
		cluster := get(ctx, "adopted", &clusterv1.Cluster{})
		gated := cluster.DeepCopy()
		gated.Spec.AvailabilityGates = []clusterv1.ClusterAvailabilityGate{{ConditionType: v1alpha1.TalosAvailableCondition}}
		Expect(w.client.Patch(ctx, gated, client.MergeFrom(cluster))).To(Succeed())
		Eventually(condition(ctx, "adopted", &clusterv1.Cluster{}, v1alpha1.TalosAvailableCondition)).WithContext(ctx).Should(HavePrefix("True Available"))
		Eventually(condition(ctx, "adopted", &clusterv1.Cluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))

		secret := get(ctx, "adopted-talosconfig", &corev1.Secret{})
		Expect(w.client.Delete(ctx, secret.DeepCopy())).To(Succeed())
		Eventually(condition(ctx, "adopted", &clusterv1.Cluster{}, v1alpha1.TalosAvailableCondition)).WithContext(ctx).Should(HavePrefix("False NotAvailable"))
		Eventually(condition(ctx, "adopted", &clusterv1.Cluster{}, "Available")).WithContext(ctx).Should(
			And(HavePrefix("False"), ContainSubstring("ichor.maesh.dev/TalosAvailable: CredentialsValid")))
		secret.ResourceVersion, secret.UID = "", ""
		Expect(w.client.Create(ctx, secret)).To(Succeed())
		Eventually(condition(ctx, "adopted", &clusterv1.Cluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
	}, SpecTimeout(minute))

	It("keeps an annotation that somebody else put there", func(ctx SpecContext) {
		machine := machineOf(ctx, "adopted", "worker-2")
		theirs := machine.DeepCopy()
		metav1.SetMetaDataAnnotation(&theirs.ObjectMeta, skip, "")
		Expect(w.client.Patch(ctx, theirs, client.MergeFrom(machine))).To(Succeed())
		skips := watchSkips(ctx, "adopted")
		w.ichor(ctx, 0, "node", "reboot", "worker-2", "--cluster", "adopted", "--follow", "--yes")
		w.ichor(ctx, 0, "node", "reboot", "worker-1", "--cluster", "adopted", "--follow", "--yes")
		Eventually(func() []skipped { return skips.of(machineOf(ctx, "adopted", "worker-1").Name) }).WithContext(ctx).Should(HaveLen(2))
		Expect(skips.of(machine.Name)).To(BeEmpty(), "the hub wrote nothing")
		Expect(machineOf(ctx, "adopted", "worker-2").Annotations).To(HaveKeyWithValue(skip, ""))
	}, SpecTimeout(minute))

	It("is not touched while it is paused, and goes on when it is unpaused", func(ctx SpecContext) {
		mark := w.Fleet.Journal().Last()
		w.ichor(ctx, 0, "upgrade", "talos", "1.14.2", "--cluster", "adopted", "--yes")
		_, err := w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "adopted", Method: invariant.RebootMethod, After: mark, Done: true})
		Expect(err).NotTo(HaveOccurred())
		setPaused(ctx, "adopted", true)

		op := operation(ctx, "adopted")
		Eventually(condition(ctx, op.Name, op, "LockHeld")).WithContext(ctx).Should(HavePrefix("False Released"), "it settles, and gives the lock back")
		Expect(condition(ctx, op.Name, op, "Paused")()).To(HavePrefix("True ClusterPaused"))
		Eventually(condition(ctx, "adopted", &clusterv1.Cluster{}, "Paused")).WithContext(ctx).Should(HavePrefix("True"), "so does Cluster API")
		paused := w.Fleet.Journal().Last()
		begun, probed := rebooted(mark), probes("adopted")
		Expect(begun).To(HaveLen(1), "the machine in hand, to its end")
		Eventually(probes).WithArguments("adopted").WithContext(ctx).Should(BeNumerically(">", probed+1))
		Expect(changes("adopted", paused)).To(BeEmpty())

		setPaused(ctx, "adopted", false)
		Eventually(condition(ctx, op.Name, op, "Succeeded")).WithContext(ctx).Should(HavePrefix("True"))
		Expect(rebooted(mark)).To(HaveLen(5), "every machine once")
		for _, node := range w.Fleet.Cluster("adopted").Nodes() {
			if node.Name() != "worker-2" {
				Eventually(func() map[string]string { return machineOf(ctx, "adopted", node.Name()).Annotations }).WithContext(ctx).ShouldNot(HaveKey(skip))
			}
		}
	}, SpecTimeout(2*minute))

	It("loses a machine whose Machine goes", func(ctx SpecContext) {
		mark := w.Fleet.Journal().Last()
		machine := machineOf(ctx, "adopted", "worker-2")
		Expect(w.client.Delete(ctx, machine)).To(Succeed())
		Eventually(gone(ctx, machine.Name, &clusterv1.Machine{})).WithContext(ctx).Should(BeTrue())
		Eventually(gone(ctx, "adopted-worker-2", &v1alpha1.TalosMachine{})).WithContext(ctx).Should(BeTrue())
		Expect(changes("adopted", mark)).To(BeEmpty())
	}, SpecTimeout(minute))

	It("is forgotten when its Cluster is deleted, and no machine notices", func(ctx SpecContext) {
		mark := w.Fleet.Journal().Last()
		Expect(w.client.Delete(ctx, get(ctx, "adopted", &clusterv1.Cluster{}))).To(Succeed())
		for name, object := range map[string]client.Object{
			"adopted": &clusterv1.Cluster{}, "adopted-cp-1": &v1alpha1.TalosMachine{}, "adopted-worker-1": &v1alpha1.TalosMachine{},
		} {
			Eventually(gone(ctx, name, object)).WithContext(ctx).Should(BeTrue(), name)
		}
		Eventually(gone(ctx, "adopted", &v1alpha1.TalosCluster{})).WithContext(ctx).Should(BeTrue())
		Expect(changes("adopted", mark)).To(BeEmpty())
	}, SpecTimeout(minute))
})

var _ = Describe("A member that Cluster API does not know", func() {
	It("is named and not touched", func(ctx SpecContext) {
		w.adopt(ctx, "stranger", "worker-2")
		talos := &v1alpha1.TalosCluster{}
		Eventually(condition(ctx, "stranger", talos, "Available")).WithContext(ctx).Should(HavePrefix("True"))
		Eventually(condition(ctx, "stranger", talos, "MachinesDiscovered")).WithContext(ctx).Should(And(
			HavePrefix("False MembersWithoutMachine"), ContainSubstring(w.Fleet.Cluster("stranger").Node("worker-2").Address()), ContainSubstring(`"worker-2"`),
		))
		Expect(gone(ctx, "stranger-worker-2", &v1alpha1.TalosMachine{})()).To(BeTrue())

		w.ichor(ctx, 0, "upgrade", "talos", "1.14.1", "--cluster", "stranger", "--follow", "--yes")
		Expect(w.Fleet.Cluster("stranger").Node("worker-1").State().Running.Version).To(Equal("v1.14.1"))
		Expect(w.Fleet.Cluster("stranger").Node("worker-2").State().Running.Version).To(Equal("v1.13.6"))

		By("getting its Machine, and with it a place in the hub")
		cluster := w.Fleet.Cluster("stranger")
		Expect(w.provider.Machine(ctx, cluster, cluster.Node("worker-2"))).To(Succeed())
		Eventually(condition(ctx, "stranger", talos, "MachinesDiscovered")).WithContext(ctx).Should(HavePrefix("True"))
		Expect(get(ctx, "stranger-worker-2", &v1alpha1.TalosMachine{}).Spec.Approval).To(Equal(v1alpha1.Approved))
	}, SpecTimeout(2*minute))
})

func setPaused(ctx context.Context, name string, paused bool) {
	GinkgoHelper()
	cluster := get(ctx, name, &clusterv1.Cluster{})
	changed := cluster.DeepCopy()
	changed.Spec.Paused = ptr.To(paused)
	Expect(w.client.Patch(ctx, changed, client.MergeFrom(cluster))).To(Succeed())
}

// rebooted are the machines of the adopted cluster that the hub rebooted after a point in the journal.
func rebooted(after uint64) []string {
	var nodes []string
	for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: "adopted", Method: invariant.RebootMethod, After: after}) {
		nodes = append(nodes, entry.Node)
	}
	return nodes
}

// span is when the hub cordoned a node of the adopted cluster, and when the node was ready again.
func span(node string) (cordoned, ready time.Time) {
	for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: "adopted"}) {
		switch {
		case entry.Node == node && entry.Method == invariant.InstallMethod && cordoned.IsZero():
			cordoned = entry.Time
		case entry.Node == node && entry.Method == invariant.ReadyEvent:
			ready = entry.Time
		}
	}
	return cordoned, ready
}

// skipped is one change of who keeps health checks from a Machine.
type skipped struct {
	owner string
	seen  time.Time
}

// skips are the changes that a watch has seen, by Machine.
type skips struct {
	mu   sync.Mutex
	seen map[string][]skipped
}

func watchSkips(ctx context.Context, cluster string) *skips {
	GinkgoHelper()
	var list clusterv1.MachineList
	ofCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}
	Expect(w.client.List(ctx, &list, client.InNamespace(namespace), ofCluster)).To(Succeed())
	last := map[string]string{}
	for i := range list.Items {
		last[list.Items[i].Name] = list.Items[i].Annotations[skip]
	}
	watched, err := w.client.Watch(ctx, &clusterv1.MachineList{}, client.InNamespace(namespace), ofCluster,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watched.Stop)
	s := &skips{seen: map[string][]skipped{}}
	go func() {
		for event := range watched.ResultChan() {
			if machine, ok := event.Object.(*clusterv1.Machine); ok && machine.Annotations[skip] != last[machine.Name] {
				last[machine.Name] = machine.Annotations[skip]
				s.add(machine.Name, last[machine.Name])
			}
		}
	}()
	return s
}

func (s *skips) add(machine, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[machine] = append(s.seen[machine], skipped{owner: owner, seen: time.Now()})
}

func (s *skips) of(machine string) []skipped {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen[machine])
}
