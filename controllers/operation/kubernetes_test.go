// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes/machineimage"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

const (
	oldKubernetes = "v1.35.2"
	newKubernetes = "v1.36.1"
)

// staticPods are the components of a control plane.
var staticPods = []machineimage.Component{machineimage.APIServer, machineimage.ControllerManager, machineimage.Scheduler}

// machineConfig is a config of the form with one document, with all images in one version.
func machineConfig(version string) []byte {
	return fmt.Appendf(nil, `version: v1alpha1
machine:
    kubelet:
        image: ghcr.io/siderolabs/kubelet:%[1]s
cluster:
    apiServer:
        image: registry.k8s.io/kube-apiserver:%[1]s
    controllerManager:
        image: registry.k8s.io/kube-controller-manager:%[1]s
    scheduler:
        image: registry.k8s.io/kube-scheduler:%[1]s
    proxy:
        image: registry.k8s.io/kube-proxy:%[1]s
`, version)
}

// runsKubernetes makes the target run one version of Kubernetes and ask for another. Machines and cluster behave like those that work.
func (f *fleet) runsKubernetes(ctx context.Context, running, wanted string) {
	GinkgoHelper()
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c"}}
	change(ctx, cluster, func(c *v1alpha1.TalosCluster) { c.Spec.KubernetesVersion = wanted })
	cluster.Status.KubernetesVersion = running
	Expect(admin.Status().Update(ctx, cluster)).To(Succeed())
	for name, address := range maps.All(f.addresses) {
		machine := &v1alpha1.TalosMachine{}
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "c-" + name}, machine)).To(Succeed())
		machine.Status.KubeletVersion = running
		Expect(admin.Status().Update(ctx, machine)).To(Succeed())
		f.talos.Configure(address, talos.Config{Active: machineConfig(running), Persistent: machineConfig(running)})
		f.follow(address, machineConfig(running))
	}
	f.talos.Applied = f.follow
	f.rendersProxy(running)
	f.kube.SetWorkload(kube.Workload{Kind: kube.DaemonSetKind, Namespace: "kube-system", Name: "kube-proxy", Images: []string{"registry.k8s.io/kube-proxy:" + running}})
	f.kube.Synced = func(manifests []map[string]any) {
		image := strings.TrimPrefix(fmt.Sprint(manifests[0]["image"]), "registry.k8s.io/kube-proxy:")
		f.kube.SetWorkload(kube.Workload{Kind: kube.DaemonSetKind, Namespace: "kube-system", Name: "kube-proxy", Images: []string{"registry.k8s.io/kube-proxy:" + image}})
	}
}

// rendersProxy makes control planes render kube-proxy in a version.
func (f *fleet) rendersProxy(version string) {
	image := "registry.k8s.io/kube-proxy:" + version
	f.talos.Render(map[string]any{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": map[string]any{"name": "kube-proxy", "namespace": "kube-system"}, "image": image,
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "kube-proxy", "image": image}}}}},
	})
}

// follow has a machine run what its config says.
func (f *fleet) follow(address string, data []byte) {
	facts, runs := f.talos.Facts(address), f.talos.RunsKubernetes(address)
	image := func(component machineimage.Component) string {
		setting, err := machineimage.Read(data, component)
		Expect(err).NotTo(HaveOccurred())
		return setting.Image
	}
	if f.kube.Get(facts.NodeName).ControlPlane {
		if runs.Components == nil {
			runs.Components = map[string]talos.Component{}
		}
		for _, component := range staticPods {
			told := runs.Components[string(component)]
			if told.Image == image(component) {
				continue
			}
			version, _ := strconv.Atoi(told.ConfigVersion) // The first one is empty.
			told.Image, told.ConfigVersion = image(component), strconv.Itoa(version+1)
			runs.Components[string(component)] = told
			f.kube.SetPod(kube.ComponentPod{
				Component: string(component), Node: facts.NodeName, Image: told.Image, Running: told.Image, ConfigVersion: told.ConfigVersion, Ready: !f.crashes(told.Image),
				Trouble: map[bool]string{true: "CrashLoopBackOff (exit code 1)"}[f.crashes(told.Image)],
			})
		}
		f.rendersProxy(versionIn(image(machineimage.Proxy)))
	}
	runs.Kubelet.Image = image(machineimage.Kubelet)
	f.talos.SetKubernetes(address, runs)
	f.kube.Change(facts.NodeName, func(n *kube.Node) { n.KubeletVersion = versionIn(runs.Kubelet.Image) })
}

// crashes says whether an image is one that does not start.
func (f *fleet) crashes(image string) bool {
	return f.crashing != "" && strings.Contains(image, f.crashing)
}

func versionIn(image string) string { return image[strings.LastIndex(image, ":")+1:] }

func upgradeKubernetes() v1alpha1.TalosOperationSpec {
	return v1alpha1.TalosOperationSpec{Kind: v1alpha1.KubernetesKind}
}

// expectKubernetes holds a cluster that was upgraded against what it shall run, and the calls against those that may be made: one for each
// component of each machine.
func (f *fleet) expectKubernetes(version string) {
	GinkgoHelper()
	for name, address := range maps.All(f.addresses) {
		most := 1
		if f.kube.Get(name).ControlPlane {
			most = 5
			for component, told := range f.talos.RunsKubernetes(address).Components {
				Expect(told.Image).To(HaveSuffix(":"+version), component+" on "+name)
			}
		}
		Expect(f.kube.Get(name)).To(And(HaveField("KubeletVersion", version), HaveField("Unschedulable", false), HaveField("CordonedBy", "")))
		Expect(f.kube.Get(name).Storage).NotTo(HaveKey(v1alpha1.StorageEvacuatedByAnnotation))
		Expect(slices.DeleteFunc(f.calls("ApplyConfig"), func(call string) bool { return call != "ApplyConfig "+name })).To(HaveLen(most))
	}
	Expect(f.calls("Reboot", "Upgrade", "ForfeitLeadership")).To(BeEmpty())
}

var _ = Describe("An upgrade of Kubernetes", func() {
	It("goes component by component over all control planes, then kubelets, and says what becomes of the manifests", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 2)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		f.kube.SetChanges(
			kube.ManifestChange{Object: "DaemonSet kube-system/kube-proxy", Action: kube.ManifestConfigured},
			kube.ManifestChange{Object: "DaemonSet kube-system/cilium", Action: kube.ManifestSkipped, Owner: `release "cilium" of Helm`},
		)
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		f.expectKubernetes(newKubernetes)
		change := func(machines ...string) (calls []string) {
			for _, machine := range machines {
				calls = append(calls, "ApplyConfig "+machine)
			}
			return calls
		}
		each := change("cp2", "cp3", "cp1") // The leader of etcd comes last.
		Expect(f.calls("ApplyConfig")).To(Equal(slices.Concat(each, each, each, each, each, change("w1", "w2"))))
		drains := slices.DeleteFunc(f.kube.Calls(), func(call string) bool { return !strings.HasPrefix(call, "Drain ") })
		Expect(drains).To(Equal([]string{"Drain cp2", "Drain cp3", "Drain cp1", "Drain w1", "Drain w2"}))
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.CompletedStages).To(Equal([]string{
			"Check", "PrePull", "APIServer", "ControllerManager", "Scheduler", "ProxyConfig", "Kubelets", "Manifests",
		}))
		Expect(current.Status.Units[0]).To(HaveField("Message",
			`manifests: 1 changed (DaemonSet kube-system/kube-proxy), 1 left to their owners (DaemonSet kube-system/cilium, release "cilium" of Helm), 0 unchanged`))
		Eventually(f.events(ctx, op)).Should(ContainElement(HavePrefix("Normal Found: Check: manifests: 1 changed")))
	})

	It("goes on with what is half-way by whoever's hand (F1, F14)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 2)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		for _, done := range []struct {
			machine string
			of      []machineimage.Component
		}{
			{"cp1", []machineimage.Component{machineimage.APIServer, machineimage.Proxy}}, {"cp2", []machineimage.Component{machineimage.APIServer}}, {"w1", nil},
		} {
			data := f.talos.Configured(f.addresses[done.machine]).Active
			if done.of == nil {
				data = machineConfig(newKubernetes)
			}
			for _, component := range done.of {
				var err error
				data, err = machineimage.Set(data, component, "registry.k8s.io/"+string(component)+":"+newKubernetes)
				Expect(err).NotTo(HaveOccurred())
			}
			f.talos.Configure(f.addresses[done.machine], talos.Config{Active: data, Persistent: data})
			f.follow(f.addresses[done.machine], data)
		}
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		count := map[string]int{}
		for _, call := range f.calls("ApplyConfig") {
			count[call]++
		}
		Expect(count).To(Equal(map[string]int{"ApplyConfig cp1": 3, "ApplyConfig cp2": 4, "ApplyConfig cp3": 5, "ApplyConfig w2": 1}))
		Expect(f.calls("PullImage")).NotTo(ContainElement("PullImage w1"), "it has all of it in use")
	})

	It("drains nobody for another patch level", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.runsKubernetes(ctx, "v1.35.2", "v1.35.4")
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		f.expectKubernetes("v1.35.4")
		Expect(f.kube.Calls()).NotTo(ContainElement(HavePrefix("Drain")))
	})

	It("goes over two control planes: etcd loses no member", func(ctx SpecContext) {
		f := newFleet(ctx, 2, 1)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		f.expectKubernetes(newKubernetes)
	})

	It("changes nothing when an image is not there (F9)", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		f.talos.FailNext("PullImage", f.addresses["w1"], errNoSuchImage)
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("machine c-w1: Pulling failed: ")))
		Expect(f.calls("ApplyConfig")).To(BeEmpty())
		Expect(f.kube.Calls()).NotTo(ContainElement(HavePrefix("Cordon")))
		retry(ctx, op)
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
	})

	It("changes nothing when somebody asks for APIs that are gone then, unless that is overridden", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 0)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		f.kube.SetDeprecated(kube.DeprecatedAPI{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3", Resource: "flowschemas", RemovedIn: "1.36"})
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", ContainSubstring("stage Check: Checking failed: RemovedAPIs: ")))
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.Units[0].Message).To(And(
			ContainSubstring("flowcontrol.apiserver.k8s.io/v1beta3 flowschemas is asked for, and gone from v1.36 on"), ContainSubstring("--override RemovedAPIs=REASON")))
		Expect(f.calls()).To(BeEmpty())
		Expect(admin.Delete(ctx, op)).To(Succeed())

		spec := upgradeKubernetes()
		spec.Overrides = []v1alpha1.GateOverride{{Gate: v1alpha1.RemovedAPIsGate, Reason: "it was a test"}}
		op = f.create(ctx, "again", spec)
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
	})

	It("waits for a config that somebody tries, and does not wipe it", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		tried := talos.Config{Active: append(machineConfig(oldKubernetes), "# tried\n"...), Persistent: machineConfig(oldKubernetes)}
		f.talos.Configure(f.addresses["cp1"], tried)
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "MachineConfigPending", ContainSubstring("staged or tried on c-cp1")))
		Expect(f.calls("ApplyConfig")).To(BeEmpty())
		Expect(f.talos.Configured(f.addresses["cp1"])).To(Equal(tried))
		f.talos.Configure(f.addresses["cp1"], talos.Config{Active: tried.Persistent, Persistent: tried.Persistent})
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
	})

	It("stops at a component that does not start, says why and how to go on, and takes no other", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 1)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		f.crashing = "kube-apiserver:" + newKubernetes
		f.deadlines = map[v1alpha1.OperationStep]time.Duration{v1alpha1.VerifyingStep: 400 * time.Millisecond}
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op)).Should(bePaused("StepFailed", And(
			ContainSubstring("machine c-cp2: Verifying not over within 400ms"), ContainSubstring("ichor operation resume up"))))
		current, err := now(ctx, op)()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Machine("c-cp2").Message).To(And(ContainSubstring("CrashLoopBackOff (exit code 1)"), ContainSubstring("talosctl -n 10.0.0.2 logs -k")))
		Expect(f.calls("ApplyConfig")).To(Equal([]string{"ApplyConfig cp2"}))

		f.crashing = ""
		f.kube.SetPod(kube.ComponentPod{
			Component: "kube-apiserver", Node: "cp2", Image: "registry.k8s.io/kube-apiserver:" + newKubernetes, ConfigVersion: "2", Ready: true,
		})
		retry(ctx, op)
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		f.expectKubernetes(newKubernetes)
	})

	It("waits at the beginning for a Node that is not ready, and goes on without it once it is held (E11)", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 2)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		f.kube.Change("w1", func(n *kube.Node) { n.Ready = false })
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(now(ctx, op)).Should(haveCondition("Progressing", metav1.ConditionFalse, "NodesReady", And(
			ContainSubstring("1 not ready: Node w1 of machine c-w1"), ContainSubstring("ichor machine hold"))))
		Expect(f.calls()).To(BeEmpty())
		held := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "c-w1"}}
		change(ctx, held, func(m *v1alpha1.TalosMachine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.UpgradeHoldAnnotation, "broken")
		})
		// The budget counts it as away, whoever took it away.
		Eventually(now(ctx, op), time.Minute).Should(haveCondition("Progressing", metav1.ConditionFalse, "WorkersAvailable", ContainSubstring("c-w1 (not ready)")))
		f.kube.Change("w1", func(n *kube.Node) { n.Ready = true })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("ApplyConfig")).NotTo(ContainElement("ApplyConfig w1"))
	})

	It("takes its cordon off when it is paused on the way, and goes on later", func(ctx SpecContext) {
		f := newFleet(ctx, 1, 1)
		f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
		stop := f.kube.HangBefore("Drain", "w1")
		f.startHub()
		op := f.create(ctx, "up", upgradeKubernetes())
		Eventually(stop.Reached, time.Minute).Should(BeClosed())
		change(ctx, op.DeepCopy(), func(o *v1alpha1.TalosOperation) { o.Spec.Paused = new(bool); *o.Spec.Paused = true })
		Eventually(now(ctx, op)).Should(bePaused("OperatorPaused", ContainSubstring("spec.paused")))
		Eventually(func() kube.Node { return f.kube.Get("w1") }).Should(HaveField("Unschedulable", false))
		change(ctx, op.DeepCopy(), func(o *v1alpha1.TalosOperation) { *o.Spec.Paused = false })
		Eventually(now(ctx, op), time.Minute).Should(beCompleted())
		f.expectKubernetes(newKubernetes)
	})
})
