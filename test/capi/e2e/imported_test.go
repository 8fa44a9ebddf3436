// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
)

var _ = Describe("An imported cluster", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		Expect(w.Import(ctx, "imported")).To(Succeed())
		Eventually(condition(ctx, "imported", &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
	}, NodeTimeout(minute))

	It("gets its status from Cluster API, by the contract of an InfraCluster", func(ctx SpecContext) {
		cluster := &clusterv1.Cluster{}
		Eventually(condition(ctx, "imported", cluster, clusterv1.ClusterRemoteConnectionProbeCondition)).WithContext(ctx).Should(HavePrefix("True"))
		Expect(cluster.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
		Expect(condition(ctx, "imported", cluster, clusterv1.ClusterInfrastructureReadyCondition)()).To(HavePrefix("True"))
		Expect(cluster.Status.Phase).To(Equal(string(clusterv1.ClusterPhaseProvisioned)))
		Expect(cluster.Finalizers).To(ConsistOf(clusterv1.ClusterFinalizer))
		Expect(condition(ctx, "imported", cluster, clusterv1.ClusterControlPlaneInitializedCondition)()).NotTo(HavePrefix("True"),
			"without Machines or a control plane provider nobody says so")
		Eventually(condition(ctx, "imported", cluster, v1alpha1.TalosAvailableCondition)).WithContext(ctx).Should(HavePrefix("True Available"))
		Expect(statusWriters(cluster)).To(ConsistOf("capi-core", conditionOwner), "the hub writes nothing but its condition")
	}, SpecTimeout(minute))

	It("is left alone by both sides once it is settled", func(ctx SpecContext) { expectQuiet(ctx, "imported") }, SpecTimeout(4*minute))

	It("is upgraded while Cluster API looks on", func(ctx SpecContext) {
		w.ichor(ctx, 0, "upgrade", "talos", "1.14.1", "--cluster", "imported", "--follow", "--yes")
		Expect(statusWriters(get(ctx, "imported", &clusterv1.Cluster{}))).To(ConsistOf("capi-core", conditionOwner))
	}, SpecTimeout(minute))

	It("is forgotten when its Cluster is deleted, and no machine notices", func(ctx SpecContext) {
		mark := w.Fleet.Journal().Last()
		Expect(w.client.Delete(ctx, get(ctx, "imported", &clusterv1.Cluster{}))).To(Succeed())
		for _, object := range []client.Object{&clusterv1.Cluster{}, &v1alpha1.TalosCluster{}} {
			Eventually(gone(ctx, "imported", object)).WithContext(ctx).Should(BeTrue())
		}
		for name, object := range map[string]client.Object{
			"imported-cp-1": &v1alpha1.TalosMachine{}, "imported-worker-1": &v1alpha1.TalosMachine{},
			"imported-kubeconfig": &corev1.Secret{}, "imported-talosconfig": &corev1.Secret{},
		} {
			Eventually(gone(ctx, name, object)).WithContext(ctx).Should(BeTrue(), name)
		}
		Expect(changes("imported", mark)).To(BeEmpty())
	}, SpecTimeout(minute))
})

var _ = Describe("A cluster from Git", func() {
	It("takes its endpoint from the TalosCluster, which belongs to the Cluster in the end", func(ctx SpecContext) {
		simulated := w.Fleet.Cluster("from-git")
		config, err := clientcmd.RESTConfigFromKubeConfig(simulated.Kubeconfig())
		Expect(err).NotTo(HaveOccurred())
		var port int32
		host, text, _ := strings.Cut(strings.TrimPrefix(config.Host, "https://"), ":")
		_, err = fmt.Sscan(text, &port)
		Expect(err).NotTo(HaveOccurred())

		labels := map[string]string{clusterv1.ClusterNameLabel: "from-git"}
		for _, object := range []client.Object{
			&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "from-git"}, Spec: clusterv1.ClusterSpec{
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "ichor.maesh.dev", Kind: "TalosCluster", Name: "from-git"},
			}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "from-git-kubeconfig", Labels: labels}, Data: map[string][]byte{"value": simulated.Kubeconfig()}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "from-git-talosconfig", Labels: labels}, Data: map[string][]byte{"talosconfig": simulated.Talosconfig()}},
			&v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "from-git"}, Spec: v1alpha1.TalosClusterSpec{
				ControlPlaneEndpoint: &v1alpha1.APIEndpoint{Host: host, Port: port},
			}},
		} {
			Expect(w.client.Create(ctx, object)).To(Succeed())
		}
		cluster := &clusterv1.Cluster{}
		Eventually(condition(ctx, "from-git", cluster, clusterv1.ClusterRemoteConnectionProbeCondition)).WithContext(ctx).Should(HavePrefix("True"))
		Expect(cluster.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: host, Port: port}))
		Eventually(condition(ctx, "from-git", &v1alpha1.TalosCluster{}, "Available")).WithContext(ctx).Should(HavePrefix("True"))
		talos := get(ctx, "from-git", &v1alpha1.TalosCluster{})
		Expect(talos.OwnerReferences).To(ConsistOf(HaveField("UID", cluster.UID)))
	}, SpecTimeout(minute))
})

// conditionOwner is as whom the hub writes its condition on Clusters.
const conditionOwner = "ichor-hub-condition"

// statusWriters are those who have written the status of an object.
func statusWriters(object client.Object) []string {
	writers := map[string]bool{}
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "status" {
			writers[entry.Manager] = true
		}
	}
	var names []string
	for name := range maps.Keys(writers) {
		names = append(names, name)
	}
	return names
}

func gone(ctx context.Context, name string, into client.Object) func() bool {
	return func() bool { return apierrors.IsNotFound(w.client.Get(ctx, key(name), into)) }
}

// expectQuiet expects that nobody writes any object of a cluster while Cluster API looks at it three times more, and the hub twice: it looks
// at what does not change once a minute in the end.
func expectQuiet(ctx context.Context, cluster string) {
	GinkgoHelper()
	looks := func() float64 {
		seen, err := w.core.Metric(ctx, "capi_cluster_cache_healthchecks_total", `cluster_name="`+cluster+`"`, `status="success"`)
		Expect(err).NotTo(HaveOccurred())
		return seen
	}
	settled := looks()
	Eventually(looks).WithContext(ctx).Should(BeNumerically(">", settled), "what follows a connection is over")
	before, looked, probed := versions(ctx, cluster), looks(), probes(cluster)
	Eventually(looks).WithContext(ctx).Should(BeNumerically(">=", looked+3), "Cluster API looks")
	Eventually(probes).WithArguments(cluster).WithContext(ctx).Should(BeNumerically(">=", probed+2), "the hub looks")
	Expect(versions(ctx, cluster)).To(Equal(before))
}

// versions are the resource versions of all objects of a cluster.
func versions(ctx context.Context, cluster string) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	lists := []client.ObjectList{&clusterv1.MachineList{}, &v1alpha1.TalosClusterList{}, &v1alpha1.TalosMachineList{}, &corev1.SecretList{}}
	for _, list := range lists {
		Expect(w.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})).To(Succeed())
		note(found, list)
	}
	found["Cluster"] = get(ctx, cluster, &clusterv1.Cluster{}).ResourceVersion
	return found
}

func note(found map[string]string, list client.ObjectList) {
	GinkgoHelper()
	Expect(meta.EachListItem(list, func(object runtime.Object) error {
		item, ok := object.(client.Object)
		Expect(ok).To(BeTrue())
		found[fmt.Sprintf("%T %s", item, item.GetName())] = item.GetResourceVersion()
		return nil
	})).To(Succeed())
}

// probes is how often the hub has asked the first control plane of a cluster for the state of etcd: once in each probe.
func probes(cluster string) uint64 {
	return w.Fleet.Journal().Reads()[cluster+"/cp-1/MachineService/EtcdStatus"]
}
