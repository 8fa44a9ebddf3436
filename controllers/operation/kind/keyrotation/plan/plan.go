// SPDX-License-Identifier: Apache-2.0

// Package plan plans rotations of keys. It is a leaf: it links no client of a target, and knows nothing of a key.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/versions"
)

// Stages of a rotation. A pass is a stage that changes the machine configs of the control planes, one after the other.
const (
	// CheckStage has every control plane tell whether its keys can be rotated, before anything is changed.
	CheckStage = "Check"

	// KeysStage makes the new keys and keeps them.
	KeysStage = "Keys"

	// MigrateStage is the pass that brings keys into documents which hold more than one of them. It changes nothing by effect.
	MigrateStage = "Migrate"

	// AcceptServiceAccountStage is the pass after which every API server takes tokens of the new key.
	AcceptServiceAccountStage = "AcceptServiceAccount"

	// PublishKeysStage waits until who verifies tokens elsewhere has the new key, if anybody does.
	PublishKeysStage = "PublishKeys"

	// SwapServiceAccountStage is the pass after which every API server signs with the new key.
	SwapServiceAccountStage = "SwapServiceAccount"

	// RefreshTokensStage waits until tokens of the old key are refreshed.
	RefreshTokensStage = "RefreshTokens"

	// DropServiceAccountStage is the pass after which no API server takes tokens of the old key.
	DropServiceAccountStage = "DropServiceAccount"

	// SnapshotStage stores a snapshot of etcd.
	SnapshotStage = "Snapshot"

	// AcceptSecretboxStage is the pass after which every API server reads what the new key encrypts.
	AcceptSecretboxStage = "AcceptSecretbox"

	// SwapSecretboxStage is the pass after which every API server encrypts with the new key.
	SwapSecretboxStage = "SwapSecretbox"

	// RewriteStage has everything written again that the old key has encrypted.
	RewriteStage = "Rewrite"

	// DropSecretboxStage is the pass after which no API server has the old key.
	DropSecretboxStage = "DropSecretbox"

	// BundleStage brings the cluster's bundle of secrets up to date, and gives the old keys to the snapshots that need them.
	BundleStage = "Bundle"
)

// Codes of warnings.
const (
	// RestartsWarning says how often API servers restart.
	RestartsWarning = "APIServersRestart"

	// TokensWarning says what becomes of tokens.
	TokensWarning = "TokensExpire"

	// KeyNameWarning says what a machine config for a new control plane has to be made from.
	KeyNameWarning = "KeyName"
)

// Planner plans rotations of keys.
type Planner struct {
	// StoresSnapshots says that the hub is able to store snapshots of etcd.
	StoresSnapshots bool
}

// Traits implements plan.Planner. A machine does not tell which key is the new one of an operation whose status is lost, so nobody repeats
// it. Once it has begun it is better finished than left half-way.
func (Planner) Traits(spec v1alpha1.TalosOperationSpec) plan.Traits {
	traits := plan.Traits{Windows: plan.WindowsToBegin, StartVerb: spec.StartSubresource()}
	if Rotates(spec, v1alpha1.ServiceAccountKey) {
		traits.Confirmable = []string{PublishKeysStage, RefreshTokensStage, BackRefreshTokensStage}
	}
	return traits
}

// Narrow implements plan.Planner: keys are no part of what the spec of a cluster asks for.
func (Planner) Narrow(v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{}
}

// AtTarget implements plan.Planner: a key has no age, so every rotation makes another one.
func (Planner) AtTarget(*v1alpha1.TalosMachine, v1alpha1.OperationTarget) bool { return false }

// Rotates says whether an operation rotates a key.
func Rotates(spec v1alpha1.TalosOperationSpec, key v1alpha1.RotatedKey) bool {
	return spec.KeyRotation != nil && slices.Contains(spec.KeyRotation.Keys, key)
}

// Plan implements plan.Planner: control planes only, one at a time, in passes of which each leaves a cluster in which every API server
// takes what any other one has made.
func (p Planner) Plan(facts plan.Facts) (plan.Plan, []plan.Refusal) {
	controlPlanes := controlPlanesOf(facts)
	made := plan.Plan{Effect: plan.EffectKeyRotation, Stages: p.forwards(facts, controlPlanes), Changes: map[string]plan.Change{}}
	for _, machine := range controlPlanes {
		made.Changes[machine.Name] = plan.Change{Effect: plan.EffectRestartComponents}
	}
	if facts.TurnBack {
		if made.NoWayBack = noWayBack(facts); made.NoWayBack == "" {
			made.Stages, made.TurnsBack = p.backwards(facts, controlPlanes), true
		}
	}
	made.Warnings = append(p.warnings(facts, controlPlanes), plan.OverrideWarnings(facts.Spec.Overrides, p.Traits(facts.Spec))...)
	refused, overridden := refusals(facts, controlPlanes)
	made.Overridden = overridden
	return made, refused
}

func controlPlanesOf(facts plan.Facts) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(facts.Approved(), func(m *v1alpha1.TalosMachine) bool { return m.Spec.Role != v1alpha1.ControlPlaneRole })
}

// forwards are the stages of a rotation that nobody has asked to turn back.
func (p Planner) forwards(facts plan.Facts, controlPlanes []*v1alpha1.TalosMachine) []plan.Stage {
	names := []string{CheckStage, KeysStage, MigrateStage}
	for _, key := range keysOf(facts.Spec) {
		if key == v1alpha1.SecretboxKey && p.snapshots(facts) {
			names = append(names, SnapshotStage)
		}
		names = append(names, stagesOf[key]...)
	}
	var stages []plan.Stage
	for _, name := range append(names, BundleStage) {
		stages = append(stages, stage(facts, controlPlanes, name))
	}
	return stages
}

// stagesOf are the stages of a key, in order.
var stagesOf = map[v1alpha1.RotatedKey][]string{
	v1alpha1.ServiceAccountKey: {AcceptServiceAccountStage, PublishKeysStage, SwapServiceAccountStage, RefreshTokensStage, DropServiceAccountStage},
	v1alpha1.SecretboxKey:      {AcceptSecretboxStage, SwapSecretboxStage, RewriteStage, DropSecretboxStage},
}

// stage is a stage by its name. In a pass the API server of a machine restarts; the machine and its etcd member stay.
func stage(facts plan.Facts, controlPlanes []*v1alpha1.TalosMachine, name string) plan.Stage {
	made := plan.Stage{Name: name, Unsafe: Unsafe(name), Kept: Unsafe(name) || Accepts(name)}
	switch {
	case name == CheckStage:
		made.Batch.Parallel = max(len(controlPlanes), 1)
	case Passes(name):
		made.Batch.Tiered, made.Disruptive, made.KeepsEtcd = true, true, true
		if Back(name) {
			made.Gates = backGates
		}
	case name == SnapshotStage:
		made.Whole, made.Gates = true, []string{v1alpha1.EtcdHealthyGate}
		return made
	default:
		made.Whole = true
		return made
	}
	made.Machines = plan.Order(controlPlanes, facts.Cluster.Status.EtcdLeader)
	return made
}

func keysOf(spec v1alpha1.TalosOperationSpec) []v1alpha1.RotatedKey {
	if spec.KeyRotation == nil {
		return nil
	}
	return spec.KeyRotation.Keys
}

// snapshots says whether a snapshot of etcd is stored first.
func (p Planner) snapshots(facts plan.Facts) bool {
	return p.StoresSnapshots && facts.Cluster.Spec.EtcdBackup != nil && facts.Cluster.Spec.EtcdBackup.BucketURL != ""
}

// backPrefix begins the name of each stage of a way back.
const backPrefix = "Back"

// backGates are the gates of a pass on the way back. That all others are ready is none of them: what one is sick of may be what is taken back.
var backGates = []string{v1alpha1.ControlPlaneTransitioningReason, v1alpha1.MachinesDiscoveredGate, v1alpha1.TargetReachableGate, v1alpha1.EtcdHealthyGate}

// Back says whether a stage is on the way back.
func Back(stage string) bool { return strings.HasPrefix(stage, backPrefix) }

// Stages of a way back. They take back what the stages of almost the same name have done.
const (
	// BackSwapServiceAccountStage is the pass after which every API server signs with the old key again.
	BackSwapServiceAccountStage = "BackSwapServiceAccount"

	// BackRefreshTokensStage waits until tokens of the new key are refreshed.
	BackRefreshTokensStage = "BackRefreshTokens"

	// BackAcceptServiceAccountStage is the pass after which no API server takes tokens of the new key.
	BackAcceptServiceAccountStage = "BackAcceptServiceAccount"

	// BackSwapSecretboxStage is the pass after which every API server encrypts with the old key again.
	BackSwapSecretboxStage = "BackSwapSecretbox"

	// BackRewriteStage has everything written again that the new key has encrypted.
	BackRewriteStage = "BackRewrite"

	// BackAcceptSecretboxStage is the pass after which no API server has the new key.
	BackAcceptSecretboxStage = "BackAcceptSecretbox"
)

// Passes says whether a stage is a pass: it changes the machine configs of control planes.
func Passes(stage string) bool {
	switch stage {
	case MigrateStage, AcceptServiceAccountStage, SwapServiceAccountStage, DropServiceAccountStage, AcceptSecretboxStage, SwapSecretboxStage, DropSecretboxStage,
		BackSwapServiceAccountStage, BackAcceptServiceAccountStage, BackSwapSecretboxStage, BackAcceptSecretboxStage:
		return true
	}
	return false
}

// Accepts says whether a stage is the pass from which on machines know a new key.
func Accepts(stage string) bool {
	return stage == AcceptServiceAccountStage || stage == AcceptSecretboxStage
}

// Drops says whether a stage is a pass after whose beginning there is no way back.
func Drops(stage string) bool { return stage == DropServiceAccountStage || stage == DropSecretboxStage }

// TakesAway says whether a stage is a pass that takes a key away, the old one or on the way back the new one.
func TakesAway(stage string) bool {
	return Drops(stage) || stage == BackAcceptServiceAccountStage || stage == BackAcceptSecretboxStage
}

// TakenBack says whether a stage is one that a rotation which is turned back leaves where it is: a stage of its own takes back what it has done.
func TakenBack(stage string) bool { return len(waysBack[stage]) > 0 }

// Unsafe says whether a stage is between the first API server that uses the new key and the last one that has the old key, or on the way back
// the last one that has the new key.
func Unsafe(stage string) bool {
	switch stage {
	case SwapServiceAccountStage, RefreshTokensStage, DropServiceAccountStage, SwapSecretboxStage, RewriteStage, DropSecretboxStage,
		BackSwapServiceAccountStage, BackRefreshTokensStage, BackAcceptServiceAccountStage, BackSwapSecretboxStage, BackRewriteStage, BackAcceptSecretboxStage:
		return true
	}
	return false
}

// restartsOfAPass is how often an API server restarts in a pass at most: for its config, for the mark that makes Talos restart it once more, and
// when that mark goes.
const restartsOfAPass = 3

func (p Planner) warnings(facts plan.Facts, controlPlanes []*v1alpha1.TalosMachine) []plan.Warning {
	passes := 0
	for _, stage := range p.forwards(facts, controlPlanes) {
		if Passes(stage.Name) {
			passes++
		}
	}
	times := fmt.Sprintf("restarts up to %d times, and up to %d where Talos restarts it too early", passes, passes*restartsOfAPass)
	restarts := plan.Warning{Code: RestartsWarning, Message: fmt.Sprintf(
		"the API server of each control plane %s, one control plane at a time: who watches it connects again", times)}
	if len(controlPlanes) == 1 {
		restarts = plan.Warning{Code: plan.SingleControlPlaneWarning, Message: fmt.Sprintf(
			"the only API server %s: the Kubernetes API of the cluster is away meanwhile", times)}
	}
	list := []plan.Warning{restarts}
	if Rotates(facts.Spec, v1alpha1.ServiceAccountKey) {
		list = append(list, plan.Warning{Code: TokensWarning, Message: "once the old key is dropped, every token that it signed is void: the operation waits until pods have new ones, and names " +
			"the Secrets whose tokens nobody renews; where the issuer is not the cluster itself, it waits until somebody has published the new key there"})
	}
	if !Rotates(facts.Spec, v1alpha1.SecretboxKey) {
		return list
	}
	if !p.snapshots(facts) {
		list = append(list, plan.Warning{Code: plan.NoSnapshotWarning, Message: fmt.Sprintf(
			"no snapshot of etcd is stored first: spec.etcdBackup.bucketURL of TalosCluster %s is not set", facts.Cluster.Name)})
	}
	return append(list, plan.Warning{Code: KeyNameWarning, Message: "the new key has a name of its own, which the bundle of secrets cannot hold: make the machine config " +
		"of another control plane from that of one that is there, not from the bundle"})
}

// checks are what speaks against a rotation, in the order in which it is told.
var checks = []func(plan.Facts, []*v1alpha1.TalosMachine) []plan.Refusal{
	known,    // Without control planes there is nothing to do.
	approved, // One that nobody touches would be left with the old key.
	overlap,  // Old and new have to be there at the same time.
	held,     // One that is left out would not be able to read what the others write.
	rendered, // Nor would one that comes later.
}

func refusals(facts plan.Facts, controlPlanes []*v1alpha1.TalosMachine) (refused, overridden []plan.Refusal) {
	for _, check := range checks {
		for _, r := range check(facts, controlPlanes) {
			if r.Overridable && facts.Overridden(r.Gate) {
				overridden = append(overridden, r)
			} else {
				refused = append(refused, r)
			}
		}
	}
	return refused, overridden
}

func known(facts plan.Facts, controlPlanes []*v1alpha1.TalosMachine) []plan.Refusal {
	if len(controlPlanes) > 0 {
		return nil
	}
	return []plan.Refusal{{
		Gate: v1alpha1.MachineKnownGate, Message: fmt.Sprintf("no control plane of cluster %s is known", facts.Cluster.Name),
		Help: "see what keeps them from being found: ichor cluster get " + facts.Cluster.Name,
	}}
}

func approved(facts plan.Facts, _ []*v1alpha1.TalosMachine) []plan.Refusal {
	var pending []string
	for i := range facts.Machines {
		if m := &facts.Machines[i]; m.Spec.Role == v1alpha1.ControlPlaneRole && m.Stranger() {
			pending = append(pending, m.Name)
		}
	}
	if len(pending) == 0 {
		if refusal := plan.HalfJoined(facts, v1alpha1.ControlPlaneRole, "a control plane without the new key cannot read what the others write"); refusal != nil {
			return []plan.Refusal{*refusal}
		}
		return nil
	}
	slices.Sort(pending)
	return []plan.Refusal{{
		Gate:    v1alpha1.MachineKnownGate,
		Message: fmt.Sprintf("not approved, and so not touched: %s; a control plane without the new key cannot read what the others write", strings.Join(pending, ", ")),
		Help:    fmt.Sprintf("ichor machine approve %s --cluster %s", pending[0], facts.Cluster.Name),
	}}
}

// firstMinor is the minor of Talos 1 whose machine configs hold more than one key.
const firstMinor = 14

// overlap refuses where a machine config can hold one key only: to replace that one is an outage for all who have a token, or the loss of what
// is encrypted.
func overlap(_ plan.Facts, controlPlanes []*v1alpha1.TalosMachine) []plan.Refusal {
	for _, machine := range controlPlanes {
		running, err := versions.Parse(machine.Status.TalosVersion)
		switch {
		case err != nil:
			return []plan.Refusal{{
				Gate:    v1alpha1.KeyOverlapGate,
				Message: fmt.Sprintf("%s does not tell its version of Talos (%q)", machine.Name, machine.Status.TalosVersion),
				Help:    "see why: ichor machine get " + machine.Name, Passing: machine.Status.TalosVersion == "",
			}}
		case running.Major == 1 && running.Minor < firstMinor:
			return []plan.Refusal{{
				Gate: v1alpha1.KeyOverlapGate,
				Message: fmt.Sprintf("%s runs Talos %s, whose machine config holds one key only: the old one would be gone in the moment that the new one comes, "+
					"and with it all tokens and what it has encrypted", machine.Name, machine.Status.TalosVersion),
				Help: fmt.Sprintf("upgrade to Talos v1.%d, from which on both are there for a while: ichor upgrade talos v1.%[1]d.0", firstMinor),
			}}
		}
	}
	return nil
}

func held(facts plan.Facts, controlPlanes []*v1alpha1.TalosMachine) []plan.Refusal {
	_, names := plan.SplitHeld(controlPlanes)
	if len(names) == 0 {
		return nil
	}
	return []plan.Refusal{{
		Gate:    v1alpha1.ControlPlaneHeldGate,
		Message: fmt.Sprintf("control plane %s is held: without the new key it could not read what the others write", strings.Join(names, ", ")),
		Help:    fmt.Sprintf("ichor machine unhold %s --cluster %s", names[0], facts.Cluster.Name),
	}}
}

// rendered refuses where a provider of Cluster API makes control planes from the bundle of secrets. That gives the key its old name, and an
// API server finds a key by the name that is before what it has encrypted.
func rendered(facts plan.Facts, _ []*v1alpha1.TalosMachine) []plan.Refusal {
	cluster := facts.CAPICluster
	if !Rotates(facts.Spec, v1alpha1.SecretboxKey) || cluster == nil || !cluster.Spec.ControlPlaneRef.IsDefined() {
		return nil
	}
	owner := cluster.Spec.ControlPlaneRef
	return []plan.Refusal{{
		Gate: v1alpha1.ControlPlanesRenderedGate, Overridable: true,
		Message: fmt.Sprintf("%s %s makes control planes from the bundle of secrets, which has no room for the name of the new key: one that comes later could not read a Secret",
			cmp.Or(owner.Kind, "the control plane provider"), owner.Name),
		Help: fmt.Sprintf("give it the document KubeEtcdEncryptionConfig as a patch afterwards, and say so: --override %s=REASON", v1alpha1.ControlPlanesRenderedGate),
	}}
}
