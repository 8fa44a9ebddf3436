// SPDX-License-Identifier: Apache-2.0

// Package plan plans roll-outs of machine configs. It is a leaf: it links no client of a target, and what it knows of configs a controller
// has written into the status of the machines.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// Stages of a roll-out.
const (
	// CheckStage has every machine check its config before the first one is changed.
	CheckStage = "Check"

	// CanaryStage changes one machine, and goes on only when that one has proved itself.
	CanaryStage = "Canary"

	// RolloutStage changes the others.
	RolloutStage = "Rollout"
)

// checksAtOnce bounds how many machines check their config at the same time.
const checksAtOnce = 10

// Planner plans roll-outs of machine configs.
type Planner struct{}

// Traits implements plan.Planner. A machine that has the config already is done, so a roll-out may be run again.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	return plan.Traits{Repeatable: true, StartVerb: spec.StartSubresource()}
}

// Narrow implements plan.Planner: versions are none of its business.
func (Planner) Narrow(t v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{MachineConfigHash: t.MachineConfigHash}
}

// AtTarget implements plan.Planner.
func (Planner) AtTarget(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) bool {
	config := machine.Status.Config
	return known(machine, target) && config.Trouble == "" && config.Pending == "" && config.Effect == v1alpha1.ConfigEffectNone
}

// known says whether the config of a machine has been compared with what the target asks for.
func known(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) bool {
	return machine.Status.Config != nil && machine.Status.Config.SpecHash == target.MachineConfigHash
}

// Plan implements plan.Planner: every machine checks its config, one goes first, then the others. Where nothing differs, looking is all.
func (p Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	selected, unknownNames := selected(facts)
	taken, held := plan.SplitHeld(selected)
	taken = withBegun(facts, taken)
	differ := slices.DeleteFunc(slices.Clone(taken), func(m *v1alpha1.TalosMachine) bool {
		return p.AtTarget(m, facts.Target) && begun(facts, m.Name) == nil
	})
	made := plan.Plan{Target: facts.Target, Effect: effectOf(differ, facts.Target), Held: held, Changes: changesOf(taken, facts.Target)}
	made.Stages = stages(facts, differ)
	if len(differ) == 0 && len(taken) > 0 {
		made.Stages = []plan.Stage{{Name: CheckStage, Machines: order(facts, taken), Batch: plan.Batch{Parallel: checksAtOnce}}}
	}
	made.Warnings = warnings(facts, differ)
	return made, refusals(facts, unknownNames, differ)
}

// selected are the machines that the operation is about, and the names that are nobody's.
func selected(facts plan.Facts) (machines []*v1alpha1.TalosMachine, unknown []string) {
	approved := facts.Approved()
	if facts.Spec.Config == nil || len(facts.Spec.Config.Machines) == 0 {
		return approved, nil
	}
	for _, name := range facts.Spec.Config.Machines {
		i := slices.IndexFunc(approved, func(m *v1alpha1.TalosMachine) bool { return m.Name == name })
		if i < 0 {
			unknown = append(unknown, name)
			continue
		}
		machines = append(machines, approved[i])
	}
	return machines, unknown
}

// withBegun adds the machines that were begun with, whatever became of them since: they are seen through.
func withBegun(facts plan.Facts, taken []*v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	for i := range facts.Machines {
		machine := &facts.Machines[i]
		if begun(facts, machine.Name) != nil && !slices.ContainsFunc(taken, func(m *v1alpha1.TalosMachine) bool { return m.Name == machine.Name }) {
			taken = append(taken, machine)
		}
	}
	return taken
}

// begun is a machine in the status of the operation; nil if it has not been begun with.
func begun(facts plan.Facts, name string) *v1alpha1.UnitStatus {
	for i := range facts.Units {
		if facts.Units[i].Name == name {
			return &facts.Units[i]
		}
	}
	return nil
}

func stages(facts plan.Facts, differ []*v1alpha1.TalosMachine) []plan.Stage {
	if len(differ) == 0 {
		return nil
	}
	first := canary(facts, differ)
	others := slices.DeleteFunc(slices.Clone(differ), func(m *v1alpha1.TalosMachine) bool { return m.Name == first.Name })
	list := []plan.Stage{
		{Name: CheckStage, Machines: order(facts, differ), Batch: plan.Batch{Parallel: checksAtOnce}},
		stage(facts, CanaryStage, []*v1alpha1.TalosMachine{first}),
	}
	if len(others) > 0 {
		list = append(list, stage(facts, RolloutStage, others))
	}
	return list
}

// stage is a stage that changes machines. It takes them away if one of them reboots; what is not known may be a reboot.
func stage(facts plan.Facts, name string, machines []*v1alpha1.TalosMachine) plan.Stage {
	return plan.Stage{
		Name: name, Machines: order(facts, machines), Batch: plan.Batch{Tiered: true},
		Disruptive: slices.ContainsFunc(machines, func(m *v1alpha1.TalosMachine) bool { return Reboots(m, facts.Target) }),
	}
}

// Reboots says whether a machine has to reboot for what it is asked to have, or may have to.
func Reboots(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) bool {
	if !known(machine, target) {
		return true
	}
	effect := machine.Status.Config.Effect
	return effect == v1alpha1.ConfigEffectReboot || effect == ""
}

func order(facts plan.Facts, machines []*v1alpha1.TalosMachine) []string {
	return plan.Order(machines, facts.Cluster.Status.EtcdLeader)
}

// canary is the machine that goes first: the one that did, else a worker, and a control plane only where no worker differs. Of several, it is
// one that goes through the worst, so that the others are in for nothing else.
func canary(facts plan.Facts, differ []*v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
	named := map[string]*v1alpha1.TalosMachine{}
	for _, machine := range differ {
		named[machine.Name] = machine
		if unit := begun(facts, machine.Name); unit != nil && wasCanary(unit) {
			return machine
		}
	}
	var first *v1alpha1.TalosMachine
	for _, name := range order(facts, differ) {
		if machine := named[name]; first == nil || before(machine, first, facts.Target) {
			first = machine
		}
	}
	return first
}

// wasCanary says whether a machine has gone first.
func wasCanary(unit *v1alpha1.UnitStatus) bool {
	return unit.Stage == CanaryStage || unit.CompletedStage == CanaryStage ||
		slices.ContainsFunc(unit.Steps, func(step v1alpha1.StepRecord) bool { return step.Stage == CanaryStage })
}

func before(a, b *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) bool {
	if worker := a.Spec.Role == v1alpha1.WorkerRole; worker != (b.Spec.Role == v1alpha1.WorkerRole) {
		return worker
	}
	return weight(a, target) > weight(b, target)
}

func weight(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) int {
	if Reboots(machine, target) {
		return 3
	}
	return map[v1alpha1.ConfigEffect]int{v1alpha1.ConfigEffectLive: 2, v1alpha1.ConfigEffectUpgrade: 1}[machine.Status.Config.Effect]
}

// effects are the effects of configs in the words of plans.
var effects = map[v1alpha1.ConfigEffect]plan.Effect{
	v1alpha1.ConfigEffectNone: plan.EffectNone, v1alpha1.ConfigEffectUpgrade: plan.EffectNone, v1alpha1.ConfigEffectLive: plan.EffectRestartComponents,
}

func effect(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) plan.Effect {
	if Reboots(machine, target) {
		return plan.EffectReboot
	}
	return effects[machine.Status.Config.Effect]
}

func effectOf(machines []*v1alpha1.TalosMachine, target v1alpha1.OperationTarget) plan.Effect {
	worst := plan.EffectNone
	for _, machine := range machines {
		if e := effect(machine, target); worst == plan.EffectNone || e == plan.EffectReboot {
			worst = e
		}
	}
	return worst
}

func changesOf(machines []*v1alpha1.TalosMachine, target v1alpha1.OperationTarget) map[string]plan.Change {
	changes := map[string]plan.Change{}
	for _, machine := range machines {
		if known(machine, target) {
			changes[machine.Name] = plan.Change{Effect: effect(machine, target), Diff: machine.Status.Config.Diff}
		}
	}
	return changes
}

// warnings are what does not keep a roll-out from starting.
func warnings(facts plan.Facts, differ []*v1alpha1.TalosMachine) []plan.Warning {
	var list []plan.Warning
	reboots := func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.Role == v1alpha1.ControlPlaneRole && Reboots(m, facts.Target)
	}
	if plan.ControlPlanes(facts.Approved()) == 1 && slices.ContainsFunc(differ, reboots) {
		list = append(list, plan.Outage)
	}
	if later := those(differ, func(m *v1alpha1.TalosMachine) bool {
		return known(m, facts.Target) && m.Status.Config.Effect == v1alpha1.ConfigEffectUpgrade
	}); later != "" {
		list = append(list, plan.Warning{Code: plan.TakesEffectLaterWarning, Message: fmt.Sprintf(
			"what changes on %s is read when Talos is next installed or upgraded: it is brought to the machines, and takes effect then", later)})
	}
	return append(list, plan.OverrideWarnings(facts.Spec.Overrides, Planner{}.Traits(facts.Spec))...)
}

// those names the first of the machines that something is true of, and counts the others.
func those(machines []*v1alpha1.TalosMachine, is func(*v1alpha1.TalosMachine) bool) string {
	var names []string
	for _, machine := range machines {
		if is(machine) {
			names = append(names, machine.Name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// refusals are what speaks against a roll-out.
func refusals(facts plan.Facts, unknown []string, differ []*v1alpha1.TalosMachine) []plan.Refusal {
	cluster := facts.Cluster.Name
	var list []plan.Refusal
	if len(unknown) > 0 {
		list = append(list, plan.Refusal{
			Gate:    v1alpha1.MachineKnownGate,
			Message: fmt.Sprintf("TalosMachine %q is not an approved machine of cluster %s", unknown[0], cluster),
			Help:    "ichor machine list --cluster " + cluster,
		})
	}
	if len(facts.Approved()) == 0 {
		list = append(list, plan.Refusal{
			Gate:    v1alpha1.MachineKnownGate,
			Message: fmt.Sprintf("cluster %s has no approved machine", cluster),
			Help:    "see what keeps them from being found: ichor cluster get " + cluster,
		})
	}
	for _, machine := range differ {
		if r := objection(facts, machine); r != nil && begun(facts, machine.Name) == nil && !repeated(list, r) {
			list = append(list, *r)
		}
	}
	return append(list, quorum(facts, differ)...)
}

// repeated says whether the same was said of another machine.
func repeated(list []plan.Refusal, r *plan.Refusal) bool {
	return slices.ContainsFunc(list, func(other plan.Refusal) bool { return other.Gate == r.Gate && other.Passing == r.Passing })
}

// objection is what speaks against a change of one machine.
func objection(facts plan.Facts, machine *v1alpha1.TalosMachine) *plan.Refusal {
	see := fmt.Sprintf("see: ichor config diff %s --cluster %s", cmp.Or(machine.Status.NodeName, machine.Name), facts.Cluster.Name)
	switch config := machine.Status.Config; {
	case !known(machine, facts.Target):
		return &plan.Refusal{
			Gate: v1alpha1.MachineConfigKnownGate, Passing: true,
			Message: fmt.Sprintf("the machine config of %s has not been compared with what is asked for yet", machine.Name), Help: "wait some seconds; " + see,
		}
	case config.Trouble != "":
		return &plan.Refusal{
			Gate: v1alpha1.MachineConfigKnownGate, Message: shorten(fmt.Sprintf("the machine config of %s: %s", machine.Name, config.Trouble)), Help: see,
		}
	case config.Pending != "":
		return &plan.Refusal{
			Gate: v1alpha1.MachineConfigPendingGate, Passing: true, Message: fmt.Sprintf("%s: %s", machine.Name, config.Pending),
			Help: "wait until a trial is over; what is staged comes in force by a reboot, or goes with: talosctl apply-config --mode=staged",
		}
	}
	return nil
}

// mostWords is how long a message may be.
const mostWords = 256

func shorten(text string) string {
	if runes := []rune(text); len(runes) > mostWords {
		return string(runes[:mostWords-1]) + "…"
	}
	return text
}

// quorum refuses to reboot either of two control planes.
func quorum(facts plan.Facts, differ []*v1alpha1.TalosMachine) []plan.Refusal {
	reboots := func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.Role == v1alpha1.ControlPlaneRole && known(m, facts.Target) && Reboots(m, facts.Target)
	}
	if plan.ControlPlanes(facts.Approved()) != 2 || !slices.ContainsFunc(differ, reboots) {
		return nil
	}
	return []plan.Refusal{{
		Gate:    v1alpha1.QuorumGate,
		Message: "two control planes: etcd loses its quorum while either of them reboots",
		Help:    "add a third control plane, or remove one",
	}}
}
