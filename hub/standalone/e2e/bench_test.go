// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"testing"
	"time"

	"ichor.maesh.dev/hub/test/framework"
)

// settle is how long a hub is left alone before it counts as idle.
const settle = 30 * time.Second

// BenchmarkStart measures the time from the start of the process to the line that says "Ready".
func BenchmarkStart(b *testing.B) {
	b.Run("fresh", func(b *testing.B) {
		var total time.Duration
		for b.Loop() {
			h := startHub(b, b.TempDir())
			total += h.ready
			h.stop()
		}
		b.ReportMetric(total.Seconds()/float64(b.N), "s-to-ready")
	})
	b.Run("existing", func(b *testing.B) {
		h := startHub(b, b.TempDir())
		h.stop()
		var total time.Duration
		for b.Loop() {
			h = startHub(b, h.dir)
			total += h.ready
			h.stop()
		}
		b.ReportMetric(total.Seconds()/float64(b.N), "s-to-ready")
	})
}

// BenchmarkIdle measures what a hub without targets takes.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		h := startHub(b, b.TempDir())
		time.Sleep(settle) //nolint:forbidigo // Idle is what happens when nothing happens.
		child, parent := h.childPID(), h.cmd.Process.Pid
		before := cpuSeconds(b, child) + cpuSeconds(b, parent)
		time.Sleep(settle) //nolint:forbidigo // Likewise.
		cores := (cpuSeconds(b, child) + cpuSeconds(b, parent) - before) / settle.Seconds()
		b.ReportMetric(memory(b, child), "MB-api-server")
		b.ReportMetric(memory(b, parent), "MB-hub")
		b.ReportMetric(cores, "cores")
		h.stop()
	}
}

// memory is the resident memory of a process in megabytes.
func memory(tb testing.TB, pid int) float64 {
	tb.Helper()
	megabytes, err := framework.ResidentMemory(pid)
	if err != nil {
		tb.Fatal(err)
	}
	return megabytes
}

// cpuSeconds is the processor time that a process has used.
func cpuSeconds(tb testing.TB, pid int) float64 {
	tb.Helper()
	seconds, err := framework.CPUSeconds(pid)
	if err != nil {
		tb.Fatal(err)
	}
	return seconds
}
