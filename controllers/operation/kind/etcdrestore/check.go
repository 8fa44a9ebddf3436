// SPDX-License-Identifier: Apache-2.0

package etcdrestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/versions"
	"ichor.maesh.dev/hub/controllers/versions/image"
	"ichor.maesh.dev/hub/providers/talos"
	"ichor.maesh.dev/hub/providers/talos/fingerprint"
)

// checking waits until every control plane answers as itself, and then has everything checked. One that does not answer would keep its etcd,
// and come back with it.
func checking(scope kind.Scope, unit kind.Unit, seen View) kind.Action {
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Done, Message: unit.Status.Outcome.Message}
	}
	if missing := unanswered(scope, seen); missing != nil {
		return *missing
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.CheckingStep}
}

// unanswered says which control plane does not answer as itself; nil means that all of them do.
func unanswered(scope kind.Scope, seen View) *kind.Action {
	for _, controlPlane := range controlPlanes(scope) {
		one := kind.Unit{Status: v1alpha1.UnitStatus{Name: controlPlane.Name}, Machine: controlPlane}
		told, asked := seen.Machines[controlPlane.Name]
		if asked && told.Trouble == "" && told.UUID == controlPlane.Spec.UUID {
			continue
		}
		switch {
		case !asked:
			told.Trouble = "it was not asked yet"
		case told.Trouble == "" && told.UUID == "":
			told.Trouble = "it tells no UUID yet"
		case told.Trouble == "":
			return &kind.Action{Verdict: kind.Fail, Message: fmt.Sprintf(
				"the machine at %s has UUID %q, and control plane %s has %q", controlPlane.Spec.Address, told.UUID, controlPlane.Name, controlPlane.Spec.UUID)}
		}
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: fmt.Sprintf(
			"control plane %s does not answer (%s): power it on; %s", controlPlane.Name, told.Trouble, deleteHelp(one))}
	}
	return nil
}

// snapshotting stores what runs. An etcd that cannot serve is no reason to go on without: who wants that says so.
func snapshotting(scope kind.Scope, unit kind.Unit, seen View) kind.Action {
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Done}
	}
	if !anybodyServes(scope, seen.Target) {
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.EtcdHealthyGate, Message: cmp.Or(gate.EtcdTrouble(scope.Approved, seen.Target.Etcd), "etcd does not answer") +
			": no snapshot of what runs now can be taken. To go on without one, delete this operation and start it with: --no-safety-snapshot"}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.SnapshottingStep}
}

// anybodyServes says whether there is a member that a snapshot can be taken from.
func anybodyServes(scope kind.Scope, seen gate.View) bool {
	for _, controlPlane := range controlPlanes(scope) {
		if etcd, asked := seen.Etcd[controlPlane.Name]; asked && etcd.Trouble == "" && etcd.Leader != 0 && !etcd.Learner && len(etcd.Errors) == 0 {
			return true
		}
	}
	return false
}

// found is what a control plane has that the snapshot is held against.
type found struct {
	// Keys are the fingerprints of its keys.
	Keys v1alpha1.SnapshotKeys

	// Init machines begin an etcd by themselves, without being told.
	Init bool

	// Etcd is the version of etcd that it runs, or would; empty if that is not known.
	Etcd string
}

// check holds the snapshot against every control plane, and what is stored of it against what was taken. It changes nothing.
func (e *Executor) check(ctx context.Context, scope kind.Scope) (kind.Outcome, error) {
	snapshot, err := e.stored.Find(ctx, scope.Cluster, scope.Spec.EtcdRestore.SnapshotName)
	if err != nil {
		return kind.Outcome{}, err
	}
	if !snapshot.Good() {
		return kind.Outcome{}, &FindingError{fmt.Sprintf("EtcdSnapshot %s is being deleted", snapshot.Name)}
	}
	contents := snapshot.Spec.Contents
	reader, err := e.sequence.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		return kind.Outcome{}, err
	}
	has := map[string]found{}
	for _, controlPlane := range controlPlanes(scope) {
		if has[controlPlane.Name], err = ask(ctx, reader, controlPlane.Spec.Address); err != nil {
			return kind.Outcome{}, fmt.Errorf("%s: %w", controlPlane.Name, err)
		}
	}
	if objections := compare(contents, has); len(objections) > 0 {
		return kind.Outcome{}, &FindingError{strings.Join(objections, "; ")}
	}
	if err := e.stored.Check(ctx, snapshot); err != nil {
		return kind.Outcome{}, err
	}
	return kind.Outcome{Message: fmt.Sprintf("%d bytes, revision %d of etcd %s, taken at %s: whole, and made for these control planes",
		contents.SizeBytes, contents.Revision, contents.EtcdVersion, contents.TakenTime.UTC().Format(time.RFC3339)) + rotated(contents, has)}, nil
}

// rotated says, for people, that the Kubernetes CA of a control plane is another one by now.
func rotated(contents *v1alpha1.SnapshotContents, has map[string]found) string {
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if old := otherKey("the Kubernetes CA", contents.Keys.KubernetesCA, has[name].Keys.KubernetesCA); old != "" {
			return "; " + name + ": " + old + ": it was rotated since, and stays as it is"
		}
	}
	return ""
}

// ask asks a control plane for what the snapshot is held against.
func ask(ctx context.Context, reader talos.Reader, address string) (found, error) {
	config, err := reader.Config(ctx, address)
	if err != nil {
		return found{}, err
	}
	has, pinned, err := read(config.Active)
	if err != nil {
		return found{}, &FindingError{err.Error()}
	}
	facts, err := reader.Machine(ctx, address)
	if err != nil {
		return found{}, err
	}
	running := ""
	if etcd, err := reader.Etcd(ctx, address); err == nil { // Where it does not answer, it would run what comes next.
		running = etcd.Version
	}
	has.Etcd = cmp.Or(running, pinned, comesWith(facts.Version))
	return has, nil
}

// read takes from a machine config what matters, and none of its secrets. pinned is the version of etcd that it names.
func read(data []byte) (has found, pinned string, err error) {
	config, err := configloader.NewFromBytes(data)
	if err != nil { // Its text may quote the config.
		return found{}, "", errors.New("the machine config cannot be read")
	}
	if has.Keys, err = fingerprint.Keys(data); err != nil {
		return found{}, "", err
	}
	if config.Machine() != nil {
		has.Init = config.Machine().Type() == machine.TypeInit
	}
	if raw := config.RawV1Alpha1(); raw != nil && raw.ClusterConfig != nil && raw.ClusterConfig.EtcdConfig != nil {
		if parsed, err := image.Parse(raw.ClusterConfig.EtcdConfig.ContainerImage); err == nil {
			pinned = parsed.Version
		}
	}
	return has, pinned, nil
}

// comesWith is the minor version of etcd that a Talos comes with.
func comesWith(talosVersion string) string {
	if parsed, err := versions.Parse(talosVersion); err == nil {
		return versions.Etcd(parsed)
	}
	return ""
}

// compare says what of the control planes does not fit the snapshot, in order.
func compare(contents *v1alpha1.SnapshotContents, has map[string]found) []string {
	var objections []string
	for _, name := range slices.Sorted(maps.Keys(has)) {
		for _, objection := range []string{
			initMachine(has[name]), newerEtcd(contents.EtcdVersion, has[name].Etcd),
			otherCluster(contents.Keys, has[name].Keys),
			otherKey("the key of service accounts", contents.Keys.ServiceAccount, has[name].Keys.ServiceAccount),
			missingKey(contents.Keys.Encryption, has[name].Keys.Encryption),
		} {
			if objection != "" {
				objections = append(objections, name+": "+objection)
			}
		}
	}
	return objections
}

func initMachine(has found) string {
	if has.Init {
		return "machine.type is init, and such a machine begins an etcd of its own when it is wiped; set it to controlplane first"
	}
	return ""
}

// newerEtcd refuses data that the etcd which runs there cannot read.
func newerEtcd(snapshot, running string) string {
	switch {
	case snapshot == "":
		return "" // A plan says that this is not compared.
	case running == "":
		return fmt.Sprintf("the snapshot is of etcd %s, and which etcd runs there is not known", snapshot)
	case versions.Compare(minor(snapshot), minor(running)) > 0:
		return fmt.Sprintf("the snapshot is of etcd %s, and etcd %s, which runs there, cannot read it: upgrade Talos first", snapshot, running)
	}
	return ""
}

// minor is a version without its patch.
func minor(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1] + ".0"
}

// otherKey refuses a control plane with another key than the data was written for.
func otherKey(what, snapshot, has string) string {
	if snapshot == "" || snapshot == has {
		return ""
	}
	return fmt.Sprintf("%s is another one than that of the snapshot (fingerprint %s, want %s)", what, short(has), short(snapshot))
}

// otherCluster refuses a control plane with another Kubernetes CA than that of the snapshot. The CA is in the machine config alone, and may have
// been rotated since: the same key of service accounts proves that it is the same cluster.
func otherCluster(snapshot, has v1alpha1.SnapshotKeys) string {
	if snapshot.ServiceAccount != "" && snapshot.ServiceAccount == has.ServiceAccount {
		return ""
	}
	return otherKey("the Kubernetes CA", snapshot.KubernetesCA, has.KubernetesCA)
}

// missingKey refuses a control plane that could not read Secrets of the snapshot. Keys that it has beyond that do no harm. What a key has
// encrypted names it, so that the same key under another name is of no use.
func missingKey(snapshot, has []v1alpha1.SnapshotEncryptionKey) string {
	for _, key := range snapshot {
		named, other := false, ""
		for _, own := range has {
			if own.Provider == key.Provider && own.Fingerprint == key.Fingerprint {
				named, other = named || own.Name == key.Name || own.Name == "" || key.Name == "", own.Name
			}
		}
		switch {
		case named:
		case other != "":
			return fmt.Sprintf("the %s key %s, which encrypts Secrets of the snapshot, is named %q in the machine config, and they are read only under its name %q",
				key.Provider, short(key.Fingerprint), other, key.Name)
		default:
			return fmt.Sprintf("the %s key %s%s, which encrypts Secrets of the snapshot, is not in the machine config",
				key.Provider, short(key.Fingerprint), called(key.Name))
		}
	}
	return ""
}

// called is the name of a key in brackets, where it is known.
func called(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" (name %q)", name)
}

// short is a fingerprint as people can compare it.
func short(fingerprint string) string {
	const shown = 12
	return cmp.Or(fingerprint[:min(shown, len(fingerprint))], "none")
}
