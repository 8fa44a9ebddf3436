// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
)

// twoControlPlanes is what two control planes are told where one of them would go away.
const twoControlPlanes refusal = "Quorum"

// disruptive says that a shape cannot lose a control plane.
func disruptive(shape sim.ClusterSpec) refusal {
	if shape.ControlPlanes == 2 {
		return twoControlPlanes
	}
	return ""
}

var _ = Describe("On every shape of cluster", Ordered, func() {
	var w *world
	var leaders map[string]string
	var before uint64

	BeforeAll(func(ctx SpecContext) { w = install(ctx) }, NodeTimeout(3*time.Minute))

	BeforeEach(func() {
		leaders = map[string]string{}
		for _, cluster := range w.Fleet.Clusters() {
			leaders[cluster.Name()] = cluster.Leader().Name()
		}
		before = w.Fleet.Journal().Last()
	})

	AfterEach(func() {
		each(func(_ int, shape sim.ClusterSpec) {
			Expect(w.rules(shape, before).Violations(w.Fleet.Journal())).To(BeEmpty(), shape.Name)
		})
	})

	It("reboots a control plane", func(ctx SpecContext) {
		w.run(ctx, func(shape sim.ClusterSpec) ([]string, refusal) {
			return []string{"node", "reboot", "cp-1"}, disruptive(shape)
		})
		each(func(_ int, shape sim.ClusterSpec) {
			rolling := invariant.ReadRollingSince(w.Fleet.Journal(), shape.Name, before)
			if shape.ControlPlanes == 2 {
				Expect(rolling.Order).To(BeEmpty(), shape.Name)
				return
			}
			Expect(rolling.Order).To(Equal([]string{"cp-1"}), shape.Name)
		})
	}, SpecTimeout(3*time.Minute))

	// Nothing of it takes a member of etcd away, so two control planes are no reason to refuse. Talos 1.12 knows no Kubernetes 1.36.
	It("upgrades Kubernetes", func(ctx SpecContext) {
		wanted := func(shape sim.ClusterSpec) string {
			if shape.Mixed != nil {
				return "v1.35.4"
			}
			return "v1.36.2"
		}
		w.run(ctx, func(shape sim.ClusterSpec) ([]string, refusal) {
			return []string{"upgrade", "kubernetes", wanted(shape), "--max-unavailable", "2"}, ""
		})
		each(func(_ int, shape sim.ClusterSpec) {
			skew := invariant.Skew{Cluster: shape.Name, From: sim.DefaultKubernetesVersion, After: before}
			for _, node := range w.Fleet.Cluster(shape.Name).Nodes() {
				if node.ControlPlane() {
					skew.ControlPlanes = append(skew.ControlPlanes, node.Name())
				} else {
					skew.Workers = append(skew.Workers, node.Name())
				}
			}
			Expect(skew.Violations(w.Fleet.Journal())).To(BeEmpty(), shape.Name)
			Expect(skew.Versions(w.Fleet.Journal())).To(HaveEach(wanted(shape)), shape.Name)
			Expect(invariant.ReadRollingSince(w.Fleet.Journal(), shape.Name, before).Order).To(BeEmpty(), "no machine of %s reboots", shape.Name)
		})
	}, SpecTimeout(8*time.Minute))

	It("upgrades Talos", func(ctx SpecContext) {
		w.run(ctx, func(shape sim.ClusterSpec) ([]string, refusal) {
			args := []string{"upgrade", "talos", "v1.14.1"}
			if shape.Mixed != nil { // Two minors at once are nobody's tested way.
				args = append(args, "--override", "TalosVersionPath=tested before")
			}
			return args, disruptive(shape)
		})
		each(func(_ int, shape sim.ClusterSpec) {
			problems := invariant.ReadRollingSince(w.Fleet.Journal(), shape.Name, before).Problems(leaders[shape.Name], 1)
			if shape.ControlPlanes != 2 && shape.Mixed == nil { // Old machines reboot by another call.
				Expect(problems).To(BeEmpty(), shape.Name)
			}
			for _, node := range w.Fleet.Cluster(shape.Name).Nodes() {
				if shape.ControlPlanes != 2 {
					Expect(node.State().Running.Version).To(Equal("v1.14.1"), "%s %s", shape.Name, node.Name())
				}
			}
		})
	}, SpecTimeout(5*time.Minute))
})

// rules are what must hold on a cluster from a moment of the journal on.
func (w *world) rules(shape sim.ClusterSpec, after uint64) invariant.Rules {
	rules := invariant.Rules{Cluster: shape.Name, After: after, Grace: time.Second}
	for _, node := range w.Fleet.Cluster(shape.Name).Nodes() {
		if node.ControlPlane() {
			rules.ControlPlanes = append(rules.ControlPlanes, node.Name())
		}
	}
	return rules
}
