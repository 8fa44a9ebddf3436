// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/lock"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// shutdownMethod is the call that powers a machine off.
const shutdownMethod = "MachineService/Shutdown"

var _ = Describe("Stopping and starting a cluster", func() {
	It("takes everything down in order and gives everything back, with the hub killed where the API is gone (D16, D3)", func(ctx SpecContext) {
		w := install(ctx, three)
		leader := w.leaders()["three"]
		_, err := w.Fleet.Inject(fault.Fault{Name: fault.ForeignCordon, Cluster: "three", Node: "worker-2"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(w.cordoned("three")).WithContext(ctx).Should(Equal([]string{"worker-2"}))
		w.marked(ctx, "three")

		By("nobody stops a cluster by accident")
		Expect(w.ichor(ctx, 2, "cluster", "shutdown", "three").Err).To(ContainSubstring("either --snapshot or --no-snapshot"))
		Expect(w.ichor(ctx, 2, "cluster", "shutdown", "three", "--no-snapshot", "--yes").Err).To(ContainSubstring("add --confirm three"))
		Expect(w.ichor(ctx, 1, "cluster", "shutdown", "three", "--snapshot", "--confirm", "three").Err).To(ContainSubstring("SnapshotStorage"))
		plan := w.ichor(ctx, 0, "operation", "plan", "shutdown", "three", "--no-snapshot")
		Expect(plan.Out).To(And(ContainSubstring("machines stop"), ContainSubstring("ControlPlanes: takes machines away, one at a time"), ContainSubstring("ichor cluster start three")))
		Expect(w.ichor(ctx, 1, "cluster", "start", "three").Err).To(ContainSubstring("ClusterStopped"))

		w.ichor(ctx, 0, "cluster", "shutdown", "three", "--no-snapshot", "--confirm", "three")
		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		By("killed once a worker goes off, and again once the last control plane has")
		_, err = w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "three", Node: "worker-1", Method: invariant.DownEvent})
		Expect(err).NotTo(HaveOccurred())
		w.kill(ctx)
		_, err = w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "three", Node: leader, Method: invariant.DownEvent})
		Expect(err).NotTo(HaveOccurred())
		w.kill(ctx)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		down := w.order("three", invariant.DownEvent)
		Expect(down[:2]).To(ConsistOf("worker-1", "worker-2"))
		Expect(down[4]).To(Equal(leader))
		Expect(w.order("three", shutdownMethod)).To(HaveLen(5), "each machine is told once")
		Expect(w.order("three", "kube POST pods/eviction")).To(BeEmpty())

		By("it is off on purpose, says so, and holds no lock")
		Eventually(func() (string, error) {
			lease := &coordinationv1.Lease{}
			err := w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: lock.LeaseName("three")}, lease)
			return lock.HolderOf(lease).Identity, err
		}).WithContext(ctx).Should(BeEmpty())
		Eventually(func() string { return w.ichor(ctx, 0, "cluster", "get", "three").Out }).WithContext(ctx).Should(And(
			ContainSubstring(fmt.Sprintf("was stopped on purpose by TalosOperation %q at ", "default/"+op.Name)),
			ContainSubstring("ichor cluster start three"), MatchRegexp(`Available +False +Stopped`), MatchRegexp(`TalosReachable +False +Stopped`)))
		Expect(w.ichor(ctx, 1, "upgrade", "talos", "v1.14.1", "--cluster", "three", "--yes").Err).To(And(
			ContainSubstring("ClusterRunning"), ContainSubstring("power its machines on, then: ichor cluster start three")))

		By("the operation is not needed any more")
		w.ichor(ctx, 0, "operation", "delete", op.Name)
		Eventually(func() error { _, err := w.get(ctx, op)(); return err }).WithContext(ctx).ShouldNot(Succeed())
		w.ichor(ctx, 0, "cluster", "start", "three", "--yes")
		again, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", again.Name).Out }).WithContext(ctx).Should(And(
			ContainSubstring("MachinesPoweredOn"), ContainSubstring("power on the control planes three-cp-1, three-cp-2, three-cp-3"), ContainSubstring("whoever powers the machines on")))
		w.powerOn("three", "cp-")
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", again.Name).Out }).WithContext(ctx).Should(
			ContainSubstring("power on the workers three-worker-1, three-worker-2"))
		w.kill(ctx)
		w.powerOn("three", "worker-")
		w.ichor(ctx, 0, "operation", "watch", again.Name)
		Expect(w.cordoned("three")(ctx)).To(Equal([]string{"worker-2"}), "somebody had cordoned it before")
		Expect(w.markedStill(ctx, "three")).To(BeTrue(), "etcd has kept its data")
		Eventually(w.Unavailable).WithContext(ctx).Should(BeEmpty())
		Expect(w.ichor(ctx, 0, "cluster", "get", "three").Out).NotTo(ContainSubstring("on purpose"))
		w.ichor(ctx, 0, "node", "reboot", "worker-2", "--cluster", "three", "--yes", "--follow")
	}, SpecTimeout(5*time.Minute))

	It("has every shape", func(ctx SpecContext) {
		shapes := []sim.ClusterSpec{{Name: "s1-0", ControlPlanes: 1}, {Name: "s2-1", ControlPlanes: 2, Workers: 1}, {Name: "s5-3", ControlPlanes: 5, Workers: 3}}
		w := install(ctx, shapes...)
		leaders := w.leaders()
		for _, shape := range shapes {
			w.ichor(ctx, 0, "cluster", "shutdown", shape.Name, "--no-snapshot", "--confirm", shape.Name)
		}
		for _, shape := range shapes {
			op, err := w.operation(ctx, shape.Name)
			Expect(err).NotTo(HaveOccurred())
			w.ichor(ctx, 0, "operation", "watch", op.Name)
			down := w.order(shape.Name, invariant.DownEvent)
			Expect(down).To(HaveLen(shape.ControlPlanes+shape.Workers), shape.Name)
			for _, name := range down[:shape.Workers] {
				Expect(name).To(HavePrefix("worker-"), shape.Name)
			}
			Expect(down[len(down)-1]).To(Equal(leaders[shape.Name]), shape.Name)
			w.powerOn(shape.Name, "")
			w.ichor(ctx, 0, "cluster", "start", shape.Name, "--yes", "--follow")
			Expect(w.cordoned(shape.Name)(ctx)).To(BeEmpty(), shape.Name)
		}
	}, SpecTimeout(6*time.Minute))

	It("stops at a machine that powers itself on, and goes on when somebody has seen to that", func(ctx SpecContext) {
		w := install(ctx, one)
		_, err := w.Fleet.Inject(fault.Fault{Name: fault.PowerReturns, Cluster: "one", Node: "worker-2", Times: 1})
		Expect(err).NotTo(HaveOccurred())
		result := w.ichor(ctx, 3, "cluster", "shutdown", "one", "--no-snapshot", "--confirm", "one", "--follow")
		Expect(result.Err).To(And(ContainSubstring("one-worker-2"), ContainSubstring("back by itself"), ContainSubstring("ichor operation resume")))
		Expect(w.order("one", invariant.DownEvent)).NotTo(ContainElement("cp-1"))
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		Expect(w.ichor(ctx, 1, "cluster", "start", "one", "--yes").Err).To(ContainSubstring("OperationUnfinished"))
		w.ichor(ctx, 0, "operation", "resume", op.Name)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		Expect(w.order("one", invariant.DownEvent)).To(HaveLen(5))
		Expect(w.order("one", shutdownMethod)).To(HaveLen(5))
	}, SpecTimeout(4*time.Minute))

	It("waits for a machine that does not go off, and is stopped once its power is cut", func(ctx SpecContext) {
		w := install(ctx, one)
		_, err := w.Fleet.Inject(fault.Fault{Name: fault.ShutdownStuck, Cluster: "one", Node: "worker-3"})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "cluster", "shutdown", "one", "--no-snapshot", "--confirm", "one")
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", op.Name).Out }).WithContext(ctx).Should(
			And(ContainSubstring(`not off yet: it answers, in stage "shutting down"`), ContainSubstring("cut its power")))
		Expect(w.order("one", invariant.DownEvent)).NotTo(ContainElement("cp-1"))
		Expect(w.Fleet.Power("one", "worker-3", false)).To(Succeed())
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		Expect(w.order("one", invariant.DownEvent)).To(HaveLen(4))
		Expect(w.order("one", shutdownMethod)).To(HaveLen(4))
	}, SpecTimeout(4*time.Minute))
})

// kill kills the hub with signal 9 and starts it again.
func (w *world) kill(ctx context.Context) {
	GinkgoHelper()
	Expect(w.KillHub()).To(Succeed())
	Expect(w.StartHub(ctx)).To(Succeed())
}

// order are the nodes of a cluster that the journal has a call or an event of, in order.
func (w *world) order(cluster, method string) []string {
	var names []string
	for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, Method: method}) {
		names = append(names, entry.Node)
	}
	return names
}

// powerOn powers on the nodes of a cluster whose names begin so.
func (w *world) powerOn(cluster, begin string) {
	GinkgoHelper()
	for _, node := range w.Fleet.Cluster(cluster).Nodes() {
		if strings.HasPrefix(node.Name(), begin) {
			node.PowerOn()
		}
	}
}

// kube is a client of a simulated cluster's own Kubernetes API.
func (w *world) kube(cluster string) kubernetes.Interface {
	GinkgoHelper()
	config, err := clientcmd.RESTConfigFromKubeConfig(w.Fleet.Cluster(cluster).Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	k, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return k
}

// cordoned are the Nodes of a cluster that are cordoned, whoever has done that. None may be left with the mark of an operation alone.
func (w *world) cordoned(cluster string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		nodes, err := w.kube(cluster).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, node := range nodes.Items {
			if node.Spec.Unschedulable || node.Annotations[v1alpha1.CordonedByAnnotation] != "" {
				names = append(names, node.Name)
			}
		}
		slices.Sort(names)
		return names, nil
	}
}

// marked leaves something in a cluster that only its etcd can keep.
func (w *world) marked(ctx context.Context, cluster string) {
	GinkgoHelper()
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "mark"}, Data: map[string]string{"kept": "yes"}}
	_, err := w.kube(cluster).CoreV1().ConfigMaps("kube-system").Create(ctx, mark, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// markedStill says whether it is there still.
func (w *world) markedStill(ctx context.Context, cluster string) (bool, error) {
	mark, err := w.kube(cluster).CoreV1().ConfigMaps("kube-system").Get(ctx, "mark", metav1.GetOptions{})
	return err == nil && mark.Data["kept"] == "yes", err
}
