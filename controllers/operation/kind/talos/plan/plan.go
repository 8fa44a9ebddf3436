// SPDX-License-Identifier: Apache-2.0

// Package plan plans upgrades of Talos. It is a leaf: it links no client of a target.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/blang/semver/v4"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/versions"
)

// Stages of a Talos upgrade.
const (
	PullStage     = "Pull"
	SnapshotStage = "Snapshot"
	UpgradeStage  = "Upgrade"
)

// pullsAtOnce bounds how many machines pull the image at the same time: they share a registry and an uplink.
const pullsAtOnce = 10

// Planner plans upgrades of Talos.
type Planner struct{}

// Traits implements plan.Planner. A machine that runs the target already is done, so an upgrade may be run again.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	return plan.Traits{Repeatable: true, StartVerb: spec.StartSubresource()}
}

// Plan implements plan.Planner: every machine pulls the image before the first one is disturbed.
func (Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	taken, held := plan.SplitHeld(facts.Approved())
	order := plan.Order(taken, facts.Cluster.Status.EtcdLeader)
	refused, overridden := refusals(facts, taken)
	p := plan.Plan{
		Target: facts.Target,
		Effect: plan.EffectReboot,
		Held:   held,
		Stages: []plan.Stage{
			{Name: PullStage, Machines: order, Batch: plan.Batch{Parallel: pullsAtOnce}},
			{Name: UpgradeStage, Machines: order, Batch: plan.Batch{Tiered: true}, Disruptive: true},
		},
		Warnings:   warnings(facts, taken),
		Overridden: overridden,
	}
	if facts.Cluster.Spec.EtcdBackup != nil && changesControlPlanes(facts, taken) {
		p.Stages = slices.Insert(p.Stages, 1, plan.Stage{Name: SnapshotStage, Whole: true})
	}
	return p, refused
}

// changesControlPlanes says whether a control plane is to be upgraded.
func changesControlPlanes(facts plan.Facts, taken []*v1alpha1.TalosMachine) bool {
	return slices.ContainsFunc(taken, func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.Role == v1alpha1.ControlPlaneRole && !(Planner{}).AtTarget(m, facts.Target)
	})
}

// Narrow implements plan.Planner.
func (Planner) Narrow(t v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{TalosVersion: t.TalosVersion, SchematicID: t.SchematicID}
}

// warnings are what does not keep an upgrade from starting, and what somebody may want to know before.
func warnings(facts plan.Facts, taken []*v1alpha1.TalosMachine) []plan.Warning {
	var list []plan.Warning
	for _, check := range []struct {
		code string
		ask  func(plan.Facts, []*v1alpha1.TalosMachine) string
	}{
		{plan.SingleControlPlaneWarning, outage},   // There is no other control plane.
		{plan.PullsLateWarning, noPull},            // Old machines pull late, and cannot be stopped then.
		{plan.HostnameMayChangeWarning, hostnames}, // Talos 1.13 names machines anew whose name nobody has written down.
		{plan.EtcdOneWayWarning, oneWay},           // A new minor of etcd is hard to go back from.
		{plan.NoSnapshotWarning, noSnapshot},       // Where etcd is lost, a snapshot is all that is left.
		{plan.SchematicChangesWarning, otherParts}, // What the running system has and the new one has not is gone.
	} {
		if message := check.ask(facts, taken); message != "" {
			list = append(list, plan.Warning{Code: check.code, Message: message})
		}
	}
	return append(list, plan.OverrideWarnings(facts.Spec.Overrides, Planner{}.Traits(facts.Spec))...)
}

func outage(facts plan.Facts, taken []*v1alpha1.TalosMachine) string {
	if plan.ControlPlanes(facts.Approved()) == 1 && plan.ControlPlanes(taken) == 1 {
		return plan.Outage.Message
	}
	return ""
}

func noPull(_ plan.Facts, taken []*v1alpha1.TalosMachine) string {
	old := those(taken, isOld)
	if old == "" {
		return ""
	}
	return fmt.Sprintf("Talos before v1.13 (%s) pulls nothing beforehand: such a machine pulls when it is drained, by the one call that also reboots it", old)
}

func hostnames(facts plan.Facts, taken []*v1alpha1.TalosMachine) string {
	old, target := those(taken, isOld), parsed(facts.Target.TalosVersion)
	if old == "" || !versions.HasLifecycleAPI(target) {
		return ""
	}
	return fmt.Sprintf("from v1.13 on Talos may give another name to machines (%s) whose config pins no hostname; the first that comes back renamed stops the operation", old)
}

func oneWay(facts plan.Facts, taken []*v1alpha1.TalosMachine) string {
	target := versions.Etcd(parsed(facts.Target.TalosVersion))
	older := those(taken, func(m *v1alpha1.TalosMachine) bool {
		running := versions.Etcd(parsed(m.Status.TalosVersion))
		return m.Spec.Role == v1alpha1.ControlPlaneRole && running != "" && running != target
	})
	if older == "" || target == "" {
		return ""
	}
	return fmt.Sprintf("control planes get etcd %s: once all of them run it, Talos goes back only after a downgrade of etcd", target)
}

// noSnapshot warns where the hub knows no place to store a snapshot. Where it does, it takes one before the first control plane.
func noSnapshot(facts plan.Facts, taken []*v1alpha1.TalosMachine) string {
	if facts.Cluster.Spec.EtcdBackup != nil || !changesControlPlanes(facts, taken) {
		return ""
	}
	return "no snapshot of etcd is taken before: spec.etcdBackup of the TalosCluster does not say where to store it"
}

func otherParts(facts plan.Facts, taken []*v1alpha1.TalosMachine) string {
	others := those(taken, func(m *v1alpha1.TalosMachine) bool {
		return facts.Target.SchematicID != "" && m.Status.SchematicID != "" && m.Status.SchematicID != facts.Target.SchematicID
	})
	if others == "" {
		return ""
	}
	return fmt.Sprintf("the schematic changes (%s): extensions and kernel arguments that the new one lacks are gone", others)
}

// isOld says whether a machine is upgraded by one call. What it runs may not be known yet.
func isOld(m *v1alpha1.TalosMachine) bool {
	running, err := versions.Parse(m.Status.TalosVersion)
	return err == nil && !versions.HasLifecycleAPI(running)
}

// parsed is a version, or 0.0.0 where it is none; refusals say so.
func parsed(version string) semver.Version {
	v, _ := versions.Parse(version)
	return v
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

func refusals(facts plan.Facts, taken []*v1alpha1.TalosMachine) (refused, overridden []plan.Refusal) {
	if facts.Target.TalosVersion == "" {
		return []plan.Refusal{{
			Gate:    v1alpha1.TargetDeclaredGate,
			Message: fmt.Sprintf("TalosCluster %s declares no talosVersion", facts.Cluster.Name),
			Help:    fmt.Sprintf("ichor upgrade talos VERSION --cluster %s", facts.Cluster.Name),
		}}, nil
	}
	if len(facts.Approved()) == 0 {
		return []plan.Refusal{{
			Gate:    v1alpha1.MachineKnownGate,
			Message: fmt.Sprintf("cluster %s has no approved machine", facts.Cluster.Name),
			Help:    fmt.Sprintf("see what keeps them from being found: ichor cluster get %s", facts.Cluster.Name),
		}}, nil
	}
	for _, check := range []func(plan.Facts, []*v1alpha1.TalosMachine) []plan.Refusal{
		quorum,        // Two members lose their quorum with either of them.
		machineByOne,  // Each machine must be able to go where the target is.
		unknown,       // What nobody knows is not taken for old.
		kubernetesFit, // What runs there must run on the new Talos.
	} {
		for _, r := range check(facts, taken) {
			if r.Overridable && facts.Overridden(r.Gate) {
				overridden = append(overridden, r)
			} else {
				refused = append(refused, r)
			}
		}
	}
	return refused, overridden
}

func quorum(facts plan.Facts, taken []*v1alpha1.TalosMachine) []plan.Refusal {
	if plan.ControlPlanes(facts.Approved()) != 2 || plan.ControlPlanes(taken) == 0 {
		return nil
	}
	return []plan.Refusal{{
		Gate:    v1alpha1.QuorumGate,
		Message: "two control planes: etcd loses its quorum while either of them reboots",
		Help:    "add a third control plane, or remove one",
	}}
}

// machineByOne reports each distinct objection once, with the first machine that has it.
func machineByOne(facts plan.Facts, taken []*v1alpha1.TalosMachine) []plan.Refusal {
	var list []plan.Refusal
	seen := map[string]bool{}
	for _, machine := range taken {
		for _, r := range objections(machine, facts.Target) {
			if key := r.Gate + machine.Status.TalosVersion; !seen[key] {
				seen[key] = true
				list = append(list, r)
			}
		}
	}
	return list
}

// unknown refuses to go below what is declared while no machine tells what it runs: the declaration would be lowered before a look at the
// machines could tell that this is a downgrade.
func unknown(facts plan.Facts, taken []*v1alpha1.TalosMachine) []plan.Refusal {
	declared, known := facts.Cluster.Spec.TalosVersion, func(m *v1alpha1.TalosMachine) bool { return m.Status.TalosVersion != "" }
	if slices.ContainsFunc(taken, known) || !parsed(declared).GT(parsed(facts.Target.TalosVersion)) {
		return nil
	}
	return []plan.Refusal{{
		Gate:    v1alpha1.TalosVersionPathGate,
		Message: fmt.Sprintf("TalosCluster %s declares %s, and no machine tells what it runs: %s may be a downgrade", facts.Cluster.Name, declared, facts.Target.TalosVersion),
		Help:    fmt.Sprintf("see why they are not known: ichor cluster get %s", facts.Cluster.Name),
	}}
}

func objections(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) []plan.Refusal {
	running := machine.Status.TalosVersion
	if running == "" || AtTarget(running, machine.Status.SchematicID, target) {
		return nil // What is not known yet is judged again when the machine is looked at.
	}
	if r := HostObjection(machine.Name, running); r != nil {
		return []plan.Refusal{*r}
	}
	var list []plan.Refusal
	if machine.Status.SchematicID == "" && target.SchematicID == "" {
		list = append(list, plan.Refusal{
			Gate:    v1alpha1.SchematicGate,
			Message: fmt.Sprintf("%s does not tell its schematic: a generic image could drop its extensions", machine.Name),
			Help:    "set spec.schematicID of the TalosCluster",
		})
	}
	if r := PathObjection(machine.Name, running, target); r != nil {
		list = append(list, *r)
	}
	return list
}

// AtTarget implements plan.Planner.
func (Planner) AtTarget(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) bool {
	return AtTarget(machine.Status.TalosVersion, machine.Status.SchematicID, target)
}

// AtTarget says whether a machine runs what the target asks for; a target without schematic keeps any.
func AtTarget(version, schematic string, target v1alpha1.OperationTarget) bool {
	return version == target.TalosVersion && (target.SchematicID == "" || schematic == target.SchematicID)
}

// HostObjection says whether a machine runs a Talos that this hub cannot upgrade.
func HostObjection(machine, running string) *plan.Refusal {
	version, err := versions.Parse(running)
	if err == nil && versions.Upgradeable(version) {
		return nil
	}
	return &plan.Refusal{
		Gate:    v1alpha1.TalosHostVersionGate,
		Message: fmt.Sprintf("%s runs Talos %s; this hub upgrades machines from v%s on", machine, running, versions.MinimumTalos),
		Help:    fmt.Sprintf("bring it to v%s with talosctl upgrade", versions.MinimumTalos),
	}
}

// PathObjection says what speaks against the way from what a machine runs to the target.
func PathObjection(machine, running string, target v1alpha1.OperationTarget) *plan.Refusal {
	objection, err := versions.TalosUpgrade(running, target.TalosVersion)
	if err != nil {
		objection = &versions.Objection{Message: err.Error()}
	}
	if objection == nil {
		return nil
	}
	return &plan.Refusal{
		Gate: v1alpha1.TalosVersionPathGate, Message: machine + ": " + objection.Message, Overridable: objection.Overridable,
		Help: cmp.Or(objection.Help, "choose a version that follows the running one"),
	}
}

func kubernetesFit(facts plan.Facts, _ []*v1alpha1.TalosMachine) []plan.Refusal {
	running := facts.Cluster.Status.KubernetesVersion
	if running == "" {
		return nil
	}
	objection, err := versions.TalosUnder(facts.Target.TalosVersion, running)
	if err != nil {
		objection = &versions.Objection{Message: err.Error()}
	}
	if objection == nil {
		return nil
	}
	return []plan.Refusal{{
		Gate: v1alpha1.KubernetesPairingGate, Message: objection.Message, Overridable: objection.Overridable,
		Help: cmp.Or(objection.Help, "upgrade Kubernetes first, or choose another version of Talos"),
	}}
}
