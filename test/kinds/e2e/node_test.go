// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

var _ = Describe("Single actions on every shape of cluster", Ordered, func() {
	var w *world
	var before uint64

	BeforeAll(func(ctx SpecContext) { w = install(ctx) }, NodeTimeout(3*time.Minute))
	BeforeEach(func() { before = w.Fleet.Journal().Last() })

	// called are the nodes of a cluster that got a call, in order.
	called := func(shape sim.ClusterSpec, method string) []string {
		var nodes []string
		for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: shape.Name, Method: method, After: before}) {
			nodes = append(nodes, entry.Node)
		}
		return nodes
	}

	It("defragments every etcd member, the leader last", func(ctx SpecContext) {
		leaders := map[string]string{}
		for _, cluster := range w.Fleet.Clusters() {
			leaders[cluster.Name()] = cluster.Leader().Name()
		}
		w.run(ctx, func(shape sim.ClusterSpec) ([]string, refusal) {
			return []string{"node", "etcd-defrag", "--alarms", "disarm"}, disruptive(shape)
		})
		each(func(_ int, shape sim.ClusterSpec) {
			nodes := called(shape, "MachineService/EtcdDefragment")
			if shape.ControlPlanes == 2 {
				Expect(nodes).To(BeEmpty())
				return
			}
			Expect(nodes).To(HaveLen(shape.ControlPlanes), shape.Name)
			Expect(nodes[len(nodes)-1]).To(Equal(leaders[shape.Name]), shape.Name)
		})
	}, SpecTimeout(3*time.Minute))

	It("restarts a kubelet, whatever the shape", func(ctx SpecContext) {
		w.run(ctx, func(sim.ClusterSpec) ([]string, refusal) {
			return []string{"node", "restart-service", "cp-1", "--service", "kubelet"}, ""
		})
		each(func(_ int, shape sim.ClusterSpec) {
			Expect(called(shape, "MachineService/ServiceRestart")).To(Equal([]string{"cp-1"}), shape.Name)
		})
	}, SpecTimeout(3*time.Minute))

	It("resets a control plane where two are left, and refuses it elsewhere", func(ctx SpecContext) {
		w.run(ctx, func(shape sim.ClusterSpec) ([]string, refusal) {
			args := []string{"node", "reset", "cp-1", "--confirm", shape.Name + "-cp-1"}
			if shape.ControlPlanes < 3 {
				return args, "Quorum"
			}
			return args, ""
		})
		each(func(_ int, shape sim.ClusterSpec) {
			maintenance := w.Fleet.Cluster(shape.Name).Node("cp-1").State().Maintenance
			Expect(maintenance).To(Equal(shape.ControlPlanes > 2), shape.Name)
			if maintenance {
				Expect(called(shape, "MachineService/EtcdLeaveCluster")).To(Equal([]string{"cp-1"}), shape.Name)
				Expect(called(shape, "MachineService/Reset")).To(Equal([]string{"cp-1"}), shape.Name)
			}
		})
	}, SpecTimeout(3*time.Minute))
})
