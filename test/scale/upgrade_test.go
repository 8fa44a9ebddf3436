// SPDX-License-Identifier: Apache-2.0

// Package scale measures speed and size; docs/benchmarks.md holds the figures.
package scale_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/hub/scheme"
	"ichor.maesh.dev/hub/test/e2e"
	"ichor.maesh.dev/hub/test/framework"
	"ichor.maesh.dev/hub/test/sim"
)

// BenchmarkRollingUpgrade compares upgrades with what the machines themselves need, at the pace of the demo.
func BenchmarkRollingUpgrade(b *testing.B) {
	for _, fleet := range []sim.ClusterSpec{
		{Name: "three", ControlPlanes: 3, Workers: 2},
		{Name: "one", ControlPlanes: 1, Workers: 2},
		{Name: "bare", ControlPlanes: 3},
	} {
		b.Run(fmt.Sprintf("%d+%d", fleet.ControlPlanes, fleet.Workers), func(b *testing.B) {
			for range b.N {
				measureUpgrade(b, fleet)
			}
		})
	}
}

func measureUpgrade(b *testing.B, fleet sim.ClusterSpec) {
	b.StopTimer()
	g := NewWithT(b)
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	i, c := install(ctx, b, fleet)
	writes := countStatusWrites(ctx, b, c)
	begun := time.Now()
	b.StartTimer()
	result, err := i.CLI(ctx, "upgrade", "talos", "v1.14.1", "--cluster", fleet.Name, "--follow", "--yes")
	b.StopTimer()
	took := time.Since(begun)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Code).To(BeZero(), result.String())
	minimum := i.Fleet.Cluster(fleet.Name).MinimumUpgrade(1)
	machines := float64(fleet.ControlPlanes + fleet.Workers)
	b.ReportMetric(took.Seconds(), "s/upgrade")
	b.ReportMetric(minimum.Seconds(), "s/minimum")
	b.ReportMetric(took.Seconds()/minimum.Seconds(), "ratio")
	b.ReportMetric(float64(writes())/machines, "statuswrites/machine")
}

// BenchmarkIdleMemory reports the resident memory of the hub and of its API server, a while after the last import.
func BenchmarkIdleMemory(b *testing.B) {
	for _, clusters := range []int{1, 20} {
		b.Run(fmt.Sprintf("%dclusters", clusters), func(b *testing.B) {
			for range b.N {
				ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
				i, _ := install(ctx, b, sim.Demo(clusters)...)
				settle := time.NewTimer(30 * time.Second) // Two garbage collections and three probes.
				<-settle.C
				reportMemory(b, i.HubPID(), "MB/hub")
				plane, err := framework.Child(i.HubPID())
				NewWithT(b).Expect(err).NotTo(HaveOccurred())
				reportMemory(b, plane, "MB/apiserver")
				cancel()
			}
		})
	}
}

// install starts a hub and a fleet, and returns when every cluster is available.
func install(ctx context.Context, b *testing.B, clusters ...sim.ClusterSpec) (*e2e.Installation, client.WithWatch) {
	b.Helper()
	g := NewWithT(b)
	i, err := e2e.Install(ctx, b.TempDir(), 1, clusters...)
	g.Expect(err).NotTo(HaveOccurred())
	b.Cleanup(func() { g.Expect(i.Stop()).To(Succeed()) })
	config, err := i.RESTConfig()
	g.Expect(err).NotTo(HaveOccurred())
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	g.Expect(err).NotTo(HaveOccurred())
	for _, cluster := range clusters {
		g.Expect(i.Import(ctx, cluster.Name)).To(Succeed())
	}
	g.Eventually(func() (int, error) { return available(ctx, c) }, time.Minute, 50*time.Millisecond).Should(Equal(len(clusters)))
	return i, c
}

func available(ctx context.Context, c client.Client) (count int, err error) {
	var list v1alpha1.TalosClusterList
	if err := c.List(ctx, &list); err != nil {
		return 0, err
	}
	for _, cluster := range list.Items {
		for _, condition := range cluster.Status.Conditions {
			if condition.Type == v1alpha1.AvailableCondition && condition.Status == "True" {
				count++
			}
		}
	}
	return count, nil
}

// countStatusWrites watches operations and counts how often a status differs from the one before.
func countStatusWrites(ctx context.Context, b *testing.B, c client.WithWatch) func() int {
	b.Helper()
	watcher, err := c.Watch(ctx, &v1alpha1.TalosOperationList{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(watcher.Stop)
	done := make(chan int, 1)
	go func() {
		count, last := 0, v1alpha1.TalosOperationStatus{}
		for event := range watcher.ResultChan() {
			op, ok := event.Object.(*v1alpha1.TalosOperation)
			if !ok {
				continue
			}
			if !apiequality.Semantic.DeepEqual(op.Status, last) {
				count++
				last = op.Status
			}
			if op.Annotations[v1alpha1.CompletedAtAnnotation] != "" {
				break
			}
		}
		done <- count
	}()
	return func() int { return <-done }
}

func reportMemory(b *testing.B, pid int, unit string) {
	b.Helper()
	megabytes, err := framework.ResidentMemory(pid)
	NewWithT(b).Expect(err).NotTo(HaveOccurred())
	b.ReportMetric(megabytes, unit)
}
