// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	. "github.com/onsi/gomega"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/component"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const newer = "v1.36.2"

// patience is for how long a test waits for what takes some milliseconds on a machine that is not busy.
const patience = 10 * time.Second

// kubeFleet is a cluster with both its clients.
type kubeFleet struct {
	*sim.Cluster
	t     *testing.T
	sim   *sim.Simulator
	talos *client.Client
	kube  *kubernetes.Clientset
}

func kubeFleetOf(t *testing.T, s *sim.Simulator, name string) *kubeFleet {
	t.Helper()
	c := s.Cluster(name)
	return &kubeFleet{Cluster: c, t: t, sim: s, talos: talosClient(t, c.Talosconfig()), kube: kubeClient(t, c)}
}

// configure brings a patched config in force on a node.
func (f *kubeFleet) configure(node, patch string) {
	f.t.Helper()
	n := f.Node(node)
	_, err := apply(client.WithNode(within(f.t), n.Address()), f.talos, &machineapi.ApplyConfigurationRequest{
		Data: patched(f.t, n, patch), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	NewWithT(f.t).Expect(err).NotTo(HaveOccurred())
}

// component waits for the journal to tell of a part in a version.
func (f *kubeFleet) component(node, what string) {
	f.t.Helper()
	NewWithT(f.t).Eventually(func() []string { return f.events("component") }).WithTimeout(patience).Should(ContainElement(node + " " + what))
}

// events are the journal's events of a name, with their nodes.
func (f *kubeFleet) events(name string) []string {
	var list []string
	for _, e := range f.sim.Journal().Entries(journal.Filter{Cluster: f.Name(), Method: "event " + name}) {
		list = append(list, e.Node+" "+e.Message)
	}
	return list
}

// mirror is the mirror pod of a part on a node, or nil.
func (f *kubeFleet) mirror(part, node string) *corev1.Pod {
	pod, err := f.kube.CoreV1().Pods("kube-system").Get(f.t.Context(), part+"-"+node, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return pod
}

func podReady(pod *corev1.Pod) bool {
	if pod == nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func apiServerImage(version string) string {
	return fmt.Sprintf(`{"cluster":{"apiServer":{"image":"registry.k8s.io/kube-apiserver:%s"}}}`, version)
}

func kubeletImage(version string) string {
	return fmt.Sprintf(`{"machine":{"kubelet":{"image":"ghcr.io/siderolabs/kubelet:%s"}}}`, version)
}

func TestStaticPodFollowsTheConfig(t *testing.T) {
	g := NewWithT(t)
	timings := sim.DefaultTimings().Scaled(fast)
	timings.StaticPod = 3 * time.Second // Long enough to be seen, even on a busy machine.
	s := startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 3, TalosVersion: "v1.13.6"}}})
	f := kubeFleetOf(t, s, "a")
	before := f.mirror("kube-apiserver", "cp-1")
	g.Expect(before.Annotations).To(HaveKeyWithValue(constants.AnnotationStaticPodConfigVersion, "1"))
	g.Expect(podReady(before)).To(BeTrue())

	f.configure("cp-1", apiServerImage(newer))
	g.Eventually(func() *corev1.Pod { return f.mirror("kube-apiserver", "cp-1") }).WithTimeout(patience).Should(And(
		HaveField("ObjectMeta.Annotations", HaveKeyWithValue(constants.AnnotationStaticPodConfigVersion, "2")),
		HaveField("ObjectMeta.UID", Not(Equal(before.UID))), Satisfy(func(p *corev1.Pod) bool { return !podReady(p) }),
		HaveField("Spec.Containers", ConsistOf(HaveField("Image", "registry.k8s.io/kube-apiserver:"+newer))),
	), "the others serve meanwhile")
	g.Expect(version(t, f, "cp-1")).To(BeEmpty(), "its own server is away")
	g.Expect(version(t, f, "cp-2")).To(Equal(sim.DefaultKubernetesVersion))

	f.component("cp-1", "kube-apiserver "+newer)
	g.Eventually(func() bool { return podReady(f.mirror("kube-apiserver", "cp-1")) }).WithTimeout(patience).Should(BeTrue())
	g.Expect(version(t, f, "cp-1")).To(Equal(newer))
	g.Expect(podReady(f.mirror("kube-scheduler", "cp-1"))).To(BeTrue(), "nobody touched the others")

	ctx := client.WithNode(within(t), f.Node("cp-1").Address())
	config, err := safe.StateGetByID[*k8s.APIServerConfig](ctx, f.talos.COSI, k8s.APIServerConfigID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Metadata().Version().String()).To(Equal("2"))
	g.Expect(config.TypedSpec().Image).To(HaveSuffix(newer))
	pod, err := safe.StateGetByID[*k8s.StaticPod](ctx, f.talos.COSI, k8s.APIServerID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fmt.Sprint(pod.TypedSpec().Pod)).To(And(ContainSubstring(newer), ContainSubstring("--secure-port=6443")))
	g.Expect(f.events("component")).To(HaveExactElements("cp-1 kube-apiserver " + newer))
}

// version is what the API server of a node says it is; nothing while it is away.
func version(t *testing.T, f *kubeFleet, node string) string {
	t.Helper()
	config := restConfig(t, f.Cluster)
	config.Host, config.Timeout = "https://"+f.Node(node).Address()+":6443", time.Second
	k, err := kubernetes.NewForConfig(config)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	info, err := k.Discovery().ServerVersion()
	if err != nil {
		return ""
	}
	return info.GitVersion
}

func TestTheOnlyAPIServerIsAwayWhileItRestarts(t *testing.T) {
	g := NewWithT(t)
	timings := sim.DefaultTimings().Scaled(fast)
	timings.StaticPod = 2 * time.Second
	s := startWith(t, sim.Options{Dir: t.TempDir(), Timings: &timings, Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: "v1.13.6"}}})
	f := kubeFleetOf(t, s, "a")
	f.configure("cp-1", apiServerImage(newer))
	_, err := f.kube.Discovery().ServerVersion()
	g.Expect(err).To(HaveOccurred())
	f.component("cp-1", "kube-apiserver "+newer)
	g.Eventually(func() (string, error) {
		info, err := f.kube.Discovery().ServerVersion()
		if err != nil {
			return "", err
		}
		return info.GitVersion, nil
	}).WithTimeout(patience).Should(Equal(newer))
}

// TestNewDocuments are the form of the config that Talos 1.14 begins with.
func TestNewDocuments(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.14.1"})
	f := kubeFleetOf(t, s, "a")
	active, _ := f.Node("cp-1").Config()
	g.Expect(active.RawV1Alpha1().ClusterConfig.APIServerConfig).To(BeNil(), "the old form has nothing")
	for _, part := range []struct{ kind, image, name string }{
		{"KubeAPIServerConfig", "registry.k8s.io/kube-apiserver", "kube-apiserver"},
		{"KubeControllerManagerConfig", "registry.k8s.io/kube-controller-manager", "kube-controller-manager"},
		{"KubeSchedulerConfig", "registry.k8s.io/kube-scheduler", "kube-scheduler"},
		{"KubeletConfig", "ghcr.io/siderolabs/kubelet", "kubelet"},
	} {
		f.configure("cp-1", fmt.Sprintf("apiVersion: v1alpha1\nkind: %s\nimage: %s:%s\n", part.kind, part.image, newer))
		f.component("cp-1", part.name+" "+newer)
	}
	ctx := client.WithNode(within(t), f.Node("cp-1").Address())
	config, err := safe.StateGetByID[*k8s.SchedulerConfig](ctx, f.talos.COSI, k8s.FinalSchedulerConfigID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.TypedSpec().Args).To(ContainElement("--leader-elect=true"))
	g.Expect(config.Metadata().Version().String()).To(Equal("2"))
	g.Eventually(func() (string, error) {
		status, err := safe.StateGetByID[*k8s.KubeletStatus](ctx, f.talos.COSI, k8s.KubeletID)
		if err != nil {
			return "", err
		}
		return status.TypedSpec().Image, nil
	}).WithTimeout(patience).Should(HaveSuffix(newer))
}

func TestKubeletFollowsTheConfig(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	ctx := client.WithNode(within(t), f.Node("worker-1").Address())
	events := make(chan safe.WrappedStateEvent[*v1alpha1.Service])
	g.Expect(safe.StateWatch(ctx, f.talos.COSI, v1alpha1.NewService("kubelet").Metadata(), events)).To(Succeed())
	next := func(what string) {
		t.Helper()
		g.Eventually(events).WithTimeout(patience).Should(Receive(WithTransform(
			func(e safe.WrappedStateEvent[*v1alpha1.Service]) string { return e.Type().String() }, Equal(what),
		)))
	}
	next("Created")
	f.configure("worker-1", kubeletImage(newer+"-fat"))
	next("Destroyed")
	next("Created")
	f.component("worker-1", "kubelet "+newer)
	g.Eventually(func() string { return kubeletVersion(f, "worker-1") }).WithTimeout(patience).Should(Equal(newer))
	g.Expect(kubeletVersion(f, "cp-1")).To(Equal(sim.DefaultKubernetesVersion))
	spec, err := safe.StateGetByID[*k8s.KubeletSpec](ctx, f.talos.COSI, k8s.KubeletID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(spec.TypedSpec().Image).To(HaveSuffix("kubelet:" + newer + "-fat"))
}

func kubeletVersion(f *kubeFleet, node string) string {
	n, err := f.kube.CoreV1().Nodes().Get(f.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return n.Status.NodeInfo.KubeletVersion
}

func nodeReady(f *kubeFleet, node string) bool {
	n, err := f.kube.CoreV1().Nodes().Get(f.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// pull pulls an image into one of a node's stores.
func (f *kubeFleet) pull(node string, driver common.ContainerDriver, namespace common.ContainerdNamespace, image string) (string, error) {
	stream, err := f.talos.ImageClient.Pull(client.WithNode(within(f.t), f.Node(node).Address()), &machineapi.ImageServicePullRequest{
		Containerd: &common.ContainerdInstance{Driver: driver, Namespace: namespace}, ImageRef: image,
	})
	resolved := ""
	for err == nil {
		var resp *machineapi.ImageServicePullResponse
		if resp, err = stream.Recv(); err == nil && resp.GetName() != "" {
			resolved = resp.GetName()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return resolved, err
}

// TestCaseF3ReferencesWithDigests are found as well as plain ones, also in mirrors.
func TestCaseF3ReferencesWithDigests(t *testing.T) {
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	const mirror = "mirror.example.org:5000/k8s/kube-scheduler"
	digest := component.Digest(mirror + ":" + newer)
	for image, configurable := range map[string]bool{mirror + ":" + newer: true, mirror + ":" + newer + "@" + digest: true, mirror + "@" + digest: false} {
		t.Run(image, func(t *testing.T) {
			g := NewWithT(t)
			f := kubeFleetOf(t, s, "a")
			g.Expect(f.pull("cp-1", common.ContainerDriver_CRI, common.ContainerdNamespace_NS_CRI, image)).To(Equal(mirror + ":" + newer + "@" + digest))
			if !configurable {
				return // Talos wants to read a version from what a config has.
			}
			f.configure("cp-1", fmt.Sprintf(`{"cluster":{"scheduler":{"image":%q}}}`, image))
			f.component("cp-1", "kube-scheduler "+newer)
			g.Eventually(func() *corev1.Pod { return f.mirror("kube-scheduler", "cp-1") }).WithTimeout(patience).Should(HaveField("Spec.Containers", ConsistOf(HaveField("Image", image))))
		})
	}
	g := NewWithT(t)
	_, err := f.pull("cp-1", common.ContainerDriver_CRI, common.ContainerdNamespace_NS_CRI, mirror+"@"+component.Digest("another"))
	g.Expect(err).To(MatchError(ContainSubstring("code = NotFound")))
}

// TestCaseF9MissingKubeletImage has all images of a version but the kubelet's.
func TestCaseF9MissingKubeletImage(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	id, err := s.Inject(fault.Fault{Name: fault.ImageMissing, Params: map[string]string{fault.ParamImage: "*/kubelet:" + newer}})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = f.pull("cp-1", common.ContainerDriver_CRI, common.ContainerdNamespace_NS_CRI, "registry.k8s.io/kube-apiserver:"+newer)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = f.pull("worker-1", common.ContainerDriver_CRI, common.ContainerdNamespace_NS_SYSTEM, "ghcr.io/siderolabs/kubelet:"+newer)
	g.Expect(err).To(MatchError(ContainSubstring("code = NotFound")))

	f.configure("worker-1", kubeletImage(newer))
	g.Eventually(func() bool { return nodeReady(f, "worker-1") }).WithTimeout(patience).Should(BeFalse(), "the kubelet stays away")
	g.Expect(f.events("component-failed")).To(HaveExactElements(HavePrefix("worker-1 kubelet " + newer + " ErrImagePull: ")))
	g.Expect(kubeletVersion(f, "worker-1")).To(Equal(sim.DefaultKubernetesVersion))
	g.Expect(s.Clear(id)).To(BeTrue())
	g.Eventually(func() bool { return nodeReady(f, "worker-1") }).WithTimeout(patience).Should(BeTrue())
	g.Expect(kubeletVersion(f, "worker-1")).To(Equal(newer))
}

func TestImagesAreKeptByStore(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	image := "registry.k8s.io/kube-apiserver:" + newer
	_, err := f.pull("cp-1", common.ContainerDriver_CRI, common.ContainerdNamespace_NS_SYSTEM, image)
	g.Expect(err).NotTo(HaveOccurred())
	// From now on no registry has it: only what was pulled into the right store can be started.
	_, err = s.Inject(fault.Fault{Name: fault.ImageMissing, Params: map[string]string{fault.ParamImage: image}})
	g.Expect(err).NotTo(HaveOccurred())
	f.configure("cp-1", apiServerImage(newer))
	g.Eventually(func() []string { return f.events("component-failed") }).WithTimeout(patience).Should(ContainElement(HavePrefix("cp-1 kube-apiserver " + newer + " ErrImagePull: ")))
	f.configure("cp-1", apiServerImage(sim.DefaultKubernetesVersion))
	g.Eventually(func() bool { return podReady(f.mirror("kube-apiserver", "cp-1")) }).WithTimeout(patience).Should(BeTrue(), "the old image is still there")
	g.Expect(f.events("component")).To(BeEmpty(), "it never ran in another version")
}

// TestStoresListTheirImages has what runs, and what was pulled, each where it belongs.
func TestStoresListTheirImages(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	list := func(namespace common.ContainerdNamespace) []string {
		stream, err := f.talos.ImageClient.List(client.WithNode(within(t), f.Node("cp-1").Address()), &machineapi.ImageServiceListRequest{
			Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: namespace},
		})
		g.Expect(err).NotTo(HaveOccurred())
		var names []string
		for {
			image, err := stream.Recv()
			if err != nil {
				return names
			}
			names = append(names, image.GetName())
		}
	}
	_, err := f.pull("cp-1", common.ContainerDriver_CRI, common.ContainerdNamespace_NS_SYSTEM, "ghcr.io/siderolabs/kubelet:"+newer)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list(common.ContainerdNamespace_NS_SYSTEM)).To(ConsistOf(
		"ghcr.io/siderolabs/kubelet:"+sim.DefaultKubernetesVersion, "ghcr.io/siderolabs/kubelet:"+newer,
	))
	g.Expect(list(common.ContainerdNamespace_NS_CRI)).To(And(HaveLen(3), HaveEach(HaveSuffix(":"+sim.DefaultKubernetesVersion))))
}

func TestSlowPull(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	_, err := s.Inject(fault.Fault{Name: fault.SlowPull, Params: map[string]string{fault.ParamImage: "*/kubelet:*", fault.ParamDelay: "1500ms"}})
	g.Expect(err).NotTo(HaveOccurred())
	begin := time.Now()
	_, err = f.pull("cp-1", common.ContainerDriver_CRI, common.ContainerdNamespace_NS_CRI, "registry.k8s.io/kube-scheduler:"+newer)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(time.Since(begin)).To(BeNumerically("<", time.Second))
	begin = time.Now()
	_, err = f.pull("cp-1", common.ContainerDriver_CRI, common.ContainerdNamespace_NS_SYSTEM, "ghcr.io/siderolabs/kubelet:"+newer)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(time.Since(begin)).To(BeNumerically(">=", 1500*time.Millisecond))
}

// TestComponentsThatCrash come back when the config has the old image again, or is right.
func TestComponentsThatCrash(t *testing.T) {
	const gate = `{"cluster":{"apiServer":{"extraArgs":{"feature-gates":"HonorPVReclaimPolicy=true"}}}}`
	t.Run("as ordered", func(t *testing.T) {
		g := NewWithT(t)
		s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, TalosVersion: "v1.13.6"})
		f := kubeFleetOf(t, s, "a")
		_, err := s.Inject(fault.Fault{Name: fault.ComponentCrash, Node: "cp-2", Params: map[string]string{fault.ParamVersion: "v1.36.*"}})
		g.Expect(err).NotTo(HaveOccurred())
		for _, node := range []string{"cp-1", "cp-2"} {
			f.configure(node, apiServerImage(newer))
		}
		f.component("cp-1", "kube-apiserver "+newer)
		g.Eventually(func() *corev1.Pod { return f.mirror("kube-apiserver", "cp-2") }).WithTimeout(patience).Should(And(
			Satisfy(func(p *corev1.Pod) bool { return !podReady(p) }),
			HaveField("Status.ContainerStatuses", ConsistOf(And(
				HaveField("State.Waiting.Reason", "CrashLoopBackOff"), HaveField("RestartCount", BeNumerically(">", 0)),
			))),
		))
		g.Expect(version(t, f, "cp-2")).To(BeEmpty())
		f.configure("cp-2", apiServerImage(sim.DefaultKubernetesVersion))
		g.Eventually(func() string { return version(t, f, "cp-2") }).WithTimeout(patience).Should(Equal(sim.DefaultKubernetesVersion))
		g.Expect(f.events("component")).To(HaveExactElements("cp-1 kube-apiserver " + newer))
	})
	t.Run("because of a feature gate that is gone", func(t *testing.T) {
		g := NewWithT(t)
		s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, TalosVersion: "v1.13.6"})
		f := kubeFleetOf(t, s, "a")
		f.configure("cp-1", gate)
		g.Eventually(func() bool {
			pod := f.mirror("kube-apiserver", "cp-1")
			return podReady(pod) && strings.Contains(fmt.Sprint(pod.Spec.Containers[0].Command), "HonorPVReclaimPolicy")
		}).WithTimeout(patience).Should(BeTrue(), "1.35 knows it")
		f.configure("cp-1", apiServerImage(newer))
		g.Eventually(func() []string { return f.events("component-failed") }).WithTimeout(patience).Should(HaveExactElements(
			And(HavePrefix("cp-1 kube-apiserver "+newer+" CrashLoopBackOff: "), HaveSuffix("unrecognized feature gate: HonorPVReclaimPolicy")),
		))
	})
	t.Run("a kubelet", func(t *testing.T) {
		g := NewWithT(t)
		s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: "v1.13.6"})
		f := kubeFleetOf(t, s, "a")
		_, err := s.Inject(fault.Fault{Name: fault.ComponentCrash, Params: map[string]string{fault.ParamComponent: "kubelet", fault.ParamVersion: newer}})
		g.Expect(err).NotTo(HaveOccurred())
		f.configure("worker-1", kubeletImage(newer))
		g.Eventually(func() bool { return nodeReady(f, "worker-1") }).WithTimeout(patience).Should(BeFalse())
		g.Eventually(func() string { return f.Node("worker-1").State().Stage.String() }).WithTimeout(patience).Should(Equal("running"))
		g.Expect(f.Node("worker-1").State().Ready).To(BeFalse())
		f.configure("worker-1", kubeletImage(sim.DefaultKubernetesVersion))
		g.Eventually(func() bool { return nodeReady(f, "worker-1") }).WithTimeout(patience).Should(BeTrue())
		g.Expect(f.events("component")).To(BeEmpty())
	})
}

var daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}

// manifest is what Talos renders of an object now.
func (f *kubeFleet) manifest(id, kind string) map[string]any {
	f.t.Helper()
	g := NewWithT(f.t)
	ctx := client.WithNode(within(f.t), f.Node("cp-1").Address())
	m, err := safe.StateGetByID[*k8s.Manifest](ctx, f.talos.COSI, id)
	g.Expect(err).NotTo(HaveOccurred())
	for _, item := range m.TypedSpec().Items {
		if item.Object["kind"] == kind {
			return item.Object
		}
	}
	f.t.Fatalf("manifest %s has no %s", id, kind)
	return nil
}

func (f *kubeFleet) dynamic() dynamic.Interface {
	d, err := dynamic.NewForConfig(restConfig(f.t, f.Cluster))
	NewWithT(f.t).Expect(err).NotTo(HaveOccurred())
	return d
}

// applyProxy applies the manifest of kube-proxy.
func (f *kubeFleet) applyProxy(options metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	return f.dynamic().Resource(daemonSets).Namespace("kube-system").Apply(within(f.t), "kube-proxy",
		&unstructured.Unstructured{Object: f.manifest("10-kube-proxy", "DaemonSet")}, options)
}

func (f *kubeFleet) proxies() *appsv1.DaemonSet {
	set, err := f.kube.AppsV1().DaemonSets("kube-system").Get(f.t.Context(), "kube-proxy", metav1.GetOptions{})
	NewWithT(f.t).Expect(err).NotTo(HaveOccurred())
	return set
}

const proxyImage = `{"cluster":{"proxy":{"image":"registry.k8s.io/kube-proxy:` + newer + `"}}}`

func TestProxyRollsWhenItsManifestIsApplied(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, Workers: 2, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	before := f.proxies()
	g.Expect(before.Status).To(And(HaveField("NumberReady", int32(5)), HaveField("ObservedGeneration", int64(1))))
	g.Expect(before.ManagedFields).To(ConsistOf(And(HaveField("Manager", "talos"), HaveField("Operation", metav1.ManagedFieldsOperationApply))))

	f.configure("cp-1", proxyImage)
	g.Expect(f.manifest("10-kube-proxy", "DaemonSet")["spec"]).To(WithTransform(func(o any) string { return fmt.Sprint(o) }, ContainSubstring(newer)))
	g.Expect(f.proxies().Generation).To(Equal(int64(1)), "Talos changes nothing that is there")

	id, err := s.Inject(fault.Fault{Name: fault.SlowRollout})
	g.Expect(err).NotTo(HaveOccurred())
	dry, err := f.applyProxy(metav1.ApplyOptions{FieldManager: "talos", DryRun: []string{metav1.DryRunAll}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(dry.GetGeneration()).To(Equal(int64(2)))
	g.Expect(f.proxies().Generation).To(Equal(int64(1)), "a dry run changes nothing")
	_, err = f.applyProxy(metav1.ApplyOptions{FieldManager: "talos"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() appsv1.DaemonSetStatus { return f.proxies().Status }).WithTimeout(patience).Should(And(
		HaveField("ObservedGeneration", int64(2)), HaveField("UpdatedNumberScheduled", int32(1)), HaveField("NumberReady", int32(4)),
	), "one is replaced and does not get ready")
	g.Expect(f.events("component")).To(BeEmpty())
	g.Expect(s.Clear(id)).To(BeTrue())
	g.Eventually(func() appsv1.DaemonSetStatus { return f.proxies().Status }).WithTimeout(patience).Should(And(
		HaveField("UpdatedNumberScheduled", int32(5)), HaveField("NumberReady", int32(5)), HaveField("DesiredNumberScheduled", int32(5)),
	))
	g.Expect(f.events("component")).To(ConsistOf(
		"cp-1 kube-proxy "+newer, "cp-2 kube-proxy "+newer, "cp-3 kube-proxy "+newer, "worker-1 kube-proxy "+newer, "worker-2 kube-proxy "+newer,
	))
	pods, err := f.kube.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).To(And(HaveLen(5), HaveEach(HaveField("Spec.Containers", ConsistOf(HaveField("Image", HaveSuffix(newer)))))))
}

func TestDeploymentsRoll(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 2, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	deployments := f.kube.AppsV1().Deployments("kube-system")
	_, err := deployments.Patch(t.Context(), "coredns", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"coredns","image":"registry.k8s.io/coredns/coredns:v9"}]}}}}`), metav1.PatchOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() ([]corev1.Pod, error) {
		pods, err := f.kube.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
		return pods.Items, err
	}).WithTimeout(patience).Should(And(HaveLen(2), HaveEach(HaveField("Spec.Containers", ConsistOf(HaveField("Image", HaveSuffix(":v9")))))))
	g.Eventually(func() (appsv1.DeploymentStatus, error) {
		d, err := deployments.Get(t.Context(), "coredns", metav1.GetOptions{})
		return d.Status, err
	}).WithTimeout(patience).Should(And(HaveField("ObservedGeneration", int64(2)), HaveField("UpdatedReplicas", int32(2)), HaveField("ReadyReplicas", int32(2))))
}

// TestFieldsHaveManagers: whoever applies what another has set gets a conflict, unless it insists.
func TestFieldsHaveManagers(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	_, err := f.kube.AppsV1().DaemonSets("kube-system").Patch(t.Context(), "kube-proxy", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"kube-proxy","image":"mirror.example.org/kube-proxy:v1"}]}}}}`), metav1.PatchOptions{FieldManager: "helm"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.proxies().ManagedFields).To(ContainElement(And(HaveField("Manager", "helm"), HaveField("Operation", metav1.ManagedFieldsOperationUpdate))))
	_, err = f.applyProxy(metav1.ApplyOptions{FieldManager: "talos"})
	g.Expect(err).To(Satisfy(apierrors.IsConflict))
	g.Expect(err).To(MatchError(ContainSubstring(`conflict with "helm"`)))
	_, err = f.applyProxy(metav1.ApplyOptions{FieldManager: "talos", Force: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.proxies().Spec.Template.Spec.Containers[0].Image).To(HaveSuffix(sim.DefaultKubernetesVersion))
	again, err := f.applyProxy(metav1.ApplyOptions{FieldManager: "talos"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.GetGeneration()).To(Equal(f.proxies().Generation), "there is nothing to change")
	_, err = f.applyProxy(metav1.ApplyOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsBadRequest), "somebody has to apply it")

	created, err := f.kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{FieldManager: "me"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(created.ManagedFields).To(ConsistOf(HaveField("Manager", "me")))
}

func TestAdmissionIsRefused(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	f.configure("cp-1", proxyImage)
	order(t, s, 1, fault.AdmissionRefused, "")
	_, err := f.applyProxy(metav1.ApplyOptions{FieldManager: "talos", DryRun: []string{metav1.DryRunAll}})
	g.Expect(err).To(Satisfy(apierrors.IsForbidden))
	g.Expect(err).To(MatchError(`admission webhook "policy.example.org" denied the request: not allowed by policy`))
	order(t, s, 1, fault.AdmissionRefused, "", "mode", "fails", "name", "kube-*")
	_, err = f.applyProxy(metav1.ApplyOptions{FieldManager: "talos"})
	g.Expect(err).To(Satisfy(apierrors.IsInternalError))
	g.Expect(f.proxies().Generation).To(Equal(int64(1)))
	_, err = f.applyProxy(metav1.ApplyOptions{FieldManager: "talos"})
	g.Expect(err).NotTo(HaveOccurred())
}

// TestInventory is kept from Talos 1.13 on.
func TestInventory(t *testing.T) {
	for version, kept := range map[string]bool{"v1.12.4": false, "v1.13.6": true} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: version})
			f := kubeFleetOf(t, s, "a")
			inventory, err := f.kube.CoreV1().ConfigMaps("kube-system").Get(t.Context(), constants.KubernetesBootstrapManifestsInventoryName, metav1.GetOptions{})
			set := f.proxies()
			if !kept {
				g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
				g.Expect(set.Annotations).To(BeEmpty())
				g.Expect(set.ManagedFields).To(ConsistOf(And(HaveField("Manager", "talos"), HaveField("Operation", metav1.ManagedFieldsOperationUpdate))))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(inventory.Data).To(And(
				HaveLen(20), HaveKey("kube-system_kube-proxy_apps_DaemonSet"), HaveKey("_system__talos-nodes_rbac.authorization.k8s.io_ClusterRole"),
			))
			g.Expect(set.Annotations).To(HaveKeyWithValue("config.k8s.io/owning-inventory", constants.KubernetesBootstrapManifestsInventoryName))
		})
	}
}

// TestManifestsThatAreNotWanted are not there.
func TestManifestsFollowTheConfig(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	f.configure("cp-1", `{"cluster":{"proxy":{"disabled":true},"network":{"cni":{"name":"none"}}}}`)
	ctx := client.WithNode(within(t), f.Node("cp-1").Address())
	list, err := safe.StateListAll[*k8s.Manifest](ctx, f.talos.COSI)
	g.Expect(err).NotTo(HaveOccurred())
	var ids []string
	for m := range list.All() {
		ids = append(ids, m.Metadata().ID())
	}
	g.Expect(ids).To(And(ContainElement("11-core-dns"), Not(ContainElement("10-kube-proxy")), Not(ContainElement("05-flannel"))))
	g.Expect(f.proxies().Status.NumberReady).To(Equal(int32(1)), "what is there stays until somebody prunes it")

	g.Expect(f.kube.AppsV1().DaemonSets("kube-system").Delete(t.Context(), "kube-proxy", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() ([]corev1.Pod, error) {
		pods, err := f.kube.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy"})
		return pods.Items, err
	}).WithTimeout(patience).Should(BeEmpty(), "its pods go with it")
}

func TestDeprecatedAPIs(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	_, err := s.Inject(fault.Fault{Name: fault.DeprecatedAPI, Params: map[string]string{fault.ParamObjects: "3"}})
	g.Expect(err).NotTo(HaveOccurred())
	metric := `apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.36",resource="flowschemas",subresource="",version="v1beta3"} 1`
	g.Expect(f.kube.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())).To(WithTransform(func(b []byte) string { return string(b) }, ContainSubstring(metric)))
	resource := schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3", Resource: "flowschemas"}
	list, err := f.dynamic().Resource(resource).List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list.Items).To(HaveLen(3))

	f.configure("cp-1", apiServerImage(newer))
	f.component("cp-1", "kube-apiserver "+newer)
	g.Eventually(func() (string, error) {
		text, err := f.kube.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		return string(text), err
	}).WithTimeout(patience).Should(And(ContainSubstring("# TYPE apiserver_requested_deprecated_apis gauge"), Not(ContainSubstring(metric))))
	_, err = f.dynamic().Resource(resource).List(t.Context(), metav1.ListOptions{})
	g.Expect(err).To(Satisfy(apierrors.IsNotFound))

	config := restConfig(t, f.Cluster)
	config.CertData, config.KeyData = nil, nil
	anonymous, err := rest.HTTPClientFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	resp, err := anonymous.Get(f.Endpoint() + "/metrics") //nolint:noctx // The test is over soon.
	g.Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close() //nolint:errcheck // Nobody reads it.
	g.Expect(resp.StatusCode).To(Equal(http.StatusUnauthorized))
}

// TestPartsOutlastARestartOfTheSimulator: what ran runs on, and what was being replaced goes on being replaced.
func TestPartsOutlastARestartOfTheSimulator(t *testing.T) {
	g := NewWithT(t)
	o := sim.Options{Dir: t.TempDir(), Speed: fast, Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: "v1.13.6"}}}
	s, err := sim.Start(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	f := kubeFleetOf(t, s, "a")
	f.configure("cp-1", apiServerImage(newer))
	f.component("cp-1", "kube-apiserver "+newer)
	_, err = s.Inject(fault.Fault{Name: fault.ComponentCrash, Params: map[string]string{fault.ParamComponent: "kubelet"}})
	g.Expect(err).NotTo(HaveOccurred())
	f.configure("worker-1", kubeletImage(newer))
	g.Eventually(func() []string { return f.events("component-failed") }).WithTimeout(patience).ShouldNot(BeEmpty())
	s.Stop()

	s = startWith(t, o)
	f = kubeFleetOf(t, s, "a")
	g.Eventually(func() bool { return podReady(f.mirror("kube-apiserver", "cp-1")) }).WithTimeout(patience).Should(BeTrue())
	pod := f.mirror("kube-apiserver", "cp-1")
	g.Expect(pod.Spec.Containers[0].Image).To(HaveSuffix(newer))
	config, err := safe.StateGetByID[*k8s.APIServerConfig](client.WithNode(within(t), f.Node("cp-1").Address()), f.talos.COSI, k8s.APIServerConfigID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pod.Annotations).To(HaveKeyWithValue(constants.AnnotationStaticPodConfigVersion, strconv.FormatUint(config.Metadata().Version().Value(), 10)))
	f.component("worker-1", "kubelet "+newer)
	g.Eventually(func() string { return kubeletVersion(f, "worker-1") }).WithTimeout(patience).Should(Equal(newer))
	g.Expect(f.proxies().ManagedFields).NotTo(BeEmpty())
}

// TestPartsOfAMachineThatWasOff come with the boot that it has had when the simulator starts again.
func TestPartsOfAMachineThatWasOff(t *testing.T) {
	g := NewWithT(t)
	o := sim.Options{Dir: t.TempDir(), Speed: fast, Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: "v1.13.6"}}}
	s, err := sim.Start(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	f := kubeFleetOf(t, s, "a")
	worker := f.Node("worker-1")
	_, err = apply(client.WithNode(within(t), worker.Address()), f.talos, &machineapi.ApplyConfigurationRequest{
		Data: patched(t, worker, kubeletImage(newer)), Mode: machineapi.ApplyConfigurationRequest_STAGED,
	})
	g.Expect(err).NotTo(HaveOccurred())
	worker.PowerOff()
	s.Stop()

	s = startWith(t, o)
	f = kubeFleetOf(t, s, "a")
	f.component("worker-1", "kubelet "+newer)
	g.Eventually(func() string { return kubeletVersion(f, "worker-1") }).WithTimeout(patience).Should(Equal(newer))
}

// TestStagedComponents come with the next boot.
func TestStagedComponents(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 1, Workers: 1, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	worker := f.Node("worker-1")
	_, err := apply(client.WithNode(within(t), worker.Address()), f.talos, &machineapi.ApplyConfigurationRequest{
		Data: patched(t, worker, kubeletImage(newer)), Mode: machineapi.ApplyConfigurationRequest_STAGED,
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kubeletVersion(f, "worker-1")).To(Equal(sim.DefaultKubernetesVersion))
	reboot(t, s, f.talos, worker)
	g.Eventually(func() string { return kubeletVersion(f, "worker-1") }).WithTimeout(patience).Should(Equal(newer))
	g.Expect(f.events("component")).To(HaveExactElements("worker-1 kubelet " + newer))
}

// TestPodsComeWithTheMember: a kubelet that was there before its etcd member runs the control plane once that has come.
func TestPodsComeWithTheMember(t *testing.T) {
	g := NewWithT(t)
	s := start(t, sim.ClusterSpec{Name: "a", ControlPlanes: 3, TalosVersion: "v1.13.6"})
	f := kubeFleetOf(t, s, "a")
	id := order(t, s, 0, fault.EtcdMissing, "cp-2", fault.ParamMode, "silent")
	reboot(t, s, f.talos, f.Node("cp-2"))
	names := func() (names []string) {
		pods, err := f.kube.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-apiserver"})
		g.Expect(err).NotTo(HaveOccurred())
		for _, pod := range pods.Items {
			names = append(names, pod.Name)
		}
		return names
	}
	g.Eventually(names).WithTimeout(patience).Should(ConsistOf("kube-apiserver-cp-1", "kube-apiserver-cp-3"))
	g.Expect(s.Clear(id)).To(BeTrue())
	g.Eventually(names).WithTimeout(patience).Should(HaveLen(3))
	g.Eventually(func() bool { return podReady(f.mirror("kube-apiserver", "cp-2")) }).WithTimeout(patience).Should(BeTrue())
}
