// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/test/chaos"
	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

const long = time.Hour

var spec = sim.ClusterSpec{Name: "c1", ControlPlanes: 3, Workers: 2, TalosVersion: "v1.13.4"}

// Whoever replays a seed gets the same decisions, whatever else there is.
func TestDecisionsDependOnTheSeedAlone(t *testing.T) {
	g := NewWithT(t)
	g.Expect(chaos.Script(7, spec, long)).To(Equal(chaos.Script(7, spec, long)))
	g.Expect(chaos.Script(7, spec, long)).NotTo(Equal(chaos.Script(8, spec, long)))
	g.Expect(chaos.Ends(7, long)).To(Equal(chaos.Ends(7, long)))
	g.Expect(chaos.Ends(7, long)).NotTo(Equal(chaos.Ends(8, long)))
	g.Expect(chaos.Fleet(7, 9)).To(Equal(chaos.Fleet(7, 9)))
	g.Expect(chaos.Fleet(7, 9)[:4]).To(Equal(chaos.Fleet(7, 4)), "more clusters leave the others as they are")

	short := chaos.Script(7, spec, time.Minute)
	g.Expect(chaos.Script(7, spec, long)[:len(short)]).To(Equal(short), "a shorter run is the beginning of a longer one")
}

// Everything that may go wrong does, sooner or later, and in time order.
func TestScriptsLeaveNothingOut(t *testing.T) {
	g := NewWithT(t)
	moves := chaos.Script(1, spec, 3*long)
	done, faults := map[chaos.Action]int{}, map[string]int{}
	for _, move := range moves {
		done[move.Do]++
		faults[move.Fault.Name]++
	}
	for _, action := range []chaos.Action{
		chaos.Upgrade, chaos.Kubernetes, chaos.RollOut, chaos.Reboot, chaos.RestartKubelet, chaos.Defragment, chaos.Retry, chaos.Delete,
		chaos.Limit, chaos.Pause, chaos.Resume, chaos.PauseCluster, chaos.UnpauseCluster, chaos.Hold, chaos.Unhold, chaos.Inject, chaos.Clear, chaos.PowerOff, chaos.PowerOn,
	} {
		g.Expect(done[action]).To(BeNumerically(">", 0), "%s", action)
	}
	for _, d := range fault.Definitions {
		if d.Name == fault.EtcdGivesUp { // It stands for control planes that were wiped, and no script wipes one.
			g.Expect(faults).NotTo(HaveKey(d.Name))
			continue
		}
		g.Expect(faults[d.Name]).To(BeNumerically(">", 0), d.Name)
	}
	g.Expect(slices.IsSortedFunc(moves, func(a, b chaos.Move) int { return int(a.At - b.At) })).To(BeTrue())
}

// Faults are accepted as the scripts order them.
func TestFaultsOfScriptsAreFaults(t *testing.T) {
	g := NewWithT(t)
	var registry fault.Registry
	for _, move := range chaos.Script(3, spec, 3*long) {
		if move.Do == chaos.Inject {
			_, err := registry.Add(move.Fault)
			g.Expect(err).NotTo(HaveOccurred(), "%s", move)
		}
	}
}

func TestEndsKillMostly(t *testing.T) {
	g := NewWithT(t)
	kills := 0
	ends := chaos.Ends(1, long)
	for _, end := range ends {
		if end.Kill {
			kills++
		}
	}
	g.Expect(kills).To(And(BeNumerically(">", len(ends)/2), BeNumerically("<", len(ends))))
}
