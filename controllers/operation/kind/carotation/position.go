// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"fmt"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
)

// position is where the config of a machine is on the way from one authority to the other. It is told by which certificates the config has,
// and by nothing that the hub remembers: so a pass that somebody began is gone on with, whoever did.
type position int

const (
	// foreign configs have an authority that the rotation knows nothing of.
	foreign position = iota

	// untouched configs know the old authority alone.
	untouched

	// accepted configs sign by the old one, and accept both.
	accepted

	// swapped configs sign by the new one, and accept both.
	swapped

	// dropped configs know the new one alone.
	dropped
)

// positionWords are positions for people, as what a machine lacks.
var positionWords = map[position]string{
	foreign: "has another authority than the old and the new one", untouched: "knows the old authority alone", accepted: "does not sign by the new authority",
	swapped: "accepts the old authority still", dropped: "knows the new authority alone",
}

// positionOf is where authorities are. Those of a worker that names no issuing one are where they may be: with both accepted it is at either
// of the two positions in the middle, and takes whichever is asked for.
func positionOf(a machineconfig.Authorities, m Material, wanted position) position {
	knowsOld, knowsNew := a.Accepts(m.Old.Certificate), a.Accepts(m.New.Certificate)
	switch {
	case knowsOld && !knowsNew:
		return untouched
	case knowsNew && !knowsOld:
		return dropped
	case !knowsNew:
		return foreign
	case len(a.Issuing) == 0 && wanted <= accepted:
		return accepted
	case len(a.Issuing) == 0:
		return swapped
	case a.Issues(m.New.Certificate):
		return swapped
	case a.Issues(m.Old.Certificate):
		return accepted
	}
	return foreign
}

// goals are where the passes bring machines.
var goals = map[rotationplan.Pass]position{
	rotationplan.Accept: accepted, rotationplan.Swap: swapped, rotationplan.DropWorkers: dropped, rotationplan.Drop: dropped,
	rotationplan.BackSwap: accepted, rotationplan.BackAcceptWorkers: untouched, rotationplan.BackAccept: untouched,
}

// reached says whether a machine at a position is through with a pass. On the way there a machine that is further is, too: it was rendered so.
func reached(pass rotationplan.Pass, at position) bool {
	switch pass {
	case rotationplan.BackSwap, rotationplan.BackAcceptWorkers, rotationplan.BackAccept:
		return at != foreign && at <= goals[pass]
	case rotationplan.Accept, rotationplan.Swap, rotationplan.DropWorkers, rotationplan.Drop,
		rotationplan.Trust, rotationplan.AwaitCredentials, rotationplan.BackTrust, rotationplan.BackCredentials:
	}
	return at >= goals[pass]
}

// nextPosition is the next position of a machine on the way to where a pass brings it: never two at once beyond what others have done. A machine that
// joined late goes from the beginning to where all are at once, since all accept both.
func nextPosition(pass rotationplan.Pass, at position) position {
	switch {
	case goals[pass] == dropped && at < swapped:
		return swapped
	case goals[pass] == untouched && at > accepted:
		return accepted
	}
	return goals[pass]
}

// brought are authorities at another position.
func brought(a machineconfig.Authorities, m Material, to position) machineconfig.Authorities {
	switch to {
	case accepted:
		return a.IssuingBy(m.Old.Certificate, m.Old.Key).Accepting(m.Old.Certificate).Accepting(m.New.Certificate)
	case swapped:
		return a.IssuingBy(m.New.Certificate, m.New.Key).Accepting(m.Old.Certificate).Accepting(m.New.Certificate)
	case dropped:
		return a.Dropping(m.Old.Certificate)
	case untouched:
		return a.Dropping(m.New.Certificate)
	case foreign:
	}
	return a
}

// rendered is a machine config at another position.
func rendered(config []byte, of v1alpha1.CAAuthority, m Material, to position) ([]byte, error) {
	have, err := machineconfig.ReadAuthorities(config, of)
	if err != nil {
		return nil, err
	}
	if positionOf(have, m, to) == foreign {
		return nil, fmt.Errorf("its machine config %s: somebody else rotates authority %s", positionWords[foreign], of)
	}
	return machineconfig.WithAuthorities(config, of, brought(have, m, to))
}
