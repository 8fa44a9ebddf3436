// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/sim"
)

const (
	resetMethod     = "MachineService/Reset"
	recoverMethod   = "MachineService/EtcdRecover"
	bootstrapMethod = "MachineService/Bootstrap"
)

// A cluster is put back to a snapshot by a hub that is killed at each step.
func TestDeepHubRestores(t *testing.T) {
	for name, spec := range map[string]sim.ClusterSpec{
		"one control plane":                    {Name: "c", ControlPlanes: 1},
		"three control planes and two workers": {Name: "c", ControlPlanes: 3, Workers: 2},
		"five control planes":                  {Name: "c", ControlPlanes: 5},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			m := manage(ctx, t, spec)
			m.backUp(ctx, t)
			kube := kubeClient(t, m.cluster)
			taken := m.photographed(ctx, t, kube)
			m.refuses(ctx, t, taken)
			m.restored(ctx, t, kube, taken)
		})
	}
}

// photographed takes a snapshot, and changes afterwards what is in it.
func (m *managed) photographed(ctx context.Context, t *testing.T, kube *kubernetes.Clientset) *v1alpha1.EtcdSnapshot {
	t.Helper()
	g := NewWithT(t)
	for _, name := range []string{"kept", "changed", "deleted"} {
		g.Expect(put(ctx, kube, name)).To(Succeed())
	}
	renewed := metav1.NewMicroTime(time.Now())
	_, err := kube.CoordinationV1().Leases(metav1.NamespaceDefault).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "a-controller"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	taken := m.takeSnapshot(ctx, t, "s1")
	maps := kube.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := range 20 {
		g.Expect(put(ctx, kube, fmt.Sprintf("later-%02d", i))).To(Succeed())
	}
	_, err = maps.Update(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "changed"}, Data: map[string]string{"written": "later"},
	}, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(maps.Delete(ctx, "deleted", metav1.DeleteOptions{})).To(Succeed())
	return taken
}

// refuses has the hub refuse what is stored when that is damaged, before it touches anything.
func (m *managed) refuses(ctx context.Context, t *testing.T, taken *v1alpha1.EtcdSnapshot) {
	t.Helper()
	g := NewWithT(t)
	file := filepath.Join(m.SnapshotDir(), taken.Spec.Contents.Location.Key)
	whole, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	spoilt := append([]byte{}, whole...)
	spoilt[len(spoilt)/2] ^= 1
	for name, data := range map[string][]byte{"one bit is another": spoilt, "the end is not there": whole[:len(whole)-4096]} {
		g.Expect(os.WriteFile(file, data, 0o600)).To(Succeed())
		op, err := m.Begin(ctx, m.restore(v1alpha1.SafetySnapshotNone))
		g.Expect(err).NotTo(HaveOccurred())
		_, err = m.WaitFor(ctx, op, harness.Paused(v1alpha1.StepFailedReason), harness.OperationCondition(
			v1alpha1.SucceededCondition, metav1.ConditionFalse, "", "the snapshot cannot be used", "is not what was stored"))
		g.Expect(err).NotTo(HaveOccurred(), name)
		_, err = m.Service.Delete(ctx, op, false, "")
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(ctx, func() error { _, err := m.Operation(ctx, op); return err }).WithPolling(poll).ShouldNot(Succeed())
	}
	g.Expect(os.WriteFile(file, whole, 0o600)).To(Succeed())
	g.Expect(m.asked(resetMethod)).To(BeEmpty())
	g.Expect(m.asked(recoverMethod)).To(BeEmpty())
}

func (m *managed) restore(safety v1alpha1.SafetySnapshot) v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{ClusterName: m.name, Kind: v1alpha1.EtcdRestoreKind, EtcdRestore: &v1alpha1.EtcdRestoreParameters{
		SnapshotName: "s1", SafetySnapshot: safety,
	}}
}

// restored restores the snapshot, and finds what was in it and nothing else.
func (m *managed) restored(ctx context.Context, t *testing.T, kube *kubernetes.Clientset, taken *v1alpha1.EtcdSnapshot) {
	t.Helper()
	g := NewWithT(t)
	spec := m.cluster.Spec()
	op, err := m.Begin(ctx, m.restore(v1alpha1.SafetySnapshotTake))
	g.Expect(err).NotTo(HaveOccurred())
	_, kills := m.over(ctx, t, op, m.storm(ctx, t, op))
	g.Expect(kills).To(ContainElements("Check/Checking", "Snapshot/Snapshotting", "Wipe/Resetting", "Wipe/Preparing",
		"Recover/Recovering", "Recover/Bootstrapping", "Recover/Verifying", "Clean/Cleaning"))
	if spec.ControlPlanes > 1 {
		g.Expect(kills).To(ContainElement("Join/Joining"))
	}
	if spec.Workers > 0 {
		g.Expect(kills).To(ContainElement("Kubelets/Restarting"))
	}

	// One etcd was begun, and all others are members of it.
	var controlPlanes, all []string
	for _, n := range m.cluster.Nodes() {
		all = append(all, n.Name())
		if n.ControlPlane() {
			controlPlanes = append(controlPlanes, n.Name())
		}
	}
	wiped := m.asked(resetMethod)
	g.Expect(wiped).To(And(ContainElements(controlPlanes), HaveEach(BeElementOf(controlPlanes))))
	if len(controlPlanes) == 1 { // One of several that is back before another one goes has joined that, and is wiped once more.
		g.Expect(wiped).To(HaveLen(1))
	}
	g.Expect(m.asked(bootstrapMethod)).To(HaveEach("cp-1"), "two would be two clusters")
	api := talosClient(t, m.cluster)
	for _, name := range controlPlanes {
		g.Expect(voters(ctx, api, m.cluster.Node(name))).To(ConsistOf(controlPlanes), "as %s tells", name)
	}

	// What was written before is as it was then, and what was written later is not there.
	g.Expect(names(ctx, kube)).To(ConsistOf("kept", "changed", "deleted"))
	changed, err := kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "changed", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed.Data).To(HaveKeyWithValue("written", "changed"))
	leases, err := kube.CoordinationV1().Leases(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(leases.Items).To(BeEmpty(), "nobody waits for who held it then")
	g.Eventually(ctx, readyNodes).WithArguments(ctx, kube).WithPolling(poll).Should(ConsistOf(all))
	m.watches(ctx, t, kube, taken.Spec.Contents.Revision)

	// The hub trusts the cluster again.
	_, err = m.WaitForCluster(ctx, m.name, harness.Available())
	g.Expect(err).NotTo(HaveOccurred())
}

// watches opens a watch on each API server, and expects them to tell of what is written through any.
func (m *managed) watches(ctx context.Context, t *testing.T, kube *kubernetes.Clientset, revision int64) {
	t.Helper()
	g := NewWithT(t)
	var watchers []watch.Interface
	for _, n := range m.cluster.Nodes() {
		if !n.ControlPlane() {
			continue
		}
		own := kubeClientAt(t, m.cluster.Kubeconfig(), "https://"+n.Address()+":6443").CoreV1().ConfigMaps(metav1.NamespaceDefault)
		list, err := own.List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		var at int64
		_, err = fmt.Sscan(list.ResourceVersion, &at)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(at).To(BeNumerically(">", revision), "etcd goes on from the revision of the snapshot")
		watcher, err := own.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=again"})
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(watcher.Stop)
		watchers = append(watchers, watcher)
	}
	g.Expect(put(ctx, kube, "again")).To(Succeed())
	for _, watcher := range watchers {
		g.Eventually(ctx, watcher.ResultChan()).Should(Receive(HaveField("Type", watch.Added)))
	}
}
