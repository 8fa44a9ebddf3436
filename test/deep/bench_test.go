// SPDX-License-Identifier: Apache-2.0

package deep_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim"
)

// What a deep cluster may need.
const (
	deepStart     = 90 * time.Second
	deepMegabytes = 3221 // 3 GiB.
)

// BenchmarkDeepStart starts a cluster of 3 control planes and 2 workers, and fails when that takes too long or too much memory: that of all
// processes, with the simulator's own, which is this one.
func BenchmarkDeepStart(b *testing.B) {
	g := NewWithT(b)
	path, err := framework.Binary(binary)
	if err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		before := time.Now()
		s, err := sim.Start(b.Context(), sim.Options{
			Dir: b.TempDir(), KubeAPIServer: path, Clusters: []sim.ClusterSpec{{Name: "c", ControlPlanes: 3, Workers: 2, Deep: true}},
		})
		if err != nil {
			b.Fatal(err)
		}
		took := time.Since(before)
		b.ReportMetric(took.Seconds(), "s/start")
		pids := []int{os.Getpid()}
		for _, n := range s.Cluster("c").Nodes() {
			for _, pid := range s.Cluster("c").Processes(n.Name()) {
				pids = append(pids, pid)
			}
		}
		memory := 0.0
		for _, pid := range pids {
			own, err := framework.ResidentMemory(pid)
			if err != nil {
				b.Fatal(err)
			}
			memory += own
		}
		b.ReportMetric(memory, "MB")
		b.ReportMetric(float64(len(pids)), "processes")
		s.Stop()
		g.Expect(took).To(BeNumerically("<", deepStart))
		g.Expect(memory).To(BeNumerically("<=", deepMegabytes))
	}
}
