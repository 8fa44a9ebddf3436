// SPDX-License-Identifier: Apache-2.0

package carotation

import (
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	rotationplan "ichor.maesh.dev/hub/controllers/operation/kind/carotation/plan"
	"ichor.maesh.dev/hub/providers/credentials"
)

// aRotation is one of a cluster whose credentials have a client certificate; another is an authority that it knows nothing of.
var aRotation, another = sync.OnceValue(func() Material {
	now := time.Now()
	old := must(credentials.NewAuthority(v1alpha1.TalosCA, now))
	subject := must(credentials.Subject(must(old.Client(admin, now)).Certificate))
	return must(makeMaterial(v1alpha1.TalosCA, old, must(old.Client(subject, now)), now))
}), sync.OnceValue(func() credentials.KeyPair { return must(credentials.NewAuthority(v1alpha1.TalosCA, time.Now())) })

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func TestPositionOf(t *testing.T) {
	m := aRotation()
	old, fresh, strange := m.Old.Certificate, m.New.Certificate, another().Certificate
	for name, row := range map[string]struct {
		have   machineconfig.Authorities
		wanted position
		want   position
	}{
		"the old one alone":                           {machineconfig.Authorities{Issuing: old, Key: m.Old.Key}, accepted, untouched},
		"the old one, and a third":                    {machineconfig.Authorities{Issuing: old, Accepted: [][]byte{strange}}, accepted, untouched},
		"both, the old one signs":                     {machineconfig.Authorities{Issuing: old, Accepted: [][]byte{fresh}}, swapped, accepted},
		"both, the new one signs":                     {machineconfig.Authorities{Issuing: fresh, Accepted: [][]byte{old}}, accepted, swapped},
		"the new one alone":                           {machineconfig.Authorities{Issuing: fresh}, dropped, dropped},
		"a third one signs, both known":               {machineconfig.Authorities{Issuing: strange, Accepted: [][]byte{old, fresh}}, swapped, foreign},
		"a third one alone":                           {machineconfig.Authorities{Issuing: strange}, accepted, foreign},
		"none at all":                                 {machineconfig.Authorities{}, accepted, foreign},
		"a worker that signs nothing, for accept":     {machineconfig.Authorities{Accepted: [][]byte{old, fresh}}, accepted, accepted},
		"a worker that signs nothing, for swap":       {machineconfig.Authorities{Accepted: [][]byte{old, fresh}}, swapped, swapped},
		"a worker that signs nothing, for drop":       {machineconfig.Authorities{Accepted: [][]byte{old, fresh}}, dropped, swapped},
		"a worker that signs nothing, for a way back": {machineconfig.Authorities{Accepted: [][]byte{old, fresh}}, untouched, accepted},
		"a worker that signs nothing, untouched":      {machineconfig.Authorities{Accepted: [][]byte{old}}, swapped, untouched},
		"a worker that signs nothing, dropped":        {machineconfig.Authorities{Accepted: [][]byte{fresh}}, dropped, dropped},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(positionOf(row.have, m, row.wanted)).To(Equal(row.want)) })
	}
}

// From wherever a machine is, each pass brings it to its goal, by steps of which none leaves it with an authority that another machine does not
// accept yet, or with no key where it signs.
func TestEveryPassReachesItsGoal(t *testing.T) {
	m := aRotation()
	old, fresh := m.Old.Certificate, m.New.Certificate
	starts := map[string]machineconfig.Authorities{
		"control plane, untouched": {Issuing: old, Key: m.Old.Key}, "control plane, accepted": {Issuing: old, Key: m.Old.Key, Accepted: [][]byte{fresh}},
		"control plane, swapped": {Issuing: fresh, Key: m.New.Key, Accepted: [][]byte{old}},
		"worker, untouched":      {Issuing: old}, "worker, swapped": {Issuing: fresh, Accepted: [][]byte{old}},
		"worker without an issuing one": {Accepted: [][]byte{old}},
	}
	for pass := range goals {
		for name, have := range starts {
			t.Run(string(pass)+" from "+name, func(t *testing.T) {
				g := NewWithT(t)
				at, steps := positionOf(have, m, goals[pass]), 0
				for ; !reached(pass, at) && steps < 4; steps++ {
					key := BeEmpty()
					if len(have.Key) > 0 {
						key = Not(key)
					}
					have = brought(have, m, nextPosition(pass, at))
					g.Expect(have.Key).To(key, "who signs goes on to do so, and nobody else begins")
					if next := positionOf(have, m, goals[pass]); next == dropped || next == untouched {
						g.Expect(at).To(Or(Equal(swapped), Equal(accepted)), "it accepts both before it drops one")
					}
					at = positionOf(have, m, goals[pass])
				}
				g.Expect(reached(pass, at)).To(BeTrue(), "at %d after %d steps", at, steps)
				if at == goals[pass] {
					g.Expect(brought(have, m, goals[pass])).To(Equal(have), "and stays there")
				}
			})
		}
	}
}

func TestReached(t *testing.T) {
	for pass, want := range map[rotationplan.Pass][]position{
		rotationplan.Accept: {accepted, swapped, dropped}, rotationplan.Swap: {swapped, dropped}, rotationplan.Drop: {dropped}, rotationplan.DropWorkers: {dropped},
		rotationplan.BackSwap: {untouched, accepted}, rotationplan.BackAcceptWorkers: {untouched}, rotationplan.BackAccept: {untouched},
	} {
		g := NewWithT(t)
		var through []position
		for _, at := range []position{foreign, untouched, accepted, swapped, dropped} {
			if reached(pass, at) {
				through = append(through, at)
			}
		}
		g.Expect(through).To(Equal(want), string(pass))
	}
}
