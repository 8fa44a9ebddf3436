// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
	"ichor.maesh.dev/hub/test/sim/journal"
)

const nextKubernetes = "v1.36.2"

var (
	eight = sim.ClusterSpec{Name: "eight", ControlPlanes: 3, Workers: 5}
	small = sim.ClusterSpec{Name: "small", ControlPlanes: 1, Workers: 1}
)

// skewOf is the version skew policy for a cluster.
func skewOf(cluster *sim.Cluster) invariant.Skew {
	skew := invariant.Skew{Cluster: cluster.Name(), From: sim.DefaultKubernetesVersion}
	for _, node := range cluster.Nodes() {
		if node.ControlPlane() {
			skew.ControlPlanes = append(skew.ControlPlanes, node.Name())
		} else {
			skew.Workers = append(skew.Workers, node.Name())
		}
	}
	return skew
}

// expectKubernetes expects that a cluster runs a version everywhere, and never ran a mixture that Kubernetes does not support.
func (w *world) expectKubernetes(cluster *sim.Cluster, version string) {
	GinkgoHelper()
	skew := skewOf(cluster)
	Expect(skew.Violations(w.Fleet.Journal())).To(BeEmpty())
	Expect(skew.Versions(w.Fleet.Journal())).To(HaveEach(version))
	changed := map[invariant.Component]int{}
	for _, change := range skew.Changes(w.Fleet.Journal()) {
		changed[change.Component]++
	}
	Expect(changed).To(HaveEach(1), "nothing changes twice")
}

// talosctl runs the real client against a cluster.
func (w *world) talosctl(ctx context.Context, cluster *sim.Cluster, args ...string) string {
	GinkgoHelper()
	binary, err := framework.Binary("talosctl")
	switch {
	case err != nil && os.Getenv(framework.RequireVariable) == "1":
		Fail(err.Error())
	case err != nil:
		Skip(fmt.Sprintf("without talosctl: %v", err))
	}
	config := filepath.Join(w.FleetDir(), cluster.Name(), "talosconfig")
	out, err := exec.CommandContext(ctx, binary, append([]string{"--talosconfig", config, "-n", cluster.Nodes()[0].Address()}, args...)...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

var _ = Describe("Upgrading Kubernetes", func() {
	It("brings a cluster of eight to the next minor, by the skew policy at every moment, and leaves nothing to do", func(ctx SpecContext) {
		w := install(ctx, eight)
		cluster := w.Fleet.Cluster("eight")
		Expect(w.SignIn(ctx)).To(Succeed())
		plan := w.hub(ctx, 0, "operation", "plan", "kubernetes", nextKubernetes, "--cluster", "eight").Out
		Expect(plan).To(And(
			ContainSubstring("upgrade Kubernetes to v1.36.2; components restart"), ContainSubstring("3. APIServer: restarts components, one at a time"),
			ContainSubstring("each Node is drained first"), ContainSubstring("Kubernetes v1.35.2 -> v1.36.2"),
			ContainSubstring("Configured: DaemonSet kube-system/kube-proxy"), MatchRegexp(`(?m)^ +\+ +image: registry.k8s.io/kube-proxy:v1.36.2$`),
		))
		w.ichor(ctx, 0, "upgrade", "kubernetes", "1.36.2", "--cluster", "eight", "--max-unavailable", "2", "--yes", "--follow")
		w.expectKubernetes(cluster, nextKubernetes)
		Expect(stagesOf(skewOf(cluster).Changes(w.Fleet.Journal()))).To(Equal(
			[]string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}), "component by component")
		op, err := w.operation(ctx, "eight")
		Expect(err).NotTo(HaveOccurred())
		Expect(op.Status.Units[0].Message).To(HavePrefix("manifests: 1 changed (DaemonSet kube-system/kube-proxy)"))
		Eventually(func() (*v1alpha1.TalosCluster, error) {
			found := &v1alpha1.TalosCluster{}
			return found, w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "eight"}, found)
		}).WithContext(ctx).Should(And(HaveField("Spec.KubernetesVersion", nextKubernetes), HaveField("Status.KubernetesVersion", nextKubernetes),
			HaveField("Status.Conditions", ContainElement(And(HaveField("Type", "SpecInSync"), HaveField("Status", BeEquivalentTo("True")))))))

		left := w.talosctl(ctx, cluster, "upgrade-k8s", "--to", nextKubernetes, "--dry-run")
		Expect(left).NotTo(ContainSubstring("> update "))
		for line := range strings.Lines(left) {
			if manifest, ok := strings.CutPrefix(line, " < "); ok {
				Expect(manifest).To(HavePrefix("unchanged "))
			}
		}
	}, SpecTimeout(6*time.Minute))

	It("goes on after kill -9 in the middle, and does nothing twice", func(ctx SpecContext) {
		w := install(ctx, three)
		w.ichor(ctx, 0, "upgrade", "kubernetes", nextKubernetes, "--cluster", "three", "--yes")
		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		_, err = w.Fleet.Journal().Wait(ctx, journal.Filter{Cluster: "three", Method: invariant.ComponentEvent})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.KillHub()).To(Succeed())
		Expect(w.StartHub(ctx)).To(Succeed())
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		w.expectKubernetes(w.Fleet.Cluster("three"), nextKubernetes)
	}, SpecTimeout(5*time.Minute))

	It("changes nothing when an image is not there (F9)", func(ctx SpecContext) {
		w := install(ctx, small)
		id, err := w.Fleet.Inject(fault.Fault{Name: "image-missing", Cluster: "small", Params: map[string]string{"image": "*/kubelet:*"}})
		Expect(err).NotTo(HaveOccurred())
		result := w.ichor(ctx, 3, "upgrade", "kubernetes", nextKubernetes, "--cluster", "small", "--yes", "--follow")
		Expect(result.Err).To(And(ContainSubstring("Pulling failed"), ContainSubstring("kubelet:v1.36.2"), ContainSubstring("ichor operation resume")))
		Expect(skewOf(w.Fleet.Cluster("small")).Changes(w.Fleet.Journal())).To(BeEmpty())
		Expect(applied(w, "small")).To(BeEmpty())
		Expect(w.Fleet.Clear(id)).To(BeTrue())
		op, err := w.operation(ctx, "small")
		Expect(err).NotTo(HaveOccurred())
		w.ichor(ctx, 0, "operation", "resume", op.Name)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		w.expectKubernetes(w.Fleet.Cluster("small"), nextKubernetes)
	}, SpecTimeout(5*time.Minute))

	It("stops at a component that crashes, says why and how to go on, and takes no other control plane", func(ctx SpecContext) {
		w := install(ctx, three)
		Expect(w.RestartHub(ctx, "--step-deadline", "Verifying=10s")).To(Succeed())
		id, err := w.Fleet.Inject(fault.Fault{
			Name: "component-crash", Cluster: "three", Params: map[string]string{"component": "kube-apiserver", "version": nextKubernetes, "message": "unknown flag: --insecure-port"},
		})
		Expect(err).NotTo(HaveOccurred())
		result := w.ichor(ctx, 3, "upgrade", "kubernetes", nextKubernetes, "--cluster", "three", "--yes", "--follow")
		Expect(result.Err).To(And(ContainSubstring("Verifying not over within 10s"), ContainSubstring("ichor operation resume")))
		Expect(applied(w, "three")).To(HaveLen(1))
		op, err := w.operation(ctx, "three")
		Expect(err).NotTo(HaveOccurred())
		Expect(w.ichor(ctx, 0, "operation", "get", op.Name).Out).To(And(ContainSubstring("CrashLoopBackOff"), ContainSubstring("logs -k kube-system/kube-apiserver")))
		Expect(w.Fleet.Clear(id)).To(BeTrue())
		w.ichor(ctx, 0, "operation", "resume", op.Name)
		w.ichor(ctx, 0, "operation", "watch", op.Name)
		w.expectKubernetes(w.Fleet.Cluster("three"), nextKubernetes)
	}, SpecTimeout(6*time.Minute))

	It("does not wipe a config that somebody tries", func(ctx SpecContext) {
		w := install(ctx, small)
		cluster := w.Fleet.Cluster("small")
		w.talosctl(ctx, cluster, "patch", "mc", "--mode", "try", "--timeout", "30s", "--patch", `{"machine":{"nodeLabels":{"tried":"true"}}}`)
		w.ichor(ctx, 0, "upgrade", "kubernetes", nextKubernetes, "--cluster", "small", "--yes")
		op, err := w.operation(ctx, "small")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return w.ichor(ctx, 0, "operation", "get", op.Name).Out }).WithContext(ctx).Should(And(
			ContainSubstring("MachineConfigPending"), ContainSubstring("staged or tried on small-cp-1")))
		Expect(applied(w, "small")).To(BeEmpty())
		w.ichor(ctx, 0, "operation", "watch", op.Name) // The trial ends by itself.
		w.expectKubernetes(cluster, nextKubernetes)
	}, SpecTimeout(5*time.Minute))

	It("is refused where it leads nowhere", func(ctx SpecContext) {
		w := install(ctx, small)
		for version, why := range map[string]string{
			"1.37.0": "skips v1.36", "1.34.1": "KubernetesVersionPath", "1.36.0-rc.1": "KubernetesVersionPath", "1.99.0": "this hub knows Kubernetes up to",
		} {
			result := w.ichor(ctx, 1, "upgrade", "kubernetes", version, "--cluster", "small", "--yes")
			Expect(result.Err).To(ContainSubstring(why), version)
		}
	}, SpecTimeout(2*time.Minute))
})

// stagesOf are the components that change, each once while it goes on.
func stagesOf(changes []invariant.Change) []string {
	var names []string
	for _, change := range changes {
		names = append(names, change.Name)
	}
	return slices.Compact(names)
}

// applied are the configs that the hub applied to machines of a cluster. What somebody tries is not among them.
func applied(w *world, cluster string) []journal.Entry {
	entries := w.Fleet.Journal().Entries(journal.Filter{Cluster: cluster, Method: "MachineService/ApplyConfiguration"})
	return slices.DeleteFunc(entries, func(e journal.Entry) bool { return e.Arguments["mode"] != "NO_REBOOT" })
}
