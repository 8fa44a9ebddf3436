// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/drain"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

func TestPatchNode(t *testing.T) {
	s := start(t, small)
	k := kubeClient(t, s.Cluster("small"))
	for kind, patch := range map[types.PatchType]string{
		types.StrategicMergePatchType: `{"spec":{"unschedulable":true},"metadata":{"annotations":{"owner":"me"}}}`,
		types.MergePatchType:          `{"spec":{"unschedulable":true},"metadata":{"annotations":{"owner":"me"}}}`,
		types.JSONPatchType: `[{"op":"add","path":"/spec/unschedulable","value":true},
			{"op":"add","path":"/metadata/annotations","value":{"owner":"me"}}]`,
	} {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			undo := `{"spec":{"unschedulable":null},"metadata":{"annotations":null}}`
			node, err := k.CoreV1().Nodes().Patch(t.Context(), "worker-1", kind, []byte(patch), metav1.PatchOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(node.Spec.Unschedulable).To(BeTrue())
			g.Expect(node.Annotations).To(HaveKeyWithValue("owner", "me"))
			g.Expect(node.Status.NodeInfo.BootID).NotTo(BeEmpty(), "the status is another request's")
			node, err = k.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, []byte(undo), metav1.PatchOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(node.Spec.Unschedulable).To(BeFalse())
		})
	}
	g := NewWithT(t)
	_, err := k.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType,
		[]byte(`{"metadata":{"resourceVersion":"1"},"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsConflict), "a patch with a stale version")
	_, err = k.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.ApplyCBORPatchType, []byte(`{}`), metav1.PatchOptions{FieldManager: "x"})
	g.Expect(err).To(Satisfy(apierrors.IsUnsupportedMediaType))
	entry, err := s.Journal().Wait(within(t), journal.Filter{Method: "kube PATCH nodes/worker-1", Done: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entry.Arguments).To(HaveKeyWithValue("unschedulable", "true"))
	g.Expect(entry.Caller).To(Equal("admin"))
}

// Cluster API asks for the root to see whether an API server lives.
func TestRoot(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	paths, err := kubeClient(t, s.Cluster("small")).CoreV1().RESTClient().Get().AbsPath("/").DoRaw(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(paths).To(MatchJSON(`{"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"]}`))
}

func TestConfigMaps(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	maps := kubeClient(t, s.Cluster("small")).CoreV1().ConfigMaps("kube-system")
	created, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "record"}, Data: map[string]string{"owner": "a"},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = maps.Create(t.Context(), created.DeepCopy(), metav1.CreateOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsAlreadyExists))

	stale := created.DeepCopy()
	created.Data["owner"] = "b"
	_, err = maps.Update(t.Context(), created, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	stale.Data["owner"] = "c"
	_, err = maps.Update(t.Context(), stale, metav1.UpdateOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsConflict))
	got, err := maps.Get(t.Context(), "record", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Data).To(HaveKeyWithValue("owner", "b"))
	g.Expect(maps.Delete(t.Context(), "record", metav1.DeleteOptions{})).To(Succeed())
	_, err = maps.Get(t.Context(), "record", metav1.GetOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsNotFound))
}

// TestInformerSeesAReboot runs a real informer, in both of client-go's encodings, over a node's reboot.
func TestInformerSeesAReboot(t *testing.T) {
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(encoding, func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, small)
			c := s.Cluster("small")
			config := restConfig(t, c)
			config.ContentType = encoding
			k, err := kubernetes.NewForConfig(config)
			g.Expect(err).NotTo(HaveOccurred())
			ctx := within(t)
			ready := make(chan bool, 100)
			factory := informers.NewSharedInformerFactory(k, 0)
			_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(readyChanges("worker-1", ready))
			g.Expect(err).NotTo(HaveOccurred())
			factory.Start(ctx.Done())
			g.Expect(factory.WaitForCacheSync(ctx.Done())).To(HaveEach(true))

			reboot(t, s, talosClient(t, c.Talosconfig()), c.Node("worker-1"))
			var seen []bool
			for r := range until(ctx, ready) {
				if seen = append(seen, r); len(seen) == 3 {
					break
				}
			}
			g.Expect(seen).To(Equal([]bool{true, false, true}))
		})
	}
}

// readyChanges sends whether the node is Ready, at first and whenever that changes.
func readyChanges(name string, out chan<- bool) cache.ResourceEventHandler {
	isReady := func(o any) bool {
		return o.(*corev1.Node).Status.Conditions[0].Status == corev1.ConditionTrue
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if o.(*corev1.Node).Name == name {
				out <- isReady(o)
			}
		},
		UpdateFunc: func(old, now any) {
			if now.(*corev1.Node).Name == name && isReady(old) != isReady(now) {
				out <- isReady(now)
			}
		},
	}
}

func restConfig(t *testing.T, c *sim.Cluster) *rest.Config {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	return config
}

func TestWatchFromAVersion(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	k := kubeClient(t, s.Cluster("small"))
	list, err := k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	w, err := k.CoreV1().Nodes().Watch(within(t), metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "spec.unschedulable=true"})
	g.Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	setUnschedulable(t, k, "worker-1", "true")
	setUnschedulable(t, k, "worker-1", "false")
	g.Expect((<-w.ResultChan()).Type).To(Equal(watch.Added), "the node came into the selection")
	g.Expect((<-w.ResultChan()).Type).To(Equal(watch.Deleted), "and left it")
}

func TestWatchTooFarBehindIsGone(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	k := kubeClient(t, s.Cluster("small"))
	for range 600 {
		setUnschedulable(t, k, "worker-1", "true")
		setUnschedulable(t, k, "worker-1", "false")
	}
	_, err := k.CoreV1().Nodes().Watch(within(t), metav1.ListOptions{ResourceVersion: "2"})
	g.Expect(err).To(Satisfy(apierrors.IsResourceExpired))
}

func setUnschedulable(t *testing.T, k kubernetes.Interface, node, value string) {
	t.Helper()
	patch := []byte(`{"spec":{"unschedulable":` + value + `}}`)
	_, err := k.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func TestDisruptionBudgetBlocksAnEviction(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 2})
	k := kubeClient(t, s.Cluster("a"))
	none := intstr.FromInt32(0)
	_, err := k.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	helper := drainer(within(t), k)
	support, err := drain.CheckEvictionSupport(k)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(support.String()).To(Equal("policy/v1"))
	pods, err := k.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(helper.EvictPod(pods.Items[0], support)).To(Satisfy(apierrors.IsTooManyRequests))
	g.Expect(k.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "web", metav1.DeleteOptions{})).To(Succeed())
	g.Expect(helper.EvictPod(pods.Items[0], support)).To(Succeed())
}

func TestEvictedPodsStayPendingWithoutANode(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	k := kubeClient(t, s.Cluster("small"))
	w, err := k.CoreV1().Pods("default").Watch(within(t), metav1.ListOptions{LabelSelector: "app=web"})
	g.Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	setUnschedulable(t, k, "worker-1", "true")
	g.Expect(drain.RunNodeDrain(drainer(within(t), k), "worker-1")).To(Succeed())
	pods, err := k.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Pending"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).To(HaveLen(2))

	setUnschedulable(t, k, "worker-1", "false")
	started := map[string]bool{}
	for e := range w.ResultChan() {
		pod := e.Object.(*corev1.Pod)
		for _, pending := range pods.Items {
			if pending.Name == pod.Name && pod.Status.Phase == corev1.PodRunning {
				started[pod.Name] = true
			}
		}
		if len(started) == 2 {
			return
		}
	}
	t.Fatal("the pods were not scheduled after the uncordon")
}

func TestLoadBalancerOutlivesAControlPlane(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3})
	c := s.Cluster("a")
	k := kubeClient(t, c)
	direct := restConfig(t, c)
	direct.Host = "https://" + c.Node("cp-2").Address() + ":6443"
	one, err := kubernetes.NewForConfig(direct)
	g.Expect(err).NotTo(HaveOccurred())
	list := func(k kubernetes.Interface) error {
		_, err := k.CoreV1().Nodes().List(within(t), metav1.ListOptions{})
		return err
	}
	g.Expect(list(one)).To(Succeed())

	c.Node("cp-2").PowerOff()
	g.Expect(list(one)).NotTo(Succeed())
	g.Expect(list(k)).To(Succeed())
}

func TestKubernetesUnreachable(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	k := kubeClient(t, s.Cluster("small"))
	_, err := s.Inject(fault.Fault{Name: fault.Unreachable, Cluster: "small", Params: map[string]string{fault.ParamAPI: "kube"}})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = k.Discovery().ServerVersion()
	g.Expect(err).To(HaveOccurred())
	s.Clear("")
	version, err := k.Discovery().ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version.GitVersion).To(Equal(sim.DefaultKubernetesVersion))
}

func TestStrangersAreUnauthorized(t *testing.T) {
	g := NewWithT(t)
	s := start(t, small)
	config := restConfig(t, s.Cluster("small"))
	config.CertData, config.KeyData = nil, nil
	k, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = k.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsUnauthorized))
}

// Who wants no more of objects than their metadata gets no more.
func TestMetadataAlone(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1})
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Cluster("a").Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	m, err := metadata.NewForConfig(metadata.ConfigFor(config))
	g.Expect(err).NotTo(HaveOccurred())
	accounts := m.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace("kube-system")
	list, err := accounts.List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list.Items).To(ContainElement(And(HaveField("Name", "default"), HaveField("UID", Not(BeEmpty())))), "every namespace has one")
	_, err = accounts.Get(t.Context(), "default", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	watched, err := accounts.Watch(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	defer watched.Stop()
	g.Eventually(watched.ResultChan()).Should(Receive(HaveField("Object.Name", Not(BeEmpty()))))
}
