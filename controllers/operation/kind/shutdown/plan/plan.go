// SPDX-License-Identifier: Apache-2.0

// Package plan plans the stop and the start of a whole cluster. It is a leaf: it links no client of a target.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
)

// Stages of a stop, in order.
const (
	// SnapshotStage stores a snapshot of etcd.
	SnapshotStage = "Snapshot"

	// CordonStage cordons every Node, so that nothing is scheduled to where everything stops.
	CordonStage = "Cordon"

	// WorkersStage powers workers off.
	WorkersStage = "Workers"

	// WorkersOffStage proves that all workers are off. Once the control planes are, nobody can ask a worker any more.
	WorkersOffStage = "WorkersOff"

	// ControlPlanesStage powers control planes off, one by one and the leader of etcd last.
	ControlPlanesStage = "ControlPlanes"

	// OffStage proves that no control plane is back.
	OffStage = "Off"
)

// Stages of a start, in order.
const (
	// PowerOnStage waits until people have powered every machine on.
	PowerOnStage = "PowerOn"

	// VerifyStage waits until the cluster is well.
	VerifyStage = "Verify"

	// UncordonStage gives back the Nodes that the stop has cordoned.
	UncordonStage = "Uncordon"
)

// Codes of warnings.
const (
	// OutageWarning says what a stop means.
	OutageWarning = "Outage"

	// HoldIgnoredWarning names held machines that are stopped as well.
	HoldIgnoredWarning = "HoldIgnored"

	// TwoControlPlanesWarning says why two control planes are no obstacle here.
	TwoControlPlanesWarning = "TwoControlPlanes"
)

// Planner plans a stop or a start.
type Planner struct {
	// StoresSnapshots says that the hub is able to store snapshots of etcd.
	StoresSnapshots bool
}

// Traits implements plan.Planner. A stop whose status is lost may have been followed by a start, so nobody repeats it. In its course the
// Kubernetes API goes away, and a start is how it comes back.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	if starts(spec) {
		return plan.Traits{Repeatable: true, RecordOptional: true, Windows: plan.WindowsNever, Power: plan.PowerOn, StartVerb: spec.StartSubresource()}
	}
	return plan.Traits{RecordOptional: true, Windows: plan.WindowsToBegin, Power: plan.PowerOff, StartVerb: spec.StartSubresource()}
}

func starts(spec v1alpha1.TalosOperationSpec) bool {
	return spec.Shutdown != nil && spec.Shutdown.Action == v1alpha1.ClusterStart
}

// AtTarget implements plan.Planner: what a machine's power is, nobody knows from the management API.
func (Planner) AtTarget(*v1alpha1.TalosMachine, v1alpha1.OperationTarget) bool { return false }

// Narrow implements plan.Planner: power changes no version.
func (Planner) Narrow(v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{}
}

// Plan implements plan.Planner.
func (p Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	switch facts.Spec.Shutdown.Action {
	case v1alpha1.ClusterStop:
		return p.stop(facts)
	case v1alpha1.ClusterStart:
		return p.start(facts)
	}
	return plan.Plan{}, []plan.Refusal{{
		Gate: v1alpha1.ActionKnownGate, Help: "upgrade the hub",
		Message: fmt.Sprintf("this hub does not know action %q; it knows %q and %q", facts.Spec.Shutdown.Action, v1alpha1.ClusterStop, v1alpha1.ClusterStart),
	}}
}

// stop takes every machine, held ones as well: a cluster that is half off is no use to anybody.
func (p Planner) stop(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	controlPlanes, workers := byRole(facts, v1alpha1.ControlPlaneRole), byRole(facts, v1alpha1.WorkerRole)
	made := plan.Plan{Effect: plan.EffectStop, Stages: p.stopStages(facts, controlPlanes, workers), Changes: map[string]plan.Change{}}
	for _, machine := range facts.Approved() {
		made.Changes[machine.Name] = plan.Change{Effect: plan.EffectStop}
	}
	made.Warnings = append(stopWarnings(facts), plan.OverrideWarnings(facts.Spec.Overrides, p.Traits(facts.Spec))...)
	return made, p.stopRefusals(facts)
}

func (p Planner) stopStages(facts plan.Facts, controlPlanes, workers []string) []plan.Stage {
	var stages []plan.Stage
	if facts.Spec.Shutdown.Snapshot == v1alpha1.ShutdownSnapshotTake {
		stages = append(stages, plan.Stage{Name: SnapshotStage, Whole: true, Gates: []string{v1alpha1.EtcdHealthyGate}})
	}
	stages = append(stages, plan.Stage{
		Name: CordonStage, Whole: true, TakenBack: true, Gates: []string{v1alpha1.TargetReachableGate, v1alpha1.EtcdHealthyGate},
	})
	if len(workers) > 0 {
		stages = append(stages, plan.Stage{
			Name: WorkersStage, Machines: workers, Batch: plan.Batch{Parallel: atOnce(facts, len(workers))}, Disruptive: true,
			Gates: []string{v1alpha1.MachinesDiscoveredGate, v1alpha1.TargetReachableGate},
		}, plan.Stage{Name: WorkersOffStage, Whole: true})
	}
	return append(stages, plan.Stage{
		// Quorum is lost here on purpose: etcd had to be well when the stop began, and is asked no more.
		Name: ControlPlanesStage, Machines: controlPlanes, Batch: plan.Batch{Tiered: true}, Disruptive: true,
		Gates: []string{v1alpha1.MachinesDiscoveredGate},
	}, plan.Stage{Name: OffStage, Whole: true})
}

// atOnce is how many workers go at once: all, unless somebody asked for less. There is nowhere for pods to go, and no budget to keep.
func atOnce(facts plan.Facts, workers int) int {
	if facts.Spec.MaxUnavailable == nil {
		return workers
	}
	return plan.MaxUnavailable(facts.Spec.MaxUnavailable, facts.Approved())
}

// byRole are the machines of a role, in order; whoever leads etcd is the last, as far as that is known.
func byRole(facts plan.Facts, role v1alpha1.MachineRole) []string {
	machines := slices.DeleteFunc(facts.Approved(), func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role != role })
	return plan.Order(machines, facts.Cluster.Status.EtcdLeader)
}

func stopWarnings(facts plan.Facts) []plan.Warning {
	name := facts.Spec.ClusterName
	warnings := []plan.Warning{{Code: OutageWarning, Message: fmt.Sprintf(
		"every workload stops, and the Kubernetes API goes away, until people power the machines on again, and: ichor cluster start %s", name)}}
	if facts.Spec.Shutdown.Snapshot == v1alpha1.ShutdownSnapshotNone {
		warnings = append(warnings, plan.Warning{Code: plan.NoSnapshotWarning, Message: "no snapshot of etcd is taken: what is on the disks of the control planes is all there is"})
	}
	if plan.ControlPlanes(facts.Approved()) == 2 {
		warnings = append(warnings, plan.Warning{Code: TwoControlPlanesWarning, Message: "two control planes: etcd stops with the first of them, which a stop may do; both are needed to start"})
	}
	if _, held := plan.SplitHeld(facts.Approved()); len(held) > 0 {
		warnings = append(warnings, plan.Warning{Code: HoldIgnoredWarning, Message: "held machines are powered off as well: " + strings.Join(held, ", ")})
	}
	return warnings
}

func (p Planner) stopRefusals(facts plan.Facts) []plan.Refusal {
	var refusals []plan.Refusal
	if pending := pending(facts.Machines); len(pending) > 0 {
		refusals = append(refusals, plan.Refusal{
			Gate:    v1alpha1.MachineKnownGate,
			Message: "not approved, and so not touched: " + strings.Join(pending, ", ") + "; a cluster is stopped as a whole",
			Help:    fmt.Sprintf("ichor machine approve %s --cluster %s", pending[0], facts.Spec.ClusterName),
		})
	}
	if plan.ControlPlanes(facts.Approved()) == 0 {
		refusals = append(refusals, plan.Refusal{
			Gate: v1alpha1.MachineKnownGate, Message: fmt.Sprintf("no control plane of cluster %s is known", facts.Spec.ClusterName),
			Help: "ichor cluster get " + facts.Spec.ClusterName,
		})
	}
	if r := p.noStorage(facts); r != nil {
		refusals = append(refusals, *r)
	}
	return refusals
}

func pending(machines []v1alpha1.TalosMachine) []string {
	var names []string
	for i := range machines {
		if machines[i].Stranger() {
			names = append(names, machines[i].Name)
		}
	}
	return names
}

// noStorage refuses a snapshot that could be stored nowhere.
func (p Planner) noStorage(facts plan.Facts) *plan.Refusal {
	if facts.Spec.Shutdown.Snapshot != v1alpha1.ShutdownSnapshotTake {
		return nil
	}
	backup := facts.Cluster.Spec.EtcdBackup
	switch {
	case !p.StoresSnapshots:
		return &plan.Refusal{
			Gate: v1alpha1.SnapshotStorageGate, Message: "this hub does not store snapshots of etcd",
			Help: "take one yourself (talosctl etcd snapshot FILE -n ADDRESS), then say that the hub takes none: --no-snapshot, or spec.shutdown.snapshot: None",
		}
	case backup == nil || backup.BucketURL == "":
		return &plan.Refusal{
			Gate: v1alpha1.SnapshotStorageGate, Message: fmt.Sprintf("spec.etcdBackup.bucketURL of TalosCluster %s is not set: a snapshot could be stored nowhere", facts.Spec.ClusterName),
			Help: "set it, or say that none is taken: --no-snapshot, or spec.shutdown.snapshot: None",
		}
	}
	return nil
}

// start takes no machine away: it waits for people, and gives back what was recorded.
func (p Planner) start(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	made := plan.Plan{Effect: plan.EffectNone, Stages: []plan.Stage{
		{Name: PowerOnStage, Whole: true, Gates: []string{v1alpha1.MachinesPoweredOnGate}},
		{Name: VerifyStage, Whole: true},
		{Name: UncordonStage, Whole: true},
	}}
	made.Warnings = plan.OverrideWarnings(facts.Spec.Overrides, p.Traits(facts.Spec))
	if facts.Cluster.Power() != v1alpha1.ClusterRuns {
		return made, nil
	}
	return made, []plan.Refusal{{
		Gate: v1alpha1.ClusterStoppedGate, Message: fmt.Sprintf("cluster %s was not stopped by an operation: there is nothing to start", facts.Spec.ClusterName),
		Help: "if its machines are off, power them on; nothing was cordoned. See: ichor cluster get " + facts.Spec.ClusterName,
	}}
}
