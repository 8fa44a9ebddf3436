// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/reboot"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// joinSteps: the machine config is handed over once, and what comes after it is waited for. A machine that installs Talos answers nobody for
// minutes, and a hub that was killed in the call finds out only then whether it was heard.
var joinSteps = append([]kind.Step{
	{Name: v1alpha1.ProvisioningStep, Repeat: kind.Safe, Gated: true, Timeout: 30 * time.Minute},
	{Name: v1alpha1.JoiningStep, Waits: true, Timeout: 30 * time.Minute},
}, common(v1alpha1.VerifyingStep)...)

// joinView is what a join looks at.
type joinView struct {
	// Found is what the machine tells in maintenance mode; Trouble says why it tells nothing there, and Other that it is there with another
	// certificate.
	Found   talos.Unconfigured
	Trouble string
	Other   string

	// Unfit says why the machine cannot be what it shall be, Unrendered why nobody knows its machine config.
	Unfit, Unrendered string

	// Wanted is the hash of the machine config that it shall have, Active of the one that it has; ActiveTrouble says why that is not known.
	Wanted, Active, ActiveTrouble string

	// Etcd says why the machine does not vote yet on every list of members.
	Etcd string
}

func joinOf(seen kind.Observation) joinView {
	own, _ := seen.Own.(joinView)
	return own
}

// observeJoin asks the machine as one of the cluster first: one that answers so has its machine config.
func (e *Executor) observeJoin(ctx context.Context, scope kind.Scope, unit kind.Unit) kind.Observation {
	var seen kind.Observation
	own, address := joinView{}, unit.Machine.Spec.Address
	if unit.Machine.Spec.Join == nil {
		return seen // Next says so.
	}
	reader, err := e.Talos.Reader(ctx, scope.Cluster)
	if err != nil {
		seen.TalosTrouble, seen.Own = talos.Trouble(err), own
		return seen
	}
	if seen.Talos, err = reader.Machine(ctx, address); err != nil {
		seen.TalosTrouble, seen.TalosSilent = talos.Trouble(err), talos.Silent(err)
		e.observeUnconfigured(ctx, reader, scope, unit, &own)
		seen.Own = own
		return seen
	}
	if config, err := reader.Config(ctx, address); err != nil {
		own.ActiveTrouble = "its machine config cannot be read: " + talos.Trouble(err)
	} else {
		own.Active = machineconfig.Hash(config.Active)
	}
	e.observeOwnNode(ctx, scope, &seen)
	if unit.Machine.Spec.Role == v1alpha1.ControlPlaneRole {
		own.Etcd = notVoting(ctx, reader, scope, unit)
	}
	seen.Own = own
	return seen
}

// observeOwnNode reads the Node of the name that the machine tells: nobody has recorded it yet.
func (e *Executor) observeOwnNode(ctx context.Context, scope kind.Scope, seen *kind.Observation) {
	if seen.Talos.NodeName == "" {
		return
	}
	reader, err := e.Kube.Reader(ctx, scope.Cluster)
	if err == nil {
		seen.Node, err = reader.Node(ctx, seen.Talos.NodeName)
	}
	if err != nil {
		seen.NodeTrouble = kube.Trouble(err)
	}
}

// observeUnconfigured asks a machine that does not answer as one of the cluster in maintenance mode and, before it has its machine config, makes
// that: what is claimed is the hash of it.
func (e *Executor) observeUnconfigured(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit, own *joinView) {
	var other *talos.FingerprintError
	var err error
	switch own.Found, err = inspect(ctx, reader, unit.Machine); {
	case errors.As(err, &other):
		own.Other = other.Error()
		return
	case err != nil:
		own.Trouble = talos.Trouble(err)
		return
	case unit.Status.Step != "" && unit.Status.Step != v1alpha1.ProvisioningStep:
		return
	}
	made, err := e.render(ctx, reader, scope, unit.Machine, own.Found)
	var unfit *unfitError
	switch {
	case errors.As(err, &unfit):
		own.Unfit = unfit.Error()
	case err != nil:
		own.Unrendered = err.Error()
	default:
		own.Wanted = made.hash
	}
}

// inspect asks a machine in maintenance mode what it has. A certificate that is another one proves nothing by itself: one that has booted with
// its machine config serves that of its cluster, while it does not answer as one of that yet. So it has to answer without credentials, too.
func inspect(ctx context.Context, reader talos.Reader, machine *v1alpha1.TalosMachine) (talos.Unconfigured, error) {
	found, err := reader.Inspect(ctx, machine.Spec.Address, machine.Spec.Join.Fingerprint)
	var other *talos.FingerprintError
	if !errors.As(err, &other) {
		return found, err
	}
	switch uuid, err := reader.Maintenance(ctx, machine.Spec.Address); {
	case err != nil:
		return found, err
	case !strings.EqualFold(uuid, machine.Spec.UUID): // It tells nothing about this one.
		return found, fmt.Errorf("another machine is in maintenance mode there: its UUID is %s", uuid)
	}
	return found, other
}

// notVoting says why a machine is not a voter on the list of every control plane, its own included; nothing means that it is.
func notVoting(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit) string {
	own, err := reader.Etcd(ctx, unit.Machine.Spec.Address)
	if err != nil {
		return "its etcd member does not answer: " + talos.Trouble(err)
	}
	if !unit.Machine.Joining() {
		return notListed(ctx, reader, scope, unit, own)
	}
	all := append(slices.DeleteFunc(slices.Clone(scope.Approved), func(m *v1alpha1.TalosMachine) bool { return m.Name == unit.Machine.Name }), unit.Machine)
	views := map[string]gate.EtcdView{unit.Machine.Name: {Etcd: own}}
	for _, machine := range others(scope, unit) {
		etcd, err := reader.Etcd(ctx, machine.Spec.Address)
		if err != nil {
			return fmt.Sprintf("the etcd member of %s cannot be asked: %s", machine.Name, talos.Trouble(err))
		}
		views[machine.Name] = gate.EtcdView{Etcd: etcd}
	}
	return gate.EtcdTrouble(all, views)
}

// notListed says why a machine that the hub has seen work is not a voter on the list of everybody who answers. Another control plane that is
// down by now is another matter: the learner that nobody else may meet is none any more.
func notListed(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit, own talos.Etcd) string {
	lists := map[string][]talos.EtcdMember{unit.Machine.Name: own.Members}
	for _, machine := range others(scope, unit) {
		if etcd, err := reader.Etcd(ctx, machine.Spec.Address); err == nil {
			lists[machine.Name] = etcd.Members
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		switch i := slices.IndexFunc(lists[name], func(m talos.EtcdMember) bool { return m.ID == own.MemberID }); {
		case i < 0:
			return fmt.Sprintf("%s does not know its etcd member", name)
		case lists[name][i].Learner:
			return fmt.Sprintf("its etcd member is a learner, as %s knows it", name)
		}
	}
	return ""
}

// nextJoin decides what comes next for a machine that joins. Nothing is ever told to bootstrap an etcd.
func nextJoin(_ *Executor, _ kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	if unit.Machine.Spec.Join == nil {
		return kind.Action{Verdict: kind.Fail, Message: "somebody has taken spec.join away from TalosMachine " + unit.Machine.Name + ", by which it joins"}
	}
	switch unit.Status.Step { //nolint:exhaustive // The last one is what is left.
	case "":
		return beginJoin(unit, seen)
	case v1alpha1.ProvisioningStep:
		if wanted := joinOf(seen).Wanted; unit.Failed() && wanted != "" && wanted != unit.Status.ConfigHash {
			// It is in maintenance mode still, with the certificate and the UUID that are recorded: whatever was tried was not heard, or
			// makes it answer as one of the cluster soon, which is asked first.
			return kind.Action{Verdict: kind.Call, Step: v1alpha1.ProvisioningStep, ConfigHash: wanted}
		}
		if unit.Failed() {
			return kind.FailStep(unit, "")
		}
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.JoiningStep, Message: "waiting until the machine has installed Talos and answers as one of the cluster"}
	case v1alpha1.JoiningStep:
		return joining(unit, seen)
	}
	return joined(unit, seen)
}

func beginJoin(unit kind.Unit, seen kind.Observation) kind.Action {
	own, machine := joinOf(seen), unit.Machine
	switch {
	case seen.TalosTrouble == "":
		if bad := reboot.CheckIdentity(unit, seen); bad != nil {
			return *bad
		}
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.JoiningStep, Message: "it has its machine config already"}
	case own.Other != "":
		return kind.Action{Verdict: kind.Fail, Message: own.Other + pinAgain}
	case own.Trouble != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: fmt.Sprintf(
			"machine %s does not answer at %s in maintenance mode: %s", unit.Status.Name, machine.Spec.Address, own.Trouble)}
	case own.Unfit != "":
		return kind.Action{Verdict: kind.Fail, Message: own.Unfit}
	case own.Wanted == "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.MachineConfigKnownGate, Message: fmt.Sprintf("%s: %s", unit.Status.Name, own.Unrendered)}
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.ProvisioningStep, ConfigHash: own.Wanted}
}

// pinAgain says what to do about a certificate that is another one.
const pinAgain = ": each boot makes another one; compare it with the console, and run ichor machine join again with that fingerprint"

// joining waits until the machine answers as one of the cluster. One that is in maintenance mode with another certificate has booted without
// its machine config.
func joining(unit kind.Unit, seen kind.Observation) kind.Action {
	own := joinOf(seen)
	switch {
	case seen.TalosTrouble != "" && own.Other != "":
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ProvisioningStep, Message: "it has booted without its machine config: " + own.Other + pinAgain}
	case seen.TalosTrouble != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting until the machine has installed Talos and answers as one of the cluster: " + seen.TalosTrouble}
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	if own.ActiveTrouble != "" {
		return kind.Action{Verdict: kind.Wait, Message: own.ActiveTrouble}
	}
	return kind.Action{Verdict: kind.Wait, Step: v1alpha1.VerifyingStep, Message: "waiting until the machine is ready"}
}

// joined waits until the machine works as one of the cluster and, on a control plane, votes on every list. The lock is held until the hub has
// taken note of that: whoever comes next has to count with it.
func joined(unit kind.Unit, seen kind.Observation) kind.Action {
	wait := func(format string, args ...any) kind.Action {
		return kind.Action{Verdict: kind.Wait, Message: fmt.Sprintf(format, args...)}
	}
	if seen.TalosTrouble != "" {
		return wait("waiting for the Talos API: %s", seen.TalosTrouble)
	}
	if bad := reboot.CheckIdentity(unit, seen); bad != nil {
		return *bad
	}
	own := joinOf(seen)
	switch {
	case own.Etcd != "":
		return wait("waiting until it votes on every list of etcd's members: %s", own.Etcd)
	case seen.Talos.Stage != talos.StageRunning || !seen.Talos.Ready:
		return wait("waiting until the machine is ready: %s", strings.Join(append([]string{seen.Talos.Stage}, seen.Talos.Unmet...), ", "))
	case seen.NodeTrouble != "":
		return wait("waiting for the Kubernetes API: %s", seen.NodeTrouble)
	case seen.Node == nil || !seen.Node.Ready:
		return wait("waiting until Node %q is Ready", seen.Talos.NodeName)
	case unit.Machine.Joining():
		return wait("waiting until the hub has taken note of Node %s", seen.Talos.NodeName)
	}
	return kind.Action{Verdict: kind.Done, Message: "it has joined as Node " + seen.Talos.NodeName + touched(unit, own.Active)}
}

// touched notes that a machine has another config than the one that it was given. It is the machine, and one of the cluster: who has changed
// its config since may have helped it to join.
func touched(unit kind.Unit, active string) string {
	if claimed := unit.Status.ConfigHash; claimed == "" || active == "" || active == claimed {
		return ""
	}
	return "; its machine config is another one than it was given: somebody has changed it since"
}

// settleJoin leaves a machine alone that has no machine config yet, and sees one through that has: nothing else makes an end of a learner.
func settleJoin(e *Executor, scope kind.Scope, unit kind.Unit, seen kind.Observation) kind.Action {
	provisioning := unit.Status.Step == v1alpha1.ProvisioningStep
	switch {
	case unit.Status.Step == "" || !unit.Status.FailureTime.IsZero() || provisioning && unit.FailedForGood():
		return kind.Action{Verdict: kind.Park}
	case provisioning && unit.Failed(): // No other config is begun with now.
		return kind.FailStep(unit, "")
	}
	return nextJoin(e, scope, unit, seen)
}

// unsafeJoin says why nobody else may change who belongs to etcd: a control plane that has its machine config joins etcd by itself.
func unsafeJoin(unit kind.Unit) string {
	switch unit.Status.Step { //nolint:exhaustive // There are no others.
	case v1alpha1.ProvisioningStep:
		if unit.FailedForGood() {
			return "" // It certainly has none.
		}
		return "is being given its machine config, with which it joins etcd"
	case v1alpha1.JoiningStep, v1alpha1.VerifyingStep:
		if unit.Status.RetryStep == v1alpha1.ProvisioningStep {
			return "" // It was seen without one.
		}
		return "joins etcd, and is not known to vote yet"
	}
	return ""
}

// errSilent means that a machine answers neither as one of the cluster nor in maintenance mode: it may be installing.
var errSilent = errors.New("it answers neither as one of the cluster nor in maintenance mode")

// provision gives the machine its machine config, unless it has it by now. It asks as one of the cluster first: a call that nobody knows the
// fate of may have been heard.
func (e *Executor) provision(ctx context.Context, scope kind.Scope, unit kind.Unit) (kind.Outcome, error) {
	machine, join := unit.Machine, unit.Machine.Spec.Join
	if join == nil {
		return kind.Outcome{}, &unfitError{"TalosMachine " + machine.Name + " does not ask to join (spec.join)"}
	}
	writer, err := e.Talos.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return kind.Outcome{}, err
	}
	if facts, err := writer.Machine(ctx, machine.Spec.Address); err == nil {
		return e.provisioned(ctx, writer, scope, unit, facts)
	}
	found, err := inspect(ctx, writer, machine)
	var other *talos.FingerprintError
	switch {
	case errors.As(err, &other):
		return kind.Outcome{}, err
	case err != nil:
		return kind.Outcome{}, fmt.Errorf("%w: %w", errSilent, err)
	}
	made, err := e.render(ctx, writer, scope, machine, found)
	switch {
	case err != nil:
		return kind.Outcome{}, err
	case made.hash != unit.Status.ConfigHash:
		return kind.Outcome{}, &unfitError{"another machine config is asked for by now than was claimed: the patches, or the machines that it is modelled on, have changed"}
	}
	if err := e.Configs.handOver(ctx, machine); err != nil {
		return kind.Outcome{}, err
	}
	if err := writer.Provision(ctx, machine.Spec.Address, join.Fingerprint, made.whole); err != nil {
		if talos.OutOfPlace(err) && !unit.Status.UnknownSince.IsZero() {
			return kind.Outcome{}, fmt.Errorf("%w: %w", errSilent, err) // An earlier attempt was heard.
		}
		return kind.Outcome{}, kind.Told(err, made.whole)
	}
	return kind.Outcome{Message: "given its machine config; installing " + made.image + made.without()}, e.Configs.keep(ctx, machine, made.base)
}

// provisioned is what is left to do for a machine that has its machine config.
func (e *Executor) provisioned(ctx context.Context, reader talos.Reader, scope kind.Scope, unit kind.Unit, facts talos.Machine) (kind.Outcome, error) {
	machine := unit.Machine
	if facts.UUID != machine.Spec.UUID {
		return kind.Outcome{}, &reboot.IdentityError{Machine: unit.Status.Name, Address: machine.Spec.Address, Want: machine.Spec.UUID, Got: facts.UUID}
	}
	own, err := reader.Config(ctx, machine.Spec.Address)
	if err != nil {
		return kind.Outcome{}, err
	}
	done := kind.Outcome{Message: "it has its machine config already" + touched(unit, machineconfig.Hash(own.Active))}
	made, err := e.Configs.again(ctx, reader, scope, machine, own.Active)
	var unfit *unfitError
	switch {
	case errors.As(err, &unfit): // What it is modelled on has changed. Its base will be what it has, as of a machine that is found.
		return done, nil
	case err != nil:
		return kind.Outcome{}, err
	}
	return done, e.Configs.keep(ctx, machine, made.base)
}
