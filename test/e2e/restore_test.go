// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const (
	resetMethod     = "MachineService/Reset"
	recoverMethod   = "MachineService/EtcdRecover"
	bootstrapMethod = "MachineService/Bootstrap"
	serviceMethod   = "MachineService/ServiceRestart"
)

// write writes an object of a name into a cluster.
func write(ctx context.Context, api kubernetes.Interface, name string) {
	GinkgoHelper()
	_, err := api.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// written are the objects that write has written and that are there.
func written(ctx context.Context, api kubernetes.Interface) []string {
	GinkgoHelper()
	list, err := api.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, object := range list.Items {
		if strings.HasSuffix(object.Name, "-the-snapshot") {
			names = append(names, object.Name)
		}
	}
	return names
}

// photographed takes a snapshot of a cluster, between something that was written before and something after.
func (w *world) photographed(ctx context.Context, cluster, name string) {
	GinkgoHelper()
	w.backUp(ctx, cluster, v1alpha1.EtcdBackupSpec{BucketURL: "file://" + w.snapshotDir()})
	api := w.kube(cluster)
	write(ctx, api, "before-the-snapshot")
	renewed := metav1.NewMicroTime(time.Now())
	_, err := api.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "a-controller"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	w.ichor(ctx, 0, "snapshot", "take", "--cluster", cluster, "--name", name, "--follow")
	write(ctx, api, "after-the-snapshot")
}

// called are the nodes that got a call, in order of the first ones.
func (w *world) called(cluster, method string) []string {
	return slices.Compact(slices.Sorted(slices.Values(w.order(cluster, method))))
}

// awaitCall waits until a cluster got a call.
func (w *world) awaitCall(ctx context.Context, cluster, method string) {
	GinkgoHelper()
	_, err := w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: cluster, Method: method})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("Restoring a cluster", func() {
	It("puts it back to the snapshot, with the hub killed at each turn", func(ctx SpecContext) {
		w := install(ctx, three)
		w.photographed(ctx, "three", "s1")
		controlPlanes := []string{"cp-1", "cp-2", "cp-3"}

		By("nobody does that by accident")
		Expect(w.ichor(ctx, 2, "cluster", "restore", "three", "--safety-snapshot").Err).To(ContainSubstring("--from SNAPSHOT"))
		Expect(w.ichor(ctx, 2, "cluster", "restore", "three", "--from", "s1").Err).To(ContainSubstring("either --safety-snapshot or --no-safety-snapshot"))
		Expect(w.ichor(ctx, 2, "cluster", "restore", "three", "--from", "s1", "--safety-snapshot", "--yes").Err).To(And(
			ContainSubstring("etcd goes back to a snapshot"), ContainSubstring("add --confirm three")))
		Expect(w.ichor(ctx, 1, "cluster", "restore", "three", "--from", "s2", "--no-safety-snapshot", "--confirm", "three").Err).To(ContainSubstring("SnapshotUsable"))
		plan := w.ichor(ctx, 0, "operation", "plan", "restore", "three", "--from", "s1", "--safety-snapshot")
		Expect(plan.Out).To(And(ContainSubstring("Wipe: takes machines away, all at once"), ContainSubstring("whatever was written to the Kubernetes API since")))
		Expect(w.order("three", resetMethod)).To(BeEmpty())

		w.ichor(ctx, 0, "cluster", "restore", "three", "--from", "s1", "--safety-snapshot", "--confirm", "three")
		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		for _, method := range []string{resetMethod, recoverMethod, bootstrapMethod, serviceMethod} {
			w.awaitCall(ctx, "three", method)
			w.kill(ctx)
		}
		w.ichor(ctx, 0, "operation", "watch", op.Name)

		By("what was written before is there, and what was written after is not")
		Eventually(w.Unavailable).WithContext(ctx).Should(BeEmpty())
		Expect(written(ctx, w.kube("three"))).To(Equal([]string{"before-the-snapshot"}))
		Expect(w.called("three", resetMethod)).To(Equal(controlPlanes), "one twice, if it was back before the hub was, and has joined the others again")
		Expect(w.called("three", bootstrapMethod)).To(Equal([]string{"cp-1"}), "two would be two clusters")
		Expect(w.called("three", serviceMethod)).To(Equal([]string{"worker-1", "worker-2"}))
		leases, err := w.kube("three").CoordinationV1().Leases("default").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(leases.Items).To(BeEmpty(), "nobody waits for who held it then")

		By("there is a way back, and the next operation trusts the cluster")
		Expect(w.ichor(ctx, 0, "snapshot", "list", "--cluster", "three").Out).To(MatchRegexp(`Restore +True`))
		record, err := w.kube("three").CoreV1().ConfigMaps(kube.RecordNamespace).Get(ctx, kube.RecordName, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(record.Data).To(HaveKeyWithValue("stage", "Clean"))
		w.ichor(ctx, 0, "node", "reboot", "worker-1", "--cluster", "three", "--yes", "--follow")
	}, SpecTimeout(5*time.Minute))

	It("brings one back that has lost its quorum", func(ctx SpecContext) {
		w := install(ctx, three)
		w.photographed(ctx, "three", "s1")
		id, err := w.Fleet.Inject(fault.Fault{Name: fault.EtcdNoLeader, Cluster: "three"})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "cluster", "restore", "three", "--from", "s1", "--no-safety-snapshot", "--confirm", "three")
		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		w.awaitCall(ctx, "three", recoverMethod)
		w.Fleet.Clear(id)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		Expect(written(ctx, w.kube("three"))).To(Equal([]string{"before-the-snapshot"}))
	}, SpecTimeout(3*time.Minute))

	It("tells a control plane once more that has forgotten it over a boot (I1, I5)", func(ctx SpecContext) {
		w := install(ctx, one)
		w.photographed(ctx, "one", "s1")
		_, err := w.Fleet.Inject(fault.Fault{Name: fault.BootstrapLost, Cluster: "one", Times: 1})
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "cluster", "restore", "one", "--from", "s1", "--no-safety-snapshot", "--confirm", "one")
		op, err := w.operation(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		w.awaitCall(ctx, "one", bootstrapMethod)
		node := w.machineOf("one", "cp-1")
		node.PowerOff()
		node.PowerOn()
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		Expect(w.order("one", bootstrapMethod)).To(Equal([]string{"cp-1", "cp-1"}))
		Expect(w.order("one", resetMethod)).To(Equal([]string{"cp-1"}))
		Expect(written(ctx, w.kube("one"))).To(Equal([]string{"before-the-snapshot"}))
	}, SpecTimeout(3*time.Minute))

	It("goes on without a control plane that dies in the middle, once somebody says that it is lost", func(ctx SpecContext) {
		w := install(ctx, three)
		w.photographed(ctx, "three", "s1")
		w.ichor(ctx, 0, "cluster", "restore", "three", "--from", "s1", "--no-safety-snapshot", "--confirm", "three")
		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		w.awaitCall(ctx, "three", recoverMethod)
		w.machineOf("three", "cp-3").PowerOff()
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", op.Name).Out }).WithContext(ctx).Should(
			ContainSubstring("kubectl -n default delete talosmachine three-cp-3"))
		Expect(w.client.Delete(ctx, &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "three-cp-3"}})).To(Succeed())
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		Expect(written(ctx, w.kube("three"))).To(Equal([]string{"before-the-snapshot"}))
	}, SpecTimeout(4*time.Minute))

	It("refuses what it cannot restore before it touches anything (I3)", func(ctx SpecContext) {
		w := install(ctx, three)
		w.photographed(ctx, "three", "s1")
		taken := w.snapshot(ctx, "s1")
		data, err := os.ReadFile(filepath.Join(w.snapshotDir(), taken.Spec.Contents.Location.Key))
		Expect(err).NotTo(HaveOccurred())
		for name, row := range map[string]struct {
			code     int
			contents func(*v1alpha1.SnapshotContents)
			stored   func([]byte) []byte
			says     string
		}{
			"corrupt":   {3, nil, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "is not what was stored"},
			"truncated": {3, nil, func(b []byte) []byte { return b[:len(b)/2] }, "is not what was stored"},
			"hash-less": {1, func(c *v1alpha1.SnapshotContents) { c.SizeBytes -= 32 }, nil, "does not end with a SHA-256"},
			"foreign-ca": {3, func(c *v1alpha1.SnapshotContents) { // With the same key of service accounts it would be one that was rotated since.
				c.Keys.KubernetesCA, c.Keys.ServiceAccount = strings.Repeat("0", 64), strings.Repeat("0", 64)
			}, nil, "the Kubernetes CA is another one"},
			"foreign-account": {3, func(c *v1alpha1.SnapshotContents) { c.Keys.ServiceAccount = strings.Repeat("0", 64) }, nil,
				"the key of service accounts is another one"},
			"foreign-key": {3, func(c *v1alpha1.SnapshotContents) { c.Keys.Encryption[0].Fingerprint = strings.Repeat("0", 64) }, nil,
				"encrypts Secrets of the snapshot, is not in the machine config"},
			"newer-etcd": {3, func(c *v1alpha1.SnapshotContents) { c.EtcdVersion = "3.7.1" }, nil, "cannot read it"},
			"gone":       {3, func(c *v1alpha1.SnapshotContents) { c.Location.Key += ".gone" }, nil, "is not stored any more"},
		} {
			made := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: *taken.Spec.DeepCopy()}
			made.Spec.Contents.Location.Key = "default/three/" + name + "/x.db"
			stored := slices.Clone(data)
			if row.stored != nil {
				stored = row.stored(stored)
			}
			file := filepath.Join(w.snapshotDir(), made.Spec.Contents.Location.Key)
			Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
			Expect(os.WriteFile(file, stored, 0o600)).To(Succeed())
			if row.contents != nil {
				row.contents(made.Spec.Contents)
			}
			Expect(w.client.Create(ctx, made)).To(Succeed())
			result := w.ichor(ctx, row.code, "cluster", "restore", "three", "--from", name, "--no-safety-snapshot", "--confirm", "three", "--follow")
			Expect(result.Out+result.Err).To(ContainSubstring(row.says), name)
			op, err := w.operation(ctx, "three")
			Expect(err).NotTo(HaveOccurred())
			if op != nil {
				w.ichor(ctx, 0, "operation", "delete", op.Name)
				Eventually(func() error { _, err := w.get(ctx, op)(); return err }).WithContext(ctx).ShouldNot(Succeed())
			}
		}
		Expect(w.order("three", resetMethod)).To(BeEmpty())
		Expect(w.order("three", recoverMethod)).To(BeEmpty())
		Expect(written(ctx, w.kube("three"))).To(HaveLen(2))
	}, SpecTimeout(4*time.Minute))
})
