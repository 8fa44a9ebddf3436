// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// It has clusters of its own: what the others must never do to a cluster, a stop does to all of them.
var _ = Describe("A planned shutdown, on every shape of cluster", Ordered, func() {
	It("takes workers first and the leader of etcd last, and gives everything back (D16)", func(ctx SpecContext) {
		w := install(ctx)
		each(func(place int, shape sim.ClusterSpec) {
			speak := w.CLI
			if place%2 == 1 {
				speak = w.HubCLI
			}
			cluster := w.Fleet.Cluster(shape.Name)
			leader := cluster.Leader().Name()
			result, err := speak(ctx, "cluster", "shutdown", shape.Name, "--no-snapshot", "--confirm", shape.Name, "--follow")
			Expect(err).NotTo(HaveOccurred())
			Expect(result.Code).To(Equal(0), "%s: %s", shape.Name, result)
			var down []string
			for _, entry := range w.Fleet.Journal().Entries(journal.Filter{Cluster: shape.Name, Method: invariant.DownEvent}) {
				down = append(down, entry.Node)
			}
			Expect(down).To(HaveLen(shape.ControlPlanes+shape.Workers), shape.Name)
			for i, name := range down {
				Expect(strings.HasPrefix(name, "worker-")).To(Equal(i < shape.Workers), "%s: %v", shape.Name, down)
			}
			Expect(down[len(down)-1]).To(Equal(leader), shape.Name)
			for _, node := range cluster.Nodes() {
				node.PowerOn()
			}
			result, err = speak(ctx, "cluster", "start", shape.Name, "--yes", "--follow")
			Expect(err).NotTo(HaveOccurred())
			Expect(result.Code).To(Equal(0), "%s: %s", shape.Name, result)
		})
		Eventually(w.Unavailable).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(8*time.Minute))
})
