// SPDX-License-Identifier: Apache-2.0

package talosctl_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

const kubernetesTarget = "v1.36.2"

// upgraded are the parts that an upgrade of Kubernetes changes on the machines.
var upgraded = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}

// planned is what a dry run says that it would do.
func (f *fleet) planned() string {
	f.t.Helper()
	return f.run(f.on("cp-1"), "upgrade-k8s", "--to", kubernetesTarget, "--dry-run")
}

// expectNothingLeft expects a dry run to find nothing to do.
func (f *fleet) expectNothingLeft() {
	f.t.Helper()
	g := NewWithT(f.t)
	plan := f.planned()
	g.Expect(plan).To(ContainSubstring("automatically detected the lowest Kubernetes version " + kubernetesTarget[1:]))
	g.Expect(plan).NotTo(ContainSubstring("> update "))
	for line := range strings.Lines(plan) {
		if after, ok := strings.CutPrefix(line, " < "); ok {
			g.Expect(after).To(HavePrefix("unchanged "), "a manifest")
		}
	}
}

func (f *fleet) skew() invariant.Skew {
	return invariant.Skew{
		Cluster: f.Name(), ControlPlanes: []string{"cp-1", "cp-2", "cp-3"}, Workers: []string{"worker-1", "worker-2"}, From: sim.DefaultKubernetesVersion,
	}
}

// TestUpgradeKubernetes is the upgrade as the real client does it, with all its waiting: for the versions of the resources in the
// annotations of mirror pods, for the service of the kubelet to go and come, and for the rollout of what it applies.
func TestUpgradeKubernetes(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	plan := f.planned()
	for _, part := range upgraded {
		g.Expect(plan).To(MatchRegexp(fmt.Sprintf("> update %s: v?%s -> %s", part, sim.DefaultKubernetesVersion[1:], kubernetesTarget[1:])))
	}
	g.Expect(plan).To(And(
		ContainSubstring("Talos version 1.13.6 is compatible with Kubernetes version "+kubernetesTarget[1:]),
		ContainSubstring("unchanged DaemonSet/kube-system/kube-proxy"),
	))
	g.Expect(f.skew().Changes(f.sim.Journal())).To(BeEmpty(), "a dry run changes nothing")

	out := f.run(f.on("cp-1"), "upgrade-k8s", "--to", kubernetesTarget)
	g.Expect(out).To(And(
		ContainSubstring("kube-apiserver: pod is not ready, waiting"), ContainSubstring("configured DaemonSet/kube-system/kube-proxy"),
		ContainSubstring("+        image: registry.k8s.io/kube-proxy:"+kubernetesTarget), ContainSubstring("done"),
	))
	g.Expect(f.skew().Violations(f.sim.Journal())).To(BeEmpty())
	g.Expect(f.skew().Versions(f.sim.Journal())).To(And(HaveLen(19), HaveEach(kubernetesTarget)))
	f.expectNothingLeft()
}

// TestNothingIsLeftToDo after somebody else has done what an upgrade does: one component after the other by patches of the machine
// configs, and the manifests last.
func TestNothingIsLeftToDo(t *testing.T) {
	g := NewWithT(t)
	f := start(t, "v1.13.6")
	images := []struct{ path, image string }{
		{`{"cluster":{"apiServer":{"image":%q}}}`, "registry.k8s.io/kube-apiserver"},
		{`{"cluster":{"controllerManager":{"image":%q}}}`, "registry.k8s.io/kube-controller-manager"},
		{`{"cluster":{"scheduler":{"image":%q}}}`, "registry.k8s.io/kube-scheduler"},
		{`{"cluster":{"proxy":{"image":%q}}}`, "registry.k8s.io/kube-proxy"},
	}
	for _, one := range images {
		f.run(f.on("cp-1", "cp-2", "cp-3"), "patch", "mc", "--mode", "no-reboot", "--patch", fmt.Sprintf(one.path, one.image+":"+kubernetesTarget))
	}
	f.run(f.on("cp-1", "cp-2", "cp-3", "worker-1", "worker-2"), "patch", "mc", "--mode", "no-reboot", "--patch",
		fmt.Sprintf(`{"machine":{"kubelet":{"image":%q}}}`, "ghcr.io/siderolabs/kubelet:"+kubernetesTarget))
	const onNodes = 3*3 + 5 // Static pods of three control planes, and all kubelets.
	g.Eventually(func() []invariant.Change { return f.skew().Changes(f.sim.Journal()) }).WithTimeout(commandTimeout).Should(HaveLen(onNodes))
	g.Expect(f.planned()).To(And(Not(ContainSubstring("> update ")), ContainSubstring("configured DaemonSet/kube-system/kube-proxy")), "only the manifests are left")

	f.run(f.on("cp-1"), "upgrade-k8s", "--to", kubernetesTarget)
	f.expectNothingLeft()
}

// TestUpgradeKubernetesIsRefused before anything has changed.
func TestUpgradeKubernetesIsRefused(t *testing.T) {
	f := start(t, "v1.13.6")
	t.Run("skipping a minor", func(t *testing.T) {
		NewWithT(t).Expect(f.in(t).fail(f.on("cp-1"), "upgrade-k8s", "--to", "v1.37.0")).To(ContainSubstring("unsupported upgrade path 1.35->1.37"))
	})
	t.Run("an image that is missing (F9)", func(t *testing.T) {
		g := NewWithT(t)
		f := f.in(t)
		id, err := f.sim.Inject(fault.Fault{Name: fault.ImageMissing, Params: map[string]string{fault.ParamImage: "*/kubelet:" + kubernetesTarget}})
		g.Expect(err).NotTo(HaveOccurred())
		defer f.sim.Clear(id)
		g.Expect(f.fail(f.on("cp-1"), "upgrade-k8s", "--to", kubernetesTarget)).To(And(
			ContainSubstring("failed pre-pulling images"), ContainSubstring("ghcr.io/siderolabs/kubelet:"+kubernetesTarget+": not found"),
		))
	})
	t.Run("a feature gate that is gone", func(t *testing.T) {
		g := NewWithT(t)
		f := f.in(t)
		f.run(f.on("cp-2"), "patch", "mc", "--mode", "no-reboot", "--patch", `{"cluster":{"scheduler":{"extraArgs":{"feature-gates":"HonorPVReclaimPolicy=true"}}}}`)
		g.Expect(f.fail(f.on("cp-1"), "upgrade-k8s", "--to", kubernetesTarget)).To(MatchRegexp(`%s +kube-scheduler +HonorPVReclaimPolicy`, f.Node("cp-2").Address()))
	})
	NewWithT(t).Expect(f.skew().Changes(f.sim.Journal())).To(BeEmpty())
}
