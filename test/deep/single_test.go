// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

func TestDeepSingleControlPlane(t *testing.T) {
	g := NewWithT(t)
	s := start(t, options(t, t.TempDir(), sim.ClusterSpec{Name: "one", ControlPlanes: 1, Workers: 1}))
	cluster := s.Cluster("one")
	k, ctx := kubeClient(t, cluster), within(t)

	version, err := k.Discovery().ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version.GitVersion).To(Equal(sim.DeepKubernetesVersion), "it is the real server")
	g.Eventually(ctx, readyNodes).WithArguments(ctx, k).WithPolling(poll).Should(ConsistOf("cp-1", "worker-1"))
	g.Eventually(ctx, runningPods).WithArguments(ctx, k, metav1.NamespaceSystem).WithPolling(poll).Should(ContainElements(
		"kube-apiserver-cp-1", "kube-controller-manager-cp-1", "kube-scheduler-cp-1", HavePrefix("kube-proxy-"), HavePrefix("coredns-"),
	), "static pods and what the bootstrap manifests ask for")
	g.Expect(put(ctx, k, "first")).To(Succeed())
	g.Eventually(ctx, func() []journal.Entry {
		return s.Journal().Entries(journal.Filter{Cluster: "one", Method: "kube POST configmaps/first"})
	}).WithPolling(poll).Should(ConsistOf(And(HaveField("Code", "201"), HaveField("Caller", "admin"))), "the journal knows of it")

	// What only a real API server does.
	_, err = k.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "Not A Name"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("a lowercase RFC 1123 subdomain")))
	watch, err := k.CoreV1().ConfigMaps(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=second"})
	g.Expect(err).NotTo(HaveOccurred())
	defer watch.Stop()
	g.Expect(put(ctx, k, "second")).To(Succeed())
	g.Eventually(ctx, watch.ResultChan()).Should(Receive())
}
