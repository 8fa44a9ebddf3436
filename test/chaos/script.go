// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/test/sim"
	"ichor.maesh.dev/hub/test/sim/fault"
)

// Action is what somebody, or fate, does to a cluster.
type Action string

// Actions. Those that are taken back later are followed by what takes them back.
const (
	Upgrade        Action = "upgrade"
	Reboot         Action = "reboot"
	Kubernetes     Action = "kubernetes"
	RollOut        Action = "roll-out"
	RestartKubelet Action = "restart-kubelet"
	Defragment     Action = "defragment"
	Retry          Action = "retry"
	Delete         Action = "delete"
	Limit          Action = "limit"
	Pause          Action = "pause"
	Resume         Action = "resume"
	PauseCluster   Action = "pause-cluster"
	UnpauseCluster Action = "unpause-cluster"
	Hold           Action = "hold"
	Unhold         Action = "unhold"
	Inject         Action = "inject"
	Clear          Action = "clear"
	PowerOff       Action = "power-off"
	PowerOn        Action = "power-on"
)

// Move is one line of a cluster's script.
type Move struct {
	// At is when it is done, from the beginning of the run.
	At time.Duration
	// Do is what is done.
	Do Action
	// Node is the machine that is concerned, for those that concern one.
	Node string
	// Version is where Upgrade and Kubernetes go, and what RollOut writes into the machine configs.
	Version string
	// Most is maxUnavailable of Upgrade and Limit; zero is none.
	Most int
	// Pick chooses one of the operations that are there: a script cannot know which that will be.
	Pick uint32
	// Fault is what Inject orders, and Number tells Clear which that was.
	Fault  fault.Fault
	Number int
}

// String is the move in one line.
func (m Move) String() string {
	parts := []string{fmt.Sprintf("%7.3fs %s", m.At.Seconds(), m.Do)}
	switch m.Do { //nolint:exhaustive // The others have no parameters.
	case Upgrade, Kubernetes, RollOut:
		parts = append(parts, m.Version, fmt.Sprintf("maxUnavailable=%d", m.Most))
	case Limit:
		parts = append(parts, fmt.Sprintf("pick=%d maxUnavailable=%d", m.Pick, m.Most))
	case Retry, Delete, Pause:
		parts = append(parts, fmt.Sprintf("pick=%d", m.Pick))
	case Reboot, RestartKubelet, Hold, Unhold, PowerOff, PowerOn:
		parts = append(parts, m.Node)
	case Inject:
		parts = append(parts, fmt.Sprintf("#%d %s node=%s times=%d %v", m.Number, m.Fault.Name, m.Fault.Node, m.Fault.Times, m.Fault.Params))
	case Clear:
		parts = append(parts, fmt.Sprintf("#%d", m.Number))
	}
	return strings.Join(parts, " ")
}

const (
	// pauseLeast and pauseMost bound the time between two decisions about one cluster.
	pauseLeast, pauseMost = 500 * time.Millisecond, 4 * time.Second

	// mostUnavailable is the greatest maxUnavailable that is ever ordered.
	mostUnavailable = 3
)

// entry is something that a script may decide on.
type entry struct {
	weight int
	write  func(*writer, time.Duration)
}

var entries = []entry{
	{24, (*writer).order},
	{16, (*writer).retry},
	{6, (*writer).remove},
	{5, (*writer).limit},
	{8, (*writer).pause},
	{4, (*writer).pauseCluster},
	{4, (*writer).hold},
	{20, (*writer).inject},
	{3, (*writer).powerOff},
}

// writer writes the script of a cluster.
type writer struct {
	random *rand.Rand
	spec   sim.ClusterSpec
	nodes  []string
	rung   int
	faults int
	moves  []Move

	rollOuts, patches int // How many were ordered, so that each differs from the one before.
}

// Script decides what happens to a cluster. It depends on nothing but its arguments; a shorter script is the beginning of a longer one.
func Script(seed uint64, spec sim.ClusterSpec, length time.Duration) []Move {
	w := &writer{
		random: stream(seed, "cluster "+spec.Name), spec: spec, nodes: nodesOf(spec), rung: slices.Index(ladder, spec.TalosVersion),
	}
	for at := w.gap(); at < length; at += w.gap() {
		w.write(at)
	}
	slices.SortStableFunc(w.moves, func(a, b Move) int { return int(a.At - b.At) })
	return slices.DeleteFunc(w.moves, func(m Move) bool { return m.At >= length }) // The end takes everything back.
}

func nodesOf(spec sim.ClusterSpec) []string {
	var nodes []string
	for i := range spec.ControlPlanes {
		nodes = append(nodes, fmt.Sprintf("cp-%d", i+1))
	}
	for i := range spec.Workers {
		nodes = append(nodes, fmt.Sprintf("worker-%d", i+1))
	}
	return nodes
}

func (w *writer) gap() time.Duration { return between(w.random, pauseLeast, pauseMost) }

func (w *writer) write(at time.Duration) {
	choose(w.random, entries, func(e entry) int { return e.weight }).write(w, at)
}

// choose takes one of many by their weights.
func choose[T any](random *rand.Rand, list []T, weight func(T) int) T {
	total := 0
	for _, one := range list {
		total += weight(one)
	}
	left := random.IntN(total)
	for _, one := range list {
		if left -= weight(one); left < 0 {
			return one
		}
	}
	return list[len(list)-1]
}

func (w *writer) add(m Move) { w.moves = append(w.moves, m) }

func (w *writer) node() string { return w.nodes[w.random.IntN(len(w.nodes))] }

// order starts an operation, or several of which all but one have to wait.
func (w *writer) order(at time.Duration) {
	count := 1
	if w.random.IntN(4) == 0 {
		count += 1 + w.random.IntN(2)
	}
	for range count {
		choose(w.random, orders, func(e entry) int { return e.weight }).write(w, at)
	}
}

// orders are the operations that are ordered. Those that somebody has to power machines on for, or that wipe them, are none of them.
var orders = []entry{
	{8, func(w *writer, at time.Duration) {
		w.add(Move{At: at, Do: Upgrade, Version: w.version(), Most: w.random.IntN(mostUnavailable + 1)})
	}},
	{5, func(w *writer, at time.Duration) { w.add(Move{At: at, Do: Reboot, Node: w.node()}) }},
	{3, (*writer).rollOut},
	{3, (*writer).kubernetes},
	{2, func(w *writer, at time.Duration) { w.add(Move{At: at, Do: RestartKubelet, Node: w.node()}) }},
	{1, func(w *writer, at time.Duration) { w.add(Move{At: at, Do: Defragment}) }},
}

// rollOut brings a change that needs a reboot, or one that does not.
func (w *writer) rollOut(at time.Duration) {
	w.rollOuts++
	patch := fmt.Sprintf("machine: {sysctls: {kernel.chaos: \"%d\"}}", w.rollOuts)
	if w.random.IntN(2) == 0 {
		patch = fmt.Sprintf("machine: {env: {CHAOS: \"%d\"}}", w.rollOuts)
	}
	w.add(Move{At: at, Do: RollOut, Version: patch, Most: w.random.IntN(mostUnavailable + 1)})
}

// kubernetes goes on by patch levels, as far as the oldest Talos of a cluster supports it.
func (w *writer) kubernetes(at time.Duration) {
	w.patches++
	w.add(Move{At: at, Do: Kubernetes, Version: fmt.Sprintf("v1.35.%d", 2+w.patches), Most: w.random.IntN(mostUnavailable + 1)})
}

// version is mostly the next one, sometimes the same or one further, and sometimes an older one, which is refused.
func (w *writer) version() string {
	step := choose(w.random, []int{1, 1, 1, 1, 1, 1, 1, 2, 0, -1}, func(int) int { return 1 })
	if step < 0 {
		return ladder[max(w.rung-1, 0)]
	}
	w.rung = min(w.rung+step, len(ladder)-1)
	return ladder[w.rung]
}

func (w *writer) retry(at time.Duration)  { w.add(Move{At: at, Do: Retry, Pick: w.random.Uint32()}) }
func (w *writer) remove(at time.Duration) { w.add(Move{At: at, Do: Delete, Pick: w.random.Uint32()}) }

func (w *writer) limit(at time.Duration) {
	w.add(Move{At: at, Do: Limit, Pick: w.random.Uint32(), Most: 1 + w.random.IntN(mostUnavailable)})
}

func (w *writer) pause(at time.Duration) {
	w.add(Move{At: at, Do: Pause, Pick: w.random.Uint32()})
	w.add(Move{At: at + between(w.random, 300*time.Millisecond, 5*time.Second), Do: Resume})
}

func (w *writer) pauseCluster(at time.Duration) {
	w.add(Move{At: at, Do: PauseCluster})
	w.add(Move{At: at + between(w.random, 300*time.Millisecond, 5*time.Second), Do: UnpauseCluster})
}

func (w *writer) hold(at time.Duration) {
	node := w.node()
	w.add(Move{At: at, Do: Hold, Node: node})
	w.add(Move{At: at + between(w.random, time.Second, 20*time.Second), Do: Unhold, Node: node})
}

func (w *writer) powerOff(at time.Duration) {
	node := w.node()
	w.add(Move{At: at, Do: PowerOff, Node: node})
	w.add(Move{At: at + between(w.random, 200*time.Millisecond, 6*time.Second), Do: PowerOn, Node: node})
}

// inject orders a fault. Whatever is left of it is cleared later, whether it has fired or not.
func (w *writer) inject(at time.Duration) {
	w.faults++
	f := w.fault()
	w.add(Move{At: at, Do: Inject, Fault: f, Number: w.faults})
	w.add(Move{At: at + between(w.random, 500*time.Millisecond, 15*time.Second), Do: Clear, Number: w.faults})
}
