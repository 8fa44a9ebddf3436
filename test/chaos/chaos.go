// SPDX-License-Identifier: Apache-2.0

// Package chaos lets many clusters, many operations, faults and ends of the hub meet at random, and then asks whether anything happened
// that must never happen. Whatever is decided at random is decided by the seed alone, so that a run can be had again.
package chaos

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"ichor.maesh.dev/hub/test/sim"
)

// stream is a source of random numbers for one purpose. What is drawn for one cluster changes nothing for another.
func stream(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64())) //nolint:gosec // It has to be the same again.
}

// between is a random time of at least from and less than to.
func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}

// shapes are control planes and workers of the clusters, in turn.
var shapes = [][2]int{{1, 2}, {3, 0}, {3, 2}, {5, 1}, {1, 0}, {3, 1}, {1, 3}, {3, 3}}

const (
	// legacyVersion is what clusters run that have only the older upgrade API.
	legacyVersion = "v1.12.4"

	// startVersion is what the others run at first.
	startVersion = "v1.13.4"
)

// Fleet describes the clusters of a run.
func Fleet(seed uint64, clusters int) []sim.ClusterSpec {
	random := stream(seed, "fleet")
	first := random.IntN(len(shapes))
	specs := make([]sim.ClusterSpec, 0, clusters)
	for i := range clusters {
		shape := shapes[(first+i)%len(shapes)]
		spec := sim.ClusterSpec{Name: "c" + strconv.Itoa(i+1), ControlPlanes: shape[0], Workers: shape[1], TalosVersion: startVersion}
		if random.IntN(3) == 0 {
			spec.TalosVersion = legacyVersion
		}
		specs = append(specs, spec)
	}
	return specs
}

// ladder are the versions that clusters are upgraded to, in order. Upgrades within a minor outnumber those to the next.
var ladder = func() []string {
	rungs := []string{legacyVersion, "v1.12.6"}
	for patch := range 8 {
		rungs = append(rungs, "v1.13."+strconv.Itoa(4+2*patch))
	}
	for patch := range 200 {
		rungs = append(rungs, "v1.14."+strconv.Itoa(patch))
	}
	return rungs
}()
