// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/chaos"
)

// What the environment may say.
const (
	seedVariable     = "CHAOS_SEED"
	durationVariable = "CHAOS_DURATION"
	clustersVariable = "CHAOS_CLUSTERS"
	patienceVariable = "CHAOS_PATIENCE"
	traceVariable    = "CHAOS_TRACE"
)

// usualPatience bounds each of the two ways to rest. Two busy processors may be slow, and nothing that is proved here depends on being
// fast.
const usualPatience = "5m"

func TestChaos(t *testing.T) {
	g := NewWithT(t)
	seed, err := strconv.ParseUint(or(seedVariable, strconv.FormatUint(rand.Uint64N(1e9), 10)), 10, 64)
	g.Expect(err).NotTo(HaveOccurred(), seedVariable)
	duration, err := time.ParseDuration(or(durationVariable, "2m"))
	g.Expect(err).NotTo(HaveOccurred(), durationVariable)
	patience, err := time.ParseDuration(or(patienceVariable, usualPatience))
	g.Expect(err).NotTo(HaveOccurred(), patienceVariable)
	clusters, err := strconv.Atoi(or(clustersVariable, "5"))
	g.Expect(err).NotTo(HaveOccurred(), clustersVariable)
	path := or(traceVariable, filepath.Join(os.TempDir(), fmt.Sprintf("ichor-chaos-%d.log", seed)))
	trace, err := os.Create(path)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = trace.Close() })

	log, err := os.Create(path + ".hub")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = log.Close() })

	again := fmt.Sprintf("make test-chaos %s=%d %s=%s %s=%d", seedVariable, seed, durationVariable, duration, clustersVariable, clusters)
	t.Logf("seed %d; again: %s", seed, again)
	ctx, cancel := context.WithTimeout(t.Context(), duration+3*patience)
	defer cancel()
	report, err := chaos.Run(ctx, chaos.Options{Seed: seed, Clusters: clusters, Duration: duration, Patience: patience, Trace: trace, Log: logr.FromSlogHandler(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	g.Expect(err).NotTo(HaveOccurred(), "seed %d; again: %s; what was done: %s", seed, again, path)
	t.Logf("seed %d\n%s", seed, report)
	g.Expect(report.Problems).To(BeEmpty(), "seed %d; again: %s; what was done: %s", seed, again, path)
	g.Expect(os.Remove(path)).To(Succeed())
	g.Expect(os.Remove(path + ".hub")).To(Succeed())
}

func or(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}
