// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// Pass is what a stage of a rotation does about its authority.
type Pass string

// The passes, in order. A stage is named by its authority and its pass, such as TalosSwap.
const (
	// Accept has every machine accept the new authority beside the old one.
	Accept Pass = "Accept"

	// Trust has the cluster's credentials trust both: from the next pass on machines have their certificates from either.
	Trust Pass = "Trust"

	// Swap has every machine sign by the new authority and accept the old one.
	Swap Pass = "Swap"

	// AwaitCredentials hands the new credentials over, and waits until people have confirmed that they have them.
	AwaitCredentials Pass = "AwaitingCredentials"

	// DropWorkers has the workers drop the old authority. It is a pass of the Kubernetes authority alone: a kubelet asks for another client
	// certificate when it drops the authority of its old one, and has to get it before the first API server refuses that.
	DropWorkers Pass = "DropWorkers"

	// Drop has every machine, or every control plane, drop the old authority.
	Drop Pass = "Drop"
)

// The passes of a way back, in order.
const (
	// BackTrust has the cluster's credentials trust both authorities, and be signed by the old one.
	BackTrust Pass = "BackTrust"

	// BackSwap has every machine sign by the old authority, and accept the new one.
	BackSwap Pass = "BackSwap"

	// BackCredentials has the cluster's credentials be what they were.
	BackCredentials Pass = "BackCredentials"

	// BackAccept has every machine drop the new authority.
	BackAccept Pass = "BackAccept"
)

// Stages that are about no single authority.
const (
	// PrepareStage looks at every machine, makes the new authorities and stores them, before any machine hears of them.
	PrepareStage = "Prepare"

	// FinishStage proves every machine once more, and deletes what the operation kept for itself.
	FinishStage = "Finish"
)

// passes are those of an authority, in order.
func passes(of v1alpha1.CAAuthority) []Pass {
	if of == v1alpha1.KubernetesCA {
		return []Pass{Accept, Trust, Swap, AwaitCredentials, DropWorkers, Drop}
	}
	return []Pass{Accept, Trust, Swap, AwaitCredentials, Drop}
}

// waysBack are the passes that take back a pass and those before it.
var waysBack = map[Pass][]Pass{
	Accept:           {BackAccept},
	Trust:            {BackCredentials, BackAccept},
	Swap:             {BackTrust, BackSwap, BackCredentials, BackAccept},
	AwaitCredentials: {BackTrust, BackSwap, BackCredentials, BackAccept},
}

// StageName is the name of the stage of a pass.
func StageName(of v1alpha1.CAAuthority, pass Pass) string { return string(of) + string(pass) }

// authorities are all that there are.
var authorities = []v1alpha1.CAAuthority{v1alpha1.TalosCA, v1alpha1.KubernetesCA}

// Parse says which authority and which pass a stage is about; nothing of a stage that is about no single one.
func Parse(stage string) (of v1alpha1.CAAuthority, pass Pass) {
	for _, authority := range authorities {
		if rest, ok := strings.CutPrefix(stage, string(authority)); ok {
			return authority, Pass(rest)
		}
	}
	return "", ""
}

// OnMachines says whether a pass goes machine by machine.
func (p Pass) OnMachines() bool {
	switch p {
	case Accept, Swap, DropWorkers, Drop, BackSwap, BackAccept:
		return true
	case Trust, AwaitCredentials, BackTrust, BackCredentials:
	}
	return false
}

// Forward says whether a pass is one on the way to the new authority.
func (p Pass) Forward() bool {
	switch p {
	case Accept, Trust, Swap, AwaitCredentials, DropWorkers, Drop:
		return true
	case BackTrust, BackSwap, BackCredentials, BackAccept:
	}
	return false
}

// Drops says whether a pass is one after whose beginning there is no way back.
func (p Pass) Drops() bool { return p == DropWorkers || p == Drop }

// Between says whether the cluster is between two authorities in a pass: nobody else may take its lock then.
func Between(p Pass) bool {
	switch p {
	case Swap, AwaitCredentials, DropWorkers, Drop, BackTrust, BackSwap:
		return true
	case Accept, Trust, BackCredentials, BackAccept:
	}
	return false
}

// stage is the stage of a pass. Passes leave etcd alone; those of the Kubernetes authority restart API servers and kubelets, and no pass goes on
// while something is not well.
func stage(facts plan.Facts, of v1alpha1.CAAuthority, pass Pass) plan.Stage {
	made := plan.Stage{Name: StageName(of, pass), Kept: true, Unsafe: Between(pass)}
	if !pass.OnMachines() {
		made.Whole = true
		return made
	}
	made.Machines = plan.Order(machinesOf(facts, of, pass), facts.Cluster.Status.EtcdLeader)
	made.Batch, made.Disruptive, made.KeepsEtcd = plan.Batch{Tiered: true}, true, true
	return made
}

// machinesOf are the machines of a pass: all that are approved, held ones as well. Who is left out is locked out.
func machinesOf(facts plan.Facts, of v1alpha1.CAAuthority, pass Pass) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(facts.Approved(), func(m *v1alpha1.TalosMachine) bool {
		worker := m.Spec.Role == v1alpha1.WorkerRole
		return (pass == DropWorkers && !worker) || (pass == Drop && of == v1alpha1.KubernetesCA && worker)
	})
}

// stagesOf are the stages of a rotation that nobody has asked to turn back.
func stagesOf(facts plan.Facts) []plan.Stage {
	list := []plan.Stage{{Name: PrepareStage, Whole: true}}
	for _, of := range facts.Spec.CARotation.Authorities {
		for _, pass := range passes(of) {
			if made := stage(facts, of, pass); made.Whole || len(made.Machines) > 0 {
				list = append(list, made)
			}
		}
	}
	return append(list, plan.Stage{Name: FinishStage, Whole: true})
}

// backwards are the stages of a rotation that is turned back: what is over stays so, who is in hand comes to the end of the pass, and what was
// brought about is taken back. An authority that a machine has dropped already is rotated to the end; those that come later are left alone.
func backwards(facts plan.Facts) []plan.Stage {
	var list []plan.Stage
	for _, ahead := range stagesOf(facts) {
		of, pass := Parse(ahead.Name)
		switch {
		case of == "" && ahead.Name == FinishStage, of != "" && !begunWith(facts, of):
			continue
		case of == "" || past(facts, of) || isOver(facts, ahead.Name):
			list = append(list, ahead)
		case isBegun(facts, ahead.Name):
			list = append(list, onlyInHand(facts, ahead, pass))
		}
	}
	for _, of := range facts.Spec.CARotation.Authorities {
		if begunWith(facts, of) && !past(facts, of) {
			for _, pass := range waysBack[furthest(facts, of)] {
				list = append(list, stage(facts, of, pass))
			}
		}
	}
	return append(list, plan.Stage{Name: FinishStage, Whole: true})
}

// onlyInHand leaves of a stage what somebody works on.
func onlyInHand(facts plan.Facts, of plan.Stage, pass Pass) plan.Stage {
	if pass.OnMachines() {
		of.Machines = slices.DeleteFunc(slices.Clone(of.Machines), func(name string) bool { return !inHand(facts.Units, name, of.Name) })
	}
	return of
}

func inHand(units []v1alpha1.UnitStatus, name, stage string) bool {
	return slices.ContainsFunc(units, func(u v1alpha1.UnitStatus) bool {
		return u.Name == name && u.Stage == stage && u.CompletedStage != stage
	})
}

// isOver says whether a stage is over on all its units.
func isOver(facts plan.Facts, stage string) bool {
	return slices.Contains(facts.CompletedStages, stage)
}

// isBegun says whether a unit was begun with in a stage, whatever became of it.
func isBegun(facts plan.Facts, stage string) bool {
	return isOver(facts, stage) || slices.ContainsFunc(slices.Concat(facts.Units, facts.Whole), func(u v1alpha1.UnitStatus) bool {
		return u.Stage == stage || u.CompletedStage == stage ||
			slices.ContainsFunc(u.Steps, func(step v1alpha1.StepRecord) bool { return step.Stage == stage })
	})
}

// begunWith says whether any machine may have heard of the new authority.
func begunWith(facts plan.Facts, of v1alpha1.CAAuthority) bool { return furthest(facts, of) != "" }

// furthest is the last pass of an authority that was begun with.
func furthest(facts plan.Facts, of v1alpha1.CAAuthority) Pass {
	var last Pass
	for _, pass := range passes(of) {
		if isBegun(facts, StageName(of, pass)) {
			last = pass
		}
	}
	return last
}

// past says whether there is no way back for an authority: a machine may have dropped the old one.
func past(facts plan.Facts, of v1alpha1.CAAuthority) bool { return furthest(facts, of).Drops() }
