// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"time"

	"ichor.maesh.dev/hub/test/invariant"
)

// End is one end of the hub, and its next beginning.
type End struct {
	// At is when it comes, from the beginning of the run.
	At time.Duration
	// On makes it wait for the next entry of the journal with that method, for a while; empty waits for nothing.
	On string
	// Kill ends the hub as kill -9 would; otherwise it is stopped in good order.
	Kill bool
	// Down is the time without a hub.
	Down time.Duration
}

// String is the end in one line.
func (e End) String() string {
	how := "stop"
	if e.Kill {
		how = "kill"
	}
	return fmt.Sprintf("%7.3fs %s on=%q down=%s", e.At.Seconds(), how, e.On, e.Down.Round(time.Millisecond))
}

// moments are what a hub is ended at: calls that it makes, and what becomes of them.
var moments = []string{
	invariant.InstallMethod, invariant.RebootMethod, invariant.LegacyUpgradeMethod, invariant.DownEvent, invariant.RunningEvent,
	"ImageService/Pull", "MachineService/EtcdForfeitLeadership", "kube PATCH nodes/*", "kube POST pods/*", "kube PUT configmaps/*",
}

// Ends decides when the hub ends.
func Ends(seed uint64, length time.Duration) []End {
	random := stream(seed, "hub")
	var ends []End
	for at := between(random, time.Second, 6*time.Second); at < length; at += between(random, 2*time.Second, 8*time.Second) {
		e := End{At: at, Kill: random.IntN(4) > 0, Down: between(random, 0, 1500*time.Millisecond)}
		if random.IntN(3) > 0 {
			e.On = moments[random.IntN(len(moments))]
		}
		ends = append(ends, e)
	}
	return ends
}
