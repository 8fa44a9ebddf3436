// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim"
)

// What a fleet of 100 clusters with 5 machines each may take in one process.
const (
	fleetStart     = 30 * time.Second
	fleetMegabytes = 1074 // 1 GiB.
)

// BenchmarkSimulatedFleet starts 100 simulated clusters with 5 machines each, and fails when that takes too long or too much memory. Every node
// listens; no client talks to it yet.
func BenchmarkSimulatedFleet(b *testing.B) {
	g := NewWithT(b)
	clusters := make([]sim.ClusterSpec, 0, 100)
	for i := range cap(clusters) {
		clusters = append(clusters, sim.ClusterSpec{Name: fmt.Sprintf("fleet-%d", i+1), ControlPlanes: 3, Workers: 2})
	}
	for range b.N {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
		begun := time.Now()
		fleet, err := sim.Start(ctx, sim.Options{Dir: b.TempDir(), Clusters: clusters})
		took := time.Since(begun)
		g.Expect(err).NotTo(HaveOccurred())
		megabytes, err := framework.ResidentMemory(os.Getpid())
		g.Expect(err).NotTo(HaveOccurred())
		b.ReportMetric(took.Seconds(), "s/start")
		b.ReportMetric(megabytes, "MB/fleet")
		fleet.Stop()
		cancel()
		g.Expect(took).To(BeNumerically("<", fleetStart))
		g.Expect(megabytes).To(BeNumerically("<=", fleetMegabytes))
	}
}
