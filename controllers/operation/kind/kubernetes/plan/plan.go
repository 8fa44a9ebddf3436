// SPDX-License-Identifier: Apache-2.0

// Package plan plans upgrades of Kubernetes. It is a leaf: it links no client of a target.
package plan

import (
	"fmt"
	"slices"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/versions"
)

// Stages of an upgrade of Kubernetes. Components come one after the other, each on all control planes before the next: whatever asks an API
// server may ask any of them, and must not be newer than it.
const (
	CheckStage             = "Check"
	PullStage              = "PrePull"
	SnapshotStage          = "Snapshot"
	APIServerStage         = "APIServer"
	ControllerManagerStage = "ControllerManager"
	SchedulerStage         = "Scheduler"
	ProxyConfigStage       = "ProxyConfig"
	KubeletsStage          = "Kubelets"
	ManifestsStage         = "Manifests"
)

// pullsAtOnce bounds how many machines pull images at the same time: they share a registry and an uplink.
const pullsAtOnce = 10

// Planner plans upgrades of Kubernetes.
type Planner struct {
	// StoresSnapshots says that the hub is able to store snapshots of etcd.
	StoresSnapshots bool
}

// Traits implements plan.Planner. What runs the target already is found so, piece by piece, so an upgrade may be run again.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	return plan.Traits{Repeatable: true, StartVerb: spec.StartSubresource()}
}

// Narrow implements plan.Planner.
func (Planner) Narrow(t v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{KubernetesVersion: t.KubernetesVersion}
}

// AtTarget implements plan.Planner. The management API knows what kubelets run. Of a control plane it does not know all, nor whether the
// manifests were synced: the operation looks, and is over at once where there is nothing to do.
func (Planner) AtTarget(machine *v1alpha1.TalosMachine, target v1alpha1.OperationTarget) bool {
	return machine.Spec.Role == v1alpha1.WorkerRole && machine.Status.KubeletVersion == target.KubernetesVersion
}

// Plan implements plan.Planner: everything is checked and pulled, and etcd is stored, before the first change; the manifests come last.
func (p Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	taken, held := split(facts.Approved())
	order := plan.Order(taken, facts.Cluster.Status.EtcdLeader)
	refused, overridden := refusals(facts, taken)
	made := plan.Plan{
		Target: facts.Target, Effect: plan.EffectRestartComponents, Held: held, Stages: stages(order, plan.ControlPlanes(taken)),
		Warnings: p.warnings(facts, taken), Overridden: overridden,
	}
	if p.snapshots(facts) {
		first := slices.IndexFunc(made.Stages, func(s plan.Stage) bool { return s.Name == APIServerStage })
		made.Stages = slices.Insert(made.Stages, first, plan.Stage{Name: SnapshotStage, Whole: true})
	}
	return made, refused
}

// snapshots says whether a snapshot of etcd is stored first.
func (p Planner) snapshots(facts plan.Facts) bool {
	return p.StoresSnapshots && facts.Cluster.Spec.EtcdBackup != nil && facts.Cluster.Spec.EtcdBackup.BucketURL != ""
}

// split is plan.SplitHeld, but for control planes: a hold keeps an upgrade from starting, and one that is put on later cannot leave a control
// plane half-way, with an API server of another version than what asks it.
func split(approved []*v1alpha1.TalosMachine) (taken []*v1alpha1.TalosMachine, held []string) {
	for _, machine := range approved {
		if machine.Held() && machine.Spec.Role != v1alpha1.ControlPlaneRole {
			held = append(held, machine.Name)
			continue
		}
		taken = append(taken, machine)
	}
	slices.Sort(held)
	return taken, held
}

// stages are the stages for machines in order, the first of which are control planes.
func stages(order []string, controlPlanes int) []plan.Stage {
	change := func(name string, machines []string) plan.Stage {
		return plan.Stage{Name: name, Machines: machines, Batch: plan.Batch{Tiered: true}, Disruptive: true, KeepsEtcd: true}
	}
	first := order[:controlPlanes]
	return []plan.Stage{
		{Name: CheckStage, Whole: true},
		{Name: PullStage, Machines: order, Batch: plan.Batch{Parallel: pullsAtOnce}},
		change(APIServerStage, first),
		change(ControllerManagerStage, first),
		change(SchedulerStage, first),
		change(ProxyConfigStage, first),
		change(KubeletsStage, order),
		{Name: ManifestsStage, Whole: true},
	}
}

// IsMinor says whether going from one version to another is more than a change of the patch level.
func IsMinor(from, to string) bool {
	a, errA := versions.Parse(from)
	b, errB := versions.Parse(to)
	return errA != nil || errB != nil || a.Major != b.Major || a.Minor != b.Minor
}

func (p Planner) warnings(facts plan.Facts, taken []*v1alpha1.TalosMachine) []plan.Warning {
	var list []plan.Warning
	for _, check := range []struct {
		code string
		ask  func(plan.Facts, []*v1alpha1.TalosMachine) string
	}{
		{plan.SingleControlPlaneWarning, outage},  // There is no other API server.
		{plan.TwoControlPlanesWarning, noSpare},   // Nothing takes a member of etcd away, but nothing may fail, either.
		{plan.NoSnapshotWarning, p.noSnapshot},    // A new version may write what the old one cannot read.
		{plan.DrainsNodesWarning, drains},         // Kubernetes supports another minor of a kubelet on an empty Node only.
		{plan.ManifestsChangeWarning, manifests},  // Somebody may have changed by hand what is applied.
		{plan.KubeletsStayBehindWarning, trailed}, // What is held keeps what it has.
	} {
		if message := check.ask(facts, taken); message != "" {
			list = append(list, plan.Warning{Code: check.code, Message: message})
		}
	}
	return append(list, plan.OverrideWarnings(facts.Spec.Overrides, p.Traits(facts.Spec))...)
}

func outage(facts plan.Facts, _ []*v1alpha1.TalosMachine) string {
	if plan.ControlPlanes(facts.Approved()) != 1 {
		return ""
	}
	return "the only control plane restarts its API server: the Kubernetes API of the cluster is away for a moment"
}

func noSpare(facts plan.Facts, _ []*v1alpha1.TalosMachine) string {
	if plan.ControlPlanes(facts.Approved()) != 2 {
		return ""
	}
	return "two control planes: etcd keeps both members all the time, and cannot lose either of them meanwhile"
}

func (p Planner) noSnapshot(facts plan.Facts, _ []*v1alpha1.TalosMachine) string {
	if p.snapshots(facts) {
		return ""
	}
	return fmt.Sprintf("no snapshot of etcd is stored first: spec.etcdBackup.bucketURL of TalosCluster %s is not set", facts.Cluster.Name)
}

func drains(facts plan.Facts, taken []*v1alpha1.TalosMachine) string {
	minor := func(m *v1alpha1.TalosMachine) bool {
		return m.Status.KubeletVersion != "" && IsMinor(m.Status.KubeletVersion, facts.Target.KubernetesVersion)
	}
	if len(facts.Approved()) == 1 || !slices.ContainsFunc(taken, minor) {
		return ""
	}
	return fmt.Sprintf("kubelets get another minor version: each Node is drained first, control planes one at a time, then at most %d workers at once",
		plan.MaxUnavailable(facts.Spec.MaxUnavailable, facts.Approved()))
}

func manifests(plan.Facts, []*v1alpha1.TalosMachine) string {
	return "the bootstrap manifests of Talos are applied last; what Helm, Flux or Argo CD keep is left alone. The first stage says what would change"
}

func trailed(facts plan.Facts, _ []*v1alpha1.TalosMachine) string {
	var behind []string
	for _, machine := range facts.Approved() {
		if machine.Held() && machine.Spec.Role == v1alpha1.WorkerRole && machine.Status.KubeletVersion != facts.Target.KubernetesVersion {
			behind = append(behind, machine.Name)
		}
	}
	switch len(behind) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s is held and keeps its kubelet", behind[0])
	}
	slices.Sort(behind)
	return fmt.Sprintf("%s and %d more are held and keep their kubelets", behind[0], len(behind)-1)
}
