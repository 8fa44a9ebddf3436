// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
)

var _ = Describe("Machine configs on every shape of cluster", Ordered, func() {
	var w *world

	BeforeAll(func(ctx SpecContext) { w = install(ctx) }, NodeTimeout(3*time.Minute))

	// leaders are taken before anything reboots.
	leaders := func() map[string]string {
		all := map[string]string{}
		for _, cluster := range w.Fleet.Clusters() {
			all[cluster.Name()] = cluster.Leader().Name()
		}
		return all
	}

	It("changes what needs no reboot, and takes no machine away", func(ctx SpecContext) {
		before := w.Fleet.Journal().Last()
		each(func(_ int, shape sim.ClusterSpec) {
			w.asksFor(ctx, shape.Name, "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n")
		})
		w.run(ctx, func(sim.ClusterSpec) ([]string, refusal) { return []string{"config", "rollout"}, "" })
		each(func(_ int, shape sim.ClusterSpec) {
			Expect(invariant.ReadRollingSince(w.Fleet.Journal(), shape.Name, before).Order).To(BeEmpty(), shape.Name)
			w.has(shape.Name, "vm.swappiness", true)
		})
	}, SpecTimeout(3*time.Minute))

	It("reboots one machine first, and control planes one at a time (B11)", func(ctx SpecContext) {
		before, leading := w.Fleet.Journal().Last(), leaders()
		each(func(_ int, shape sim.ClusterSpec) {
			w.asksFor(ctx, shape.Name, "machine:\n  env:\n    GRPC_GO_LOG_SEVERITY_LEVEL: info\n")
		})
		w.run(ctx, func(shape sim.ClusterSpec) ([]string, refusal) {
			return []string{"config", "rollout"}, disruptive(shape)
		})
		each(func(_ int, shape sim.ClusterSpec) {
			order := invariant.ReadRollingSince(w.Fleet.Journal(), shape.Name, before).Order
			Expect(w.rules(shape, before).Violations(w.Fleet.Journal())).To(BeEmpty(), shape.Name)
			if shape.ControlPlanes == 2 {
				Expect(order).To(BeEmpty(), shape.Name)
				w.has(shape.Name, "GRPC_GO_LOG", false)
				return
			}
			Expect(order).To(HaveLen(shape.ControlPlanes+shape.Workers), shape.Name)
			first := 0
			if shape.Workers > 0 {
				Expect(order[0]).To(Equal("worker-1"), "%s: the canary", shape.Name)
				first = 1
			}
			Expect(order[first+shape.ControlPlanes-1]).To(Equal(leading[shape.Name]), "%s: the leader of etcd goes last", shape.Name)
			w.has(shape.Name, "GRPC_GO_LOG", true)
			w.has(shape.Name, "vm.swappiness", false)
		})
	}, SpecTimeout(4*time.Minute))
})

// asksFor makes a cluster ask for a patch in place of all others, and waits until the hub has compared its machines with it.
func (w *world) asksFor(ctx context.Context, cluster, patch string) {
	GinkgoHelper()
	object := &v1alpha1.TalosCluster{}
	Eventually(func() error {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: cluster}, object); err != nil {
			return err
		}
		object.Spec.MachineConfig = &v1alpha1.MachineConfigSpec{Patches: []v1alpha1.MachineConfigPatch{{Name: "a", Patch: patch}}}
		return w.client.Update(ctx, object)
	}).WithContext(ctx).Should(Succeed())
	Eventually(func() []string {
		list := &v1alpha1.TalosMachineList{}
		Expect(w.client.List(ctx, list, client.InNamespace("default"))).To(Succeed())
		var open []string
		for _, machine := range list.Items {
			if config := machine.Status.Config; machine.Spec.ClusterName == cluster && (config == nil || config.SpecHash != object.MachineConfigHash()) {
				open = append(open, machine.Name)
			}
		}
		return open
	}).WithContext(ctx).Should(BeEmpty(), cluster)
}

// has expects every node of a cluster to have a text in the config in force and in the one on disk, or none of them to have it.
func (w *world) has(cluster, text string, there bool) {
	GinkgoHelper()
	for _, node := range w.Fleet.Cluster(cluster).Nodes() {
		active, persistent := node.Config()
		Expect(active).To(BeIdenticalTo(persistent), "%s %s", cluster, node.Name())
		data, err := active.Bytes()
		Expect(err).NotTo(HaveOccurred())
		if there {
			Expect(string(data)).To(ContainSubstring(text), "%s %s", cluster, node.Name())
		} else {
			Expect(string(data)).NotTo(ContainSubstring(text), "%s %s", cluster, node.Name())
		}
	}
}
