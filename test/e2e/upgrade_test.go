// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/test/e2e"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

var (
	three = sim.ClusterSpec{Name: "three", ControlPlanes: 3, Workers: 2}
	one   = sim.ClusterSpec{Name: "one", ControlPlanes: 1, Workers: 3}
)

var _ = Describe("Upgrading Talos", func() {
	It("upgrades two clusters at the same time", func(ctx SpecContext) {
		w := install(ctx, three, one)
		leaders := w.leaders()
		done := make(chan e2e.Result, 2)
		for _, args := range [][]string{{"--cluster", "three"}, {"--cluster", "one", "--max-unavailable", "2"}} {
			go func() {
				defer GinkgoRecover()
				done <- w.ichor(ctx, 0, append([]string{"upgrade", "talos", "1.14.1", "--follow", "--yes"}, args...)...)
			}()
		}
		for range 2 {
			var result e2e.Result
			Eventually(done).WithContext(ctx).Should(Receive(&result))
			Expect(result.Out).To(And(ContainSubstring("Rebooting"), ContainSubstring("Completed within")))
		}
		Expect(invariant.ReadRolling(w.Fleet.Journal(), "three").Problems(leaders["three"], 1)).To(BeEmpty())
		Expect(invariant.ReadRolling(w.Fleet.Journal(), "one").Problems(leaders["one"], 2)).To(BeEmpty())
		Expect(overlap(w.Fleet.Journal())).To(BeTrue(), "the two upgrades ran one after the other")
		for _, cluster := range w.Fleet.Clusters() {
			expectUpgraded(w, cluster)
		}
		Eventually(func() string { return w.ichor(ctx, 0, "cluster", "list").Out }).WithContext(ctx).Should(MatchRegexp(`three +True +v1.14.1 +v1.14.1 .* 5/5`))
	}, SpecTimeout(3*time.Minute))

	It("goes on after kill -9 between install and reboot", func(ctx SpecContext) {
		killAndGoOn(ctx, journal.Filter{Cluster: "three", Method: invariant.InstallMethod, Done: true})
	}, SpecTimeout(3*time.Minute))

	It("goes on after kill -9 during the reboot", func(ctx SpecContext) {
		killAndGoOn(ctx, journal.Filter{Cluster: "three", Method: invariant.DownEvent})
	}, SpecTimeout(3*time.Minute))

	It("makes a second operation wait, whoever made it, and starts it within a second", func(ctx SpecContext) {
		w := install(ctx, one)
		w.ichor(ctx, 0, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--yes")
		first, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		Eventually(w.get(ctx, first)).Should(HaveField("Status.Phase", v1alpha1.OperationInProgress))

		second := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"}, Spec: v1alpha1.TalosOperationSpec{
			ClusterName: "one", Kind: v1alpha1.NodeKind, Node: &v1alpha1.NodeParameters{Machine: "one-worker-1", Action: v1alpha1.RebootAction},
		}}
		w.createPlainly(ctx, second)
		released := w.seen(ctx, &coordinationv1.LeaseList{}, lock.LeaseName("one"), func(o client.Object) bool {
			return lock.HolderOf(o.(*coordinationv1.Lease)).Identity != lock.Operation(first).Identity
		})
		started := w.seen(ctx, &v1alpha1.TalosOperationList{}, second.Name, func(o client.Object) bool {
			op := o.(*v1alpha1.TalosOperation)
			return op.Status.Phase == v1alpha1.OperationInProgress && meta.IsStatusConditionTrue(op.Status.Conditions, v1alpha1.LockHeldCondition)
		})
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", "second").Out }).WithContext(ctx).Should(And(
			ContainSubstring("ClusterLockHeld"),
			ContainSubstring(fmt.Sprintf("held by TalosOperation %q", "default/"+first.Name)),
		))
		w.ichor(ctx, 0, "operation", "watch", "second")
		Expect(w.client.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
		Expect(w.client.Get(ctx, client.ObjectKeyFromObject(second), second)).To(Succeed())
		Expect(second.Status.StartTime.Time).To(BeTemporally(">=", first.Status.CompletionTime.Time))
		var from, to time.Time
		Eventually(released).WithContext(ctx).Should(Receive(&from))
		Eventually(started).WithContext(ctx).Should(Receive(&to))
		Expect(to.Sub(from)).To(BeNumerically("<=", time.Second)) // Times in status have whole seconds, and would hide up to one.
		AddReportEntry("from the release to the start", to.Sub(from))
	}, SpecTimeout(3*time.Minute))

	It("pauses when a node falls back, touches no other node, and goes on from there", func(ctx SpecContext) {
		w := install(ctx, three)
		_, err := w.Fleet.Inject(fault.Fault{Name: "fallback", Cluster: "three", Times: 1})
		Expect(err).NotTo(HaveOccurred())
		result := w.ichor(ctx, 3, "upgrade", "talos", "v1.14.1", "--cluster", "three", "--follow", "--yes")
		Expect(result.Err).To(And(ContainSubstring("StepFailed"), ContainSubstring("runs v1.13.6 instead of v1.14.1"), ContainSubstring("ichor operation resume")))
		rolling := invariant.ReadRolling(w.Fleet.Journal(), "three")
		Expect(rolling.Order).To(HaveLen(1))
		Expect(rolling.Installs).To(HaveLen(1))

		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "operation", "resume", op.Name)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		again := invariant.ReadRolling(w.Fleet.Journal(), "three")
		Expect(again.Order[1]).To(Equal(rolling.Order[0]), "the node that fell back comes first")
		Expect(again.Order).To(HaveLen(6))
		expectUpgraded(w, w.Fleet.Cluster("three"))
	}, SpecTimeout(3*time.Minute))

	It("pauses when an installer fails", func(ctx SpecContext) {
		w := install(ctx, one)
		_, err := w.Fleet.Inject(fault.Fault{Name: "installer-exit", Cluster: "one", Times: 1, Params: map[string]string{"code": "6"}})
		Expect(err).NotTo(HaveOccurred())
		result := w.ichor(ctx, 3, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--follow", "--yes")
		Expect(result.Err).To(ContainSubstring("exit code 6"))
		Expect(invariant.ReadRolling(w.Fleet.Journal(), "one").Order).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))

	It("waits while a node cannot be reached, and says which", func(ctx SpecContext) {
		w := install(ctx, one)
		id, err := w.Fleet.Inject(fault.Fault{Name: "unreachable", Cluster: "one", Node: "worker-1"})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "upgrade", "talos", "v1.14.1", "--cluster", "one", "--yes")
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", op.Name).Out }).WithContext(ctx).Should(
			And(ContainSubstring("TargetReachable"), ContainSubstring("machine one-worker-1 does not answer")))
		Expect(w.Fleet.Clear(id)).To(BeTrue())
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		expectUpgraded(w, w.Fleet.Cluster("one"))
	}, SpecTimeout(3*time.Minute))
})

// killAndGoOn kills the hub as soon as the journal has an entry, starts it again, and expects that nothing happened twice.
func killAndGoOn(ctx context.Context, at journal.Filter) {
	GinkgoHelper()
	w := install(ctx, three)
	leader := w.leaders()["three"]
	w.ichor(ctx, 0, "upgrade", "talos", "v1.14.1", "--cluster", "three", "--yes")
	op, err := w.operation(ctx, "three")
	Expect(err).NotTo(HaveOccurred())
	entry, err := w.Fleet.Journal().Wait(ctx, at)
	Expect(err).NotTo(HaveOccurred())
	if at.Method == invariant.InstallMethod { // "None is installed twice once the outcome was recorded": let it be.
		Eventually(w.get(ctx, op)).Should(WithTransform(func(o *v1alpha1.TalosOperation) bool {
			for _, machine := range o.Status.Machines {
				installing := machine.Step == v1alpha1.InstallingStep
				if machine.Stage == "Upgrade" && (!installing || machine.Outcome != nil) {
					return true
				}
			}
			return false
		}, BeTrue()))
	}
	Expect(w.KillHub()).To(Succeed())
	By("killed at " + entry.Node + ": " + entry.Method)
	Expect(w.StartHub(ctx)).To(Succeed())
	w.ichor(ctx, 0, "operation", "watch", op.Name)
	Expect(invariant.ReadRolling(w.Fleet.Journal(), "three").Problems(leader, 1)).To(BeEmpty())
	expectUpgraded(w, w.Fleet.Cluster("three"))
}

// createPlainly creates an operation as any client of Kubernetes does. An API server that has just started is not ready for the policy that
// says who created an object, and answers so, until it has looked for schemas once more; see config/policies/mutating/created-by.yaml.
func (w *world) createPlainly(ctx context.Context, op *v1alpha1.TalosOperation) {
	GinkgoHelper()
	Eventually(func() error {
		err := w.client.Create(ctx, op)
		if err != nil && !apierrors.IsServiceUnavailable(err) {
			return StopTrying("refused").Wrap(err)
		}
		return err
	}).WithContext(ctx).Should(Succeed())
}

func (w *world) get(ctx context.Context, op *v1alpha1.TalosOperation) func() (*v1alpha1.TalosOperation, error) {
	key := types.NamespacedName{Namespace: op.Namespace, Name: op.Name}
	return func() (*v1alpha1.TalosOperation, error) {
		current := &v1alpha1.TalosOperation{}
		err := w.client.Get(ctx, key, current)
		return current, err
	}
}

// seen is when an object was first like that, by the clock of the test.
func (w *world) seen(ctx context.Context, list client.ObjectList, name string, like func(client.Object) bool) <-chan time.Time {
	GinkgoHelper()
	watcher, err := w.client.Watch(ctx, list, client.InNamespace("default"), client.MatchingFields{metav1.ObjectNameField: name})
	Expect(err).NotTo(HaveOccurred())
	at := make(chan time.Time, 1)
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			if object, ok := event.Object.(client.Object); ok && like(object) {
				at <- time.Now()
				return
			}
		}
	}()
	return at
}

// expectUpgraded looks at the machines themselves.
func expectUpgraded(w *world, cluster *sim.Cluster) {
	GinkgoHelper()
	for _, node := range cluster.Nodes() {
		state := node.State()
		Expect(state.Running.Version).To(Equal("v1.14.1"), node.Name())
		Expect(state.Running.Schematic).To(Equal(sim.VanillaSchematic), node.Name())
	}
	for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster.Name(), Method: "kube PATCH nodes/*"}) {
		Expect(entry.Code).To(Equal("200"))
	}
}

// overlap says whether nodes of different clusters were away at the same time.
func overlap(j *journal.Journal) bool {
	away := map[string]string{}
	for _, entry := range j.Entries(journal.Filter{}) {
		switch entry.Method {
		case invariant.DownEvent:
			away[entry.Node] = entry.Cluster
		case invariant.ReadyEvent:
			delete(away, entry.Node)
		}
		clusters := map[string]bool{}
		for _, cluster := range away {
			clusters[cluster] = true
		}
		if len(clusters) > 1 {
			return true
		}
	}
	return false
}
