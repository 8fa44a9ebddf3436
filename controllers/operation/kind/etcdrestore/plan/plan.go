// SPDX-License-Identifier: Apache-2.0

// Package plan plans how a cluster is put back to a snapshot of its etcd. It is a leaf: it links no client of a target.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/versions"
)

// Stages, in order.
const (
	// CheckStage finds all that speaks against the restore, before anything is touched.
	CheckStage = "Check"

	// SnapshotStage stores a snapshot of what runs.
	SnapshotStage = "Snapshot"

	// WipeStage takes the data of etcd from every control plane. Each reboots and waits for an etcd.
	WipeStage = "Wipe"

	// RecoverStage begins an etcd of the snapshot on one control plane.
	RecoverStage = "Recover"

	// JoinStage waits until the other control planes have joined it.
	JoinStage = "Join"

	// KubeletsStage restarts the kubelets of workers: what they remember of the API server is of another time.
	KubeletsStage = "Kubelets"

	// CleanStage deletes what came back and stands for nothing, and writes the hub's record anew.
	CleanStage = "Clean"

	// VerifyStage waits until the cluster is well.
	VerifyStage = "Verify"
)

// Codes of warnings.
const (
	// RewindsWarning says what a restore means for whatever follows the cluster.
	RewindsWarning = "Rewinds"

	// OutageWarning says how long the Kubernetes API is away.
	OutageWarning = "Outage"

	// HoldIgnoredWarning names held machines that are taken as well.
	HoldIgnoredWarning = "HoldIgnored"

	// UnknownFactsWarning says what nobody can compare, since the snapshot does not tell it.
	UnknownFactsWarning = "UnknownFacts"

	// RawCopyWarning says what is not known of a database without a hash.
	RawCopyWarning = "RawCopy"

	// NewerKubernetesWarning says that the snapshot is of a newer Kubernetes than that which runs.
	NewerKubernetesWarning = "NewerKubernetes"

	// PendingWorkersWarning names workers that nobody has approved.
	PendingWorkersWarning = "PendingWorkers"
)

// Planner plans restores.
type Planner struct {
	// StoresSnapshots says that the hub is able to store snapshots of etcd, and to read them.
	StoresSnapshots bool
}

// Traits implements plan.Planner. A restore whose status is lost may have gone on to its end, and the cluster with it: nobody repeats it. It is
// how a Kubernetes API comes back, and waits for no window.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	return plan.Traits{RecordOptional: true, Windows: plan.WindowsNever, StartVerb: spec.StartSubresource()}
}

// AtTarget implements plan.Planner: a cluster can be put back again.
func (Planner) AtTarget(*v1alpha1.TalosMachine, v1alpha1.OperationTarget) bool { return false }

// Narrow implements plan.Planner: a restore changes no version.
func (Planner) Narrow(v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{}
}

// Plan implements plan.Planner.
func (p Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	made := plan.Plan{Effect: plan.EffectRestore, Stages: stages(facts), Losses: losses(facts), Changes: map[string]plan.Change{}}
	for _, machine := range facts.Approved() {
		effect := plan.EffectRestartComponents
		if machine.Spec.Role == v1alpha1.ControlPlaneRole {
			effect = plan.EffectReboot
		}
		made.Changes[machine.Name] = plan.Change{Effect: effect}
	}
	made.Warnings = append(warnings(facts), plan.OverrideWarnings(facts.Spec.Overrides, p.Traits(facts.Spec))...)
	return made, p.refusals(facts)
}

func stages(facts plan.Facts) []plan.Stage {
	controlPlanes, workers := ofRole(facts, v1alpha1.ControlPlaneRole), ofRole(facts, v1alpha1.WorkerRole)
	list := []plan.Stage{{Name: CheckStage, Whole: true}}
	if facts.Spec.EtcdRestore.SafetySnapshot == v1alpha1.SafetySnapshotTake {
		list = append(list, plan.Stage{Name: SnapshotStage, Whole: true, Gates: []string{v1alpha1.EtcdHealthyGate}})
	}
	list = append(list, plan.Stage{
		// All at once: an etcd that lives on beside the restored one would be a second cluster. Nothing is asked about quorum, for it is
		// what is given up, or about Nodes, which may have nobody left to tell of them.
		Name: WipeStage, Machines: controlPlanes, Batch: plan.Batch{Parallel: max(len(controlPlanes), 1)}, Disruptive: true, Unsafe: true, MayLose: true,
		Gates: []string{v1alpha1.MachinesDiscoveredGate},
	})
	joining := slices.Clone(controlPlanes)
	if chosen := Chosen(facts); chosen != "" {
		list = append(list, plan.Stage{
			Name: RecoverStage, Machines: []string{chosen}, Batch: plan.Batch{Parallel: 1}, Unsafe: true, MayLose: true, Rewound: true,
		})
		joining = slices.DeleteFunc(joining, func(name string) bool { return name == chosen })
	}
	if len(joining) > 0 {
		list = append(list, plan.Stage{
			Name: JoinStage, Machines: joining, Batch: plan.Batch{Parallel: 1}, Unsafe: true, MayLose: true, Rewound: true,
		})
	}
	if len(workers) > 0 {
		list = append(list, plan.Stage{
			Name: KubeletsStage, Machines: workers, Batch: plan.Batch{Parallel: len(workers)}, Unsafe: true, MayLose: true, Rewound: true,
		})
	}
	// Until the record on the target is this hub's again, the next operation would take it for that of somebody else.
	return append(list, plan.Stage{Name: CleanStage, Whole: true, Unsafe: true, Rewound: true}, plan.Stage{Name: VerifyStage, Whole: true})
}

// Chosen is the one control plane that etcd begins with. Once it was begun with it stays the one: two of them would be two clusters. Only where
// somebody deletes its TalosMachine before etcd has begun there is another one chosen.
func Chosen(facts plan.Facts) string {
	candidates := ofRole(facts, v1alpha1.ControlPlaneRole)
	for _, unit := range facts.Units {
		if began(unit) && (slices.Contains(candidates, unit.Name) || recovered(unit)) {
			return unit.Name
		}
	}
	if len(candidates) == 0 {
		return ""
	}
	return candidates[0]
}

// began says whether the stage of a control plane was begun that makes it the chosen one.
func began(unit v1alpha1.UnitStatus) bool {
	return unit.Stage == RecoverStage || unit.CompletedStage == RecoverStage ||
		slices.ContainsFunc(unit.Steps, func(step v1alpha1.StepRecord) bool { return step.Stage == RecoverStage })
}

// recovered says whether etcd has begun there.
func recovered(unit v1alpha1.UnitStatus) bool {
	return unit.CompletedStage == RecoverStage || unit.Phase == v1alpha1.UnitCompleted
}

func ofRole(facts plan.Facts, role v1alpha1.MachineRole) []string {
	machines := slices.DeleteFunc(facts.Approved(), func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role != role })
	return plan.Order(machines, "")
}

// losses say what is gone for good.
func losses(facts plan.Facts) []string {
	list := []string{fmt.Sprintf("every control plane of cluster %s: its etcd, and with its partition EPHEMERAL its container images, its logs, and what pods keep "+
		"there in emptyDir, hostPath and local volumes", facts.Spec.ClusterName)}
	if contents := contentsOf(facts); contents != nil {
		list = append(list, fmt.Sprintf("whatever was written to the Kubernetes API since %s (revision %d of etcd)",
			contents.TakenTime.UTC().Format(time.RFC3339), contents.Revision))
	}
	return list
}

func contentsOf(facts plan.Facts) *v1alpha1.SnapshotContents {
	if facts.Snapshot == nil {
		return nil
	}
	return facts.Snapshot.Spec.Contents
}

func warnings(facts plan.Facts) []plan.Warning {
	list := []plan.Warning{
		{Code: OutageWarning, Message: "the Kubernetes API is away until the first control plane is back with the snapshot; pods run on, and nothing moves or mends them"},
		{Code: RewindsWarning, Message: "whatever follows the cluster sees time go back. Restart it afterwards: kube-proxy and CoreDNS " +
			"(kubectl -n kube-system rollout restart ds, and deploy), the CNI, CSI drivers, operators, and controllers outside of it. " +
			"Volumes and load balancers that were made since are known to nobody"},
	}
	if facts.Spec.EtcdRestore.SafetySnapshot == v1alpha1.SafetySnapshotNone {
		list = append(list, plan.Warning{Code: plan.NoSnapshotWarning, Message: "no snapshot of what runs now is taken: there is no way back"})
	}
	if contents := contentsOf(facts); contents != nil {
		list = append(list, aboutContents(contents)...)
		list = append(list, newerKubernetes(contents.KubernetesVersion, facts.Cluster.Status.KubernetesVersion)...)
	}
	if _, held := plan.SplitHeld(facts.Approved()); len(held) > 0 {
		list = append(list, plan.Warning{Code: HoldIgnoredWarning, Message: "held machines are taken as well: " + strings.Join(held, ", ")})
	}
	if names := pending(facts, v1alpha1.WorkerRole); len(names) > 0 {
		list = append(list, plan.Warning{Code: PendingWorkersWarning, Message: "not approved, and so not touched: " + strings.Join(names, ", ") +
			"; restart their kubelets yourself"})
	}
	return list
}

func aboutContents(contents *v1alpha1.SnapshotContents) []plan.Warning {
	var list []plan.Warning
	if contents.RawCopy() {
		list = append(list, plan.Warning{Code: RawCopyWarning, Message: "what is stored is a database without a hash: whether it is whole, nobody can tell"})
	}
	var unknown []string
	for _, fact := range []struct{ value, what string }{
		{contents.EtcdVersion, "the version of etcd"}, {contents.Keys.KubernetesCA, "the Kubernetes CA"}, {contents.Keys.ServiceAccount, "the key of service accounts"},
	} {
		if fact.value == "" {
			unknown = append(unknown, fact.what)
		}
	}
	if len(unknown) > 0 {
		list = append(list, plan.Warning{Code: UnknownFactsWarning, Message: "the snapshot does not tell " + strings.Join(unknown, ", ") + ": that is not compared"})
	}
	return list
}

// newerKubernetes warns of objects that the API server which runs may not know. A version that nobody knows is not compared.
func newerKubernetes(snapshot, runs string) []plan.Warning {
	of, err := versions.Parse(snapshot)
	if err != nil {
		return nil
	}
	on, err := versions.Parse(runs)
	if err != nil || of.Major < on.Major || of.Major == on.Major && of.Minor <= on.Minor {
		return nil
	}
	return []plan.Warning{{Code: NewerKubernetesWarning, Message: fmt.Sprintf(
		"the snapshot is of Kubernetes %s, and %s runs: objects in it may be of kinds or versions that this one cannot read", snapshot, runs)}}
}

// pending are the machines of a role that nobody has approved.
func pending(facts plan.Facts, role v1alpha1.MachineRole) []string {
	var names []string
	for i := range facts.Machines {
		if machine := &facts.Machines[i]; machine.Stranger() && machine.Spec.Role == role {
			names = append(names, machine.Name)
		}
	}
	return names
}

func (p Planner) refusals(facts plan.Facts) []plan.Refusal {
	var list []plan.Refusal
	for _, find := range []func(plan.Facts) *plan.Refusal{unusable, p.noStorage, strangers, halfJoined, nobody} {
		if refusal := find(facts); refusal != nil {
			list = append(list, *refusal)
		}
	}
	return list
}

// unusable says why the snapshot cannot be restored, as far as its object tells.
func unusable(facts plan.Facts) *plan.Refusal {
	name, cluster := facts.Spec.EtcdRestore.SnapshotName, facts.Spec.ClusterName
	refuse := func(help, format string, args ...any) *plan.Refusal {
		return &plan.Refusal{Gate: v1alpha1.SnapshotUsableGate, Message: fmt.Sprintf(format, args...), Help: help}
	}
	list := "ichor snapshot list --cluster " + cluster
	switch snapshot := facts.Snapshot; {
	case snapshot == nil:
		return refuse(list, "spec.etcdRestore.snapshotName is %q, and there is no such EtcdSnapshot", name)
	case snapshot.Spec.ClusterName != cluster:
		return refuse(list, "EtcdSnapshot %s is of cluster %s, and only one of cluster %s can be restored there", name, snapshot.Spec.ClusterName, cluster)
	case snapshot.Spec.Contents == nil:
		return refuse("see: ichor snapshot get "+name, "EtcdSnapshot %s is not taken yet", name)
	case !snapshot.Good():
		return refuse(list, "EtcdSnapshot %s is being deleted", name)
	case snapshot.Spec.Contents.RawCopy() && !facts.Spec.EtcdRestore.TakesRawCopies():
		return refuse("if it was copied from the disk of a control plane, and you know that it is whole: --raw-copy, or spec.etcdRestore.integrity: RawCopy",
			"what is stored of EtcdSnapshot %s does not end with a SHA-256: nobody can tell whether it is whole", name)
	}
	return nil
}

// noStorage refuses a safety snapshot that could be stored nowhere.
func (p Planner) noStorage(facts plan.Facts) *plan.Refusal {
	refusal := &plan.Refusal{
		Gate: v1alpha1.SnapshotStorageGate, Message: "this hub stores and reads no snapshots of etcd", Help: "upgrade the hub",
	}
	backup := facts.Cluster.Spec.EtcdBackup
	switch {
	case !p.StoresSnapshots:
		return refusal
	case facts.Spec.EtcdRestore.SafetySnapshot == v1alpha1.SafetySnapshotTake && (backup == nil || backup.BucketURL == ""):
		refusal.Message = fmt.Sprintf("spec.etcdBackup.bucketURL of TalosCluster %s is not set: a snapshot of what runs now could be stored nowhere", facts.Spec.ClusterName)
		refusal.Help = "set it, or say that none is taken: --no-safety-snapshot, or spec.etcdRestore.safetySnapshot: None"
		return refusal
	}
	return nil
}

// strangers refuses control planes that the hub may not wipe: their etcd would live on beside the restored one.
func strangers(facts plan.Facts) *plan.Refusal {
	names := pending(facts, v1alpha1.ControlPlaneRole)
	if len(names) == 0 {
		return nil
	}
	return &plan.Refusal{
		Gate:    v1alpha1.MachineKnownGate,
		Message: "control planes that are not approved, and so not touched: " + strings.Join(names, ", ") + "; their etcd would live on beside the restored one",
		Help:    fmt.Sprintf("ichor machine approve %s --cluster %s; or, if it is gone for good: kubectl delete talosmachine %[1]s", names[0], facts.Spec.ClusterName),
	}
}

// halfJoined refuses control planes that nobody would wipe: they would go on with an etcd that is not the restored one.
func halfJoined(facts plan.Facts) *plan.Refusal {
	return plan.HalfJoined(facts, v1alpha1.ControlPlaneRole, "its etcd would live on beside the restored one")
}

func nobody(facts plan.Facts) *plan.Refusal {
	if plan.ControlPlanes(facts.Approved()) > 0 {
		return nil
	}
	return &plan.Refusal{
		Gate: v1alpha1.MachineKnownGate, Message: fmt.Sprintf("no control plane of cluster %s is known", facts.Spec.ClusterName),
		Help: "ichor cluster get " + facts.Spec.ClusterName,
	}
}
