// SPDX-License-Identifier: Apache-2.0

package harness_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/harness"
	"ichor.maesh.dev/hub/test/invariant"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/journal"
)

// Upgrades a cluster while the hub is stopped once and killed once: the next hub goes on, and nothing happens twice.
func TestHubGoesOnWhereTheLastOneEnded(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := harness.Start(ctx, harness.Options{Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 3, Workers: 2}}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Stop()).To(Succeed()) })
	g.Expect(h.Import(ctx, "a")).To(Succeed())
	leader := h.Fleet.Cluster("a").Leader().Name()

	op, err := h.Upgrade(ctx, "a", "v1.14.1", 0)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = h.Journal().WaitN(ctx, journal.Filter{Cluster: "a", Method: invariant.DownEvent}, 1)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.StopHub()).To(Succeed())
	g.Expect(h.StopHub()).NotTo(Succeed(), "none runs")
	g.Expect(h.StartHub()).To(Succeed())

	_, err = h.Journal().WaitN(ctx, journal.Filter{Cluster: "a", Method: invariant.DownEvent}, 3)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.KillHub()).To(Succeed())
	killed := h.Journal().Last()
	g.Expect(h.StartHub()).To(Succeed())
	g.Expect(h.StartHub()).NotTo(Succeed(), "one runs already")

	_, err = h.WaitFor(ctx, op, harness.Completed())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.Journal().Last()).To(BeNumerically(">", killed))
	g.Expect(invariant.ReadRolling(h.Journal(), "a").Problems(leader, 1)).To(BeEmpty())
	g.Expect(h.Rules("a").Violations(h.Journal())).To(BeEmpty())
	for _, node := range h.Fleet.Cluster("a").Nodes() {
		g.Expect(node.State().Running.Version).To(Equal("v1.14.1"))
	}
}

func TestWaitingInVainShowsTheOperation(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := harness.Start(ctx, harness.Options{Clusters: []sim.ClusterSpec{{Name: "a", ControlPlanes: 1}}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Stop()).To(Succeed()) })
	g.Expect(h.Import(ctx, "a")).To(Succeed())
	op, err := h.Reboot(ctx, "a", "cp-1")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = h.WaitFor(ctx, op, harness.Completed())
	g.Expect(err).NotTo(HaveOccurred())
	short, end := context.WithTimeout(ctx, 100*time.Millisecond)
	defer end()
	_, err = h.WaitFor(short, op, harness.Paused("StepFailed"))
	g.Expect(err).To(MatchError(And(ContainSubstring("Paused=True StepFailed"), ContainSubstring("phase Completed"), ContainSubstring("a-cp-1: Completed, stage Reboot"))))
}
