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

	// BackAcceptWorkers has the workers drop the new authority, before the control planes do, and for the same reason as DropWorkers: the kubelet of
	// one that joined, or renewed its client certificate, since the swap has one of the new authority.
	BackAcceptWorkers Pass = "BackAcceptWorkers"

	// BackAccept has every machine, or every control plane, drop the new authority.
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

// wayBack are the passes that take back a pass of an authority and those before it.
func wayBack(of v1alpha1.CAAuthority, from Pass) []Pass {
	var list []Pass
	switch from {
	case Swap, AwaitCredentials:
		list = []Pass{BackTrust, BackSwap, BackCredentials}
	case Trust:
		list = []Pass{BackCredentials}
	case Accept, DropWorkers, Drop, BackTrust, BackSwap, BackCredentials, BackAcceptWorkers, BackAccept:
	}
	if of == v1alpha1.KubernetesCA {
		list = append(list, BackAcceptWorkers)
	}
	return append(list, BackAccept)
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
	case Accept, Swap, DropWorkers, Drop, BackSwap, BackAcceptWorkers, BackAccept:
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
	case BackTrust, BackSwap, BackCredentials, BackAcceptWorkers, BackAccept:
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
	case Accept, Trust, BackCredentials, BackAcceptWorkers, BackAccept:
	}
	return false
}

// stage is the stage of a pass. Passes leave etcd alone; those of the Kubernetes authority restart API servers and kubelets, and no pass goes on
// while something is not well. Nobody hands back a machine that is gone for good: who deletes its TalosMachine says so, and the pass goes on. One that
// is deleted by mistake is a stranger then, and keeps the others from dropping anything.
func stage(facts plan.Facts, of v1alpha1.CAAuthority, pass Pass) plan.Stage {
	made := plan.Stage{Name: StageName(of, pass), Kept: true, Unsafe: Between(pass)}
	if !pass.OnMachines() {
		made.Whole = true
		return made
	}
	made.Machines = plan.Order(machinesOf(facts, of, pass), facts.Cluster.Status.EtcdLeader)
	made.Batch, made.Disruptive, made.KeepsEtcd, made.MayLose = plan.Batch{Tiered: true}, true, true, true
	if of == v1alpha1.KubernetesCA && (pass == Drop || pass == BackAccept) {
		// The first API server that drops an authority refuses kubelets of the other control planes that reach it by a shared address, until their
		// machines have dropped it, too: to wait until they are ready would be to wait for ever.
		made.Gates = []string{v1alpha1.MachinesDiscoveredGate, v1alpha1.TargetReachableGate, v1alpha1.EtcdHealthyGate}
	}
	return made
}

// machinesOf are the machines of a pass: all that are approved, held ones as well. Who is left out is locked out.
func machinesOf(facts plan.Facts, of v1alpha1.CAAuthority, pass Pass) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(facts.Approved(), func(m *v1alpha1.TalosMachine) bool {
		worker := m.Spec.Role == v1alpha1.WorkerRole
		switch pass {
		case DropWorkers, BackAcceptWorkers:
			return !worker
		case Drop, BackAccept:
			return worker && of == v1alpha1.KubernetesCA
		case Accept, Trust, Swap, AwaitCredentials, BackTrust, BackSwap, BackCredentials:
		}
		return false
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
		case ahead.Name == FinishStage, ahead.Name == PrepareStage && !isBegun(facts, PrepareStage), of != "" && !begunWith(facts, of):
			continue // What nobody has begun with leaves nothing to take back.
		case of == "" || past(facts, of) || isOver(facts, ahead.Name):
			list = append(list, ahead)
		case isBegun(facts, ahead.Name):
			list = append(list, onlyInHand(facts, ahead, pass))
		}
	}
	for _, of := range facts.Spec.CARotation.Authorities {
		if begunWith(facts, of) && !past(facts, of) {
			for _, pass := range wayBack(of, furthest(facts, of)) {
				if made := stage(facts, of, pass); made.Whole || len(made.Machines) > 0 {
					list = append(list, made)
				}
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
