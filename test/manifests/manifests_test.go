// SPDX-License-Identifier: Apache-2.0

// Package manifests_test syncs bootstrap manifests with a simulated cluster, as an upgrade of Kubernetes does.
package manifests_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"ichor.maesh.dev/hub/providers/credentials"
	"ichor.maesh.dev/hub/providers/guard"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/target"
	"ichor.maesh.dev/hub/test/sim"
)

const inventoryName = "talos-bootstrap-manifests-inventory"

// world is a simulated cluster, reached as the hub reaches targets.
type world struct {
	*WithT

	cluster   *sim.Cluster
	writer    kube.Writer
	refused   kube.Writer // Its guard lets nothing through.
	plain     *kubernetes.Clientset
	manifests []map[string]any
}

func allowed(context.Context) error { return nil }

var errLost = errors.New("the lock is gone")

func start(t *testing.T) *world {
	t.Helper()
	g := NewWithT(t)
	s, err := sim.Start(t.Context(), sim.Options{Dir: t.TempDir(), Speed: 20, Clusters: []sim.ClusterSpec{{Name: "c", ControlPlanes: 1, Workers: 2}}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Stop)
	w := &world{WithT: g, cluster: s.Cluster("c")}
	store := &credentials.Store{Reader: fake.NewClientBuilder().WithObjects(
		secret("c-kubeconfig", "value", w.cluster.Kubeconfig()), secret("c-talosconfig", "talosconfig", w.cluster.Talosconfig()),
	).Build()}
	to := target.Target{
		NamespacedName: types.NamespacedName{Namespace: "default", Name: "c"}, KubeconfigSecret: "c-kubeconfig", TalosconfigSecret: "c-talosconfig",
		ControlPlanes: []string{w.cluster.Nodes()[0].Address()},
	}
	pool := kube.NewPool(store)
	w.writer, err = pool.Writer(t.Context(), to, allowed)
	g.Expect(err).NotTo(HaveOccurred())
	w.refused, err = pool.Writer(t.Context(), to, func(context.Context) error { return errLost })
	g.Expect(err).NotTo(HaveOccurred())
	reader, err := talos.NewPool(store).Reader(t.Context(), to)
	g.Expect(err).NotTo(HaveOccurred())
	w.manifests, err = reader.Manifests(t.Context(), w.cluster.Nodes()[0].Address())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(w.manifests)).To(BeNumerically(">", 5))
	config, err := clientcmd.RESTConfigFromKubeConfig(w.cluster.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	w.plain, err = kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return w
}

func secret(name, key string, data []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{key: data}}
}

// changed are manifests with another text in place of one.
func (w *world) changed(from, to string) []map[string]any {
	data, err := json.Marshal(w.manifests)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(string(data)).To(ContainSubstring(from))
	var changed []map[string]any
	w.Expect(json.Unmarshal([]byte(strings.ReplaceAll(string(data), from, to)), &changed)).To(Succeed())
	return changed
}

// telling are the changes that are some.
func telling(changes []kube.ManifestChange) []kube.ManifestChange {
	var list []kube.ManifestChange
	for _, change := range changes {
		if change.Action != kube.ManifestUnchanged {
			list = append(list, change)
		}
	}
	return list
}

const oldProxy, newProxy = "registry.k8s.io/kube-proxy:v1.35.2", "registry.k8s.io/kube-proxy:v1.36.2"

func (w *world) proxyImage(ctx context.Context) string {
	found, err := w.writer.Workload(ctx, kube.DaemonSetKind, "kube-system", "kube-proxy")
	w.Expect(err).NotTo(HaveOccurred())
	return found.Images[0]
}

// A preview says what would change, and changes nothing; a sync does that, and the next one finds nothing to do.
func TestDiffAndApply(t *testing.T) {
	w, ctx := start(t), t.Context()
	changes, err := w.writer.DiffManifests(ctx, w.manifests, true)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(telling(changes)).To(BeEmpty(), "the cluster was made from them")
	w.Expect(changes).To(HaveLen(len(w.manifests)))

	wanted := w.changed(oldProxy, newProxy)
	changes, err = w.writer.DiffManifests(ctx, wanted, true)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(telling(changes)).To(HaveLen(1))
	w.Expect(telling(changes)[0]).To(And(
		HaveField("Object", "DaemonSet kube-system/kube-proxy"), HaveField("Action", kube.ManifestConfigured),
		HaveField("Diff", And(MatchRegexp(`(?m)^- +image: `+oldProxy+`$`), MatchRegexp(`(?m)^\+ +image: `+newProxy+`$`), Not(ContainSubstring("resourceVersion")))),
	))
	w.Expect(w.proxyImage(ctx)).To(Equal(oldProxy))

	changes, err = w.writer.ApplyManifests(ctx, wanted, true)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(telling(changes)).To(HaveLen(1))
	w.Expect(w.proxyImage(ctx)).To(Equal(newProxy))
	w.Eventually(func() (string, error) {
		found, err := w.writer.Workload(ctx, kube.DaemonSetKind, "kube-system", "kube-proxy")
		return found.Waiting, err
	}).WithTimeout(20e9).Should(BeEmpty())
	changes, err = w.writer.ApplyManifests(ctx, wanted, true)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(telling(changes)).To(BeEmpty())
}

// Case F10: what Helm, Flux, Argo CD or another inventory keeps is left as it is, and named.
func TestCaseF10OwnersKeepTheirs(t *testing.T) {
	for owner, mark := range map[string]func(*metav1.ObjectMeta){
		`release "kube-system/proxy" of Helm`: func(m *metav1.ObjectMeta) {
			metav1.SetMetaDataAnnotation(m, "meta.helm.sh/release-name", "proxy")
			metav1.SetMetaDataAnnotation(m, "meta.helm.sh/release-namespace", "kube-system")
		},
		`Kustomization "infra" of Flux`:  func(m *metav1.ObjectMeta) { metav1.SetMetaDataLabel(m, "kustomize.toolkit.fluxcd.io/name", "infra") },
		`Application "infra" of Argo CD`: func(m *metav1.ObjectMeta) { metav1.SetMetaDataLabel(m, "argocd.argoproj.io/instance", "infra") },
		`inventory "somebody's-inventory"`: func(m *metav1.ObjectMeta) {
			metav1.SetMetaDataAnnotation(m, "config.k8s.io/owning-inventory", "somebody's-inventory")
		},
	} {
		t.Run(owner, func(t *testing.T) {
			w, ctx := start(t), t.Context()
			set, err := w.plain.AppsV1().DaemonSets("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
			w.Expect(err).NotTo(HaveOccurred())
			mark(&set.ObjectMeta)
			_, err = w.plain.AppsV1().DaemonSets("kube-system").Update(ctx, set, metav1.UpdateOptions{})
			w.Expect(err).NotTo(HaveOccurred())
			for _, sync := range []func(context.Context, []map[string]any, bool) ([]kube.ManifestChange, error){w.writer.DiffManifests, w.writer.ApplyManifests} {
				changes, err := sync(ctx, w.changed(oldProxy, newProxy), true)
				w.Expect(err).NotTo(HaveOccurred())
				w.Expect(telling(changes)).To(Equal([]kube.ManifestChange{{Object: "DaemonSet kube-system/kube-proxy", Action: kube.ManifestSkipped, Owner: owner}}))
			}
			w.Expect(w.proxyImage(ctx)).To(Equal(oldProxy))
		})
	}
}

// What has no manifest any more goes, as Talos has it go, and only with an inventory that tells.
func TestPrune(t *testing.T) {
	w, ctx := start(t), t.Context()
	kept := w.manifests[:0:0]
	for _, manifest := range w.manifests {
		if metadata, _ := manifest["metadata"].(map[string]any); metadata["name"] != "kubeconfig-in-cluster" {
			kept = append(kept, manifest)
		}
	}
	w.Expect(kept).To(HaveLen(len(w.manifests) - 1))
	changes, err := w.writer.ApplyManifests(ctx, kept, false)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(telling(changes)).To(BeEmpty())

	changes, err = w.writer.DiffManifests(ctx, kept, true)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(telling(changes)).To(ConsistOf(And(HaveField("Object", "ConfigMap kube-system/kubeconfig-in-cluster"), HaveField("Action", kube.ManifestPruned))))
	inventory, err := w.plain.CoreV1().ConfigMaps("kube-system").Get(ctx, inventoryName, metav1.GetOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(inventory.Data).To(HaveKey("kube-system_kubeconfig-in-cluster__ConfigMap"))

	_, err = w.writer.ApplyManifests(ctx, kept, true)
	w.Expect(err).NotTo(HaveOccurred())
	_, err = w.plain.CoreV1().ConfigMaps("kube-system").Get(ctx, "kubeconfig-in-cluster", metav1.GetOptions{})
	w.Expect(err).To(MatchError(ContainSubstring("not found")))
	inventory, err = w.plain.CoreV1().ConfigMaps("kube-system").Get(ctx, inventoryName, metav1.GetOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(inventory.Data).NotTo(HaveKey("kube-system_kubeconfig-in-cluster__ConfigMap"))
	w.Expect(inventory.Data).To(HaveLen(len(kept)))
}

// A preview needs no guard; a sync does.
func TestGuard(t *testing.T) {
	w, ctx := start(t), t.Context()
	changes, err := w.refused.DiffManifests(ctx, w.changed(oldProxy, newProxy), true)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(telling(changes)).To(HaveLen(1))
	_, err = w.refused.ApplyManifests(ctx, w.changed(oldProxy, newProxy), true)
	w.Expect(err).To(And(MatchError(guard.ErrNotAllowed), MatchError(errLost)))
	w.Expect(w.proxyImage(ctx)).To(Equal(oldProxy))
}

// The pods of the control plane's components are read with what tells them apart from those before.
func TestComponentPods(t *testing.T) {
	w, ctx := start(t), t.Context()
	w.Eventually(func() ([]kube.ComponentPod, error) { return w.writer.ComponentPods(ctx) }).WithTimeout(20e9).Should(HaveLen(3))
	pods, err := w.writer.ComponentPods(ctx)
	w.Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods {
		w.Expect(pod).To(And(HaveField("Node", w.cluster.Nodes()[0].Name()), HaveField("Ready", true), HaveField("Trouble", ""), HaveField("ConfigVersion", Not(BeEmpty())),
			HaveField("Image", "registry.k8s.io/"+pod.Component+":v1.35.2")))
	}
}
