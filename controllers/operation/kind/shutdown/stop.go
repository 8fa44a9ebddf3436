// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/gate"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/poweroff"
	shutdownplan "ichor.maesh.dev/hub/controllers/operation/kind/shutdown/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// etcdWell waits until etcd is well: what is wrong with it before everything stops is still wrong when it starts.
func etcdWell(scope kind.Scope, seen View) *kind.Action {
	if trouble := gate.EtcdTrouble(scope.Approved, seen.Target.Etcd); trouble != "" {
		return &kind.Action{Verdict: kind.Wait, Reason: v1alpha1.EtcdHealthyGate, Message: trouble}
	}
	return nil
}

// snapshot stores a snapshot of etcd.
func snapshot(scope kind.Scope, unit kind.Unit, seen View) kind.Action {
	switch {
	case unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Done}
	}
	if wait := etcdWell(scope, seen); wait != nil {
		return *wait
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.SnapshottingStep}
}

// cordon keeps the scheduler from moving pods about while their Nodes go away, and records on each Node who did.
func cordon(scope kind.Scope, unit kind.Unit, seen View) kind.Action {
	switch {
	case unit.Status.Step == v1alpha1.UncordoningStep:
		return kind.Action{Verdict: kind.Park} // A settling was called off.
	case unit.Failed():
		return kind.FailStep(unit, "")
	case unit.Status.Step != "":
		return kind.Action{Verdict: kind.Done, Message: foreignCordons(scope, seen)}
	case seen.Target.NodesTrouble != "" && scope.Blind:
		return kind.Action{Verdict: kind.Done, Message: "nothing is cordoned: the Kubernetes API does not tell of Nodes"}
	case seen.Target.NodesTrouble != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: "the Kubernetes API of the cluster cannot be read: " + seen.Target.NodesTrouble}
	}
	if wait := etcdWell(scope, seen); wait != nil {
		return *wait
	}
	return kind.Action{Verdict: kind.Call, Step: v1alpha1.CordoningStep}
}

// foreignCordons names the Nodes that somebody else has cordoned, and that a start leaves so.
func foreignCordons(scope kind.Scope, seen View) string {
	var others []string
	for name, node := range seen.Target.Nodes {
		if node.Unschedulable && node.CordonedBy != scope.Owner {
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return "cordoned before, and left so: " + some(others)
}

// named bounds how many names a message has.
const named = 6

// some are names in order, as many as a message has room for.
func some(names []string) string {
	slices.Sort(names)
	if extra := len(names) - named; extra > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), extra)
	}
	return strings.Join(names, ", ")
}

// takeBack takes the operation's own cordons off, where that is possible. Where the Kubernetes API is gone with its control planes they
// stay: each Node names the operation, and a start gives them back.
func takeBack(scope kind.Scope, unit kind.Unit, seen View) kind.Action {
	switch {
	case unit.Status.Step == v1alpha1.UncordoningStep && !unit.Failed():
		return kind.Action{Verdict: kind.Park}
	case seen.Target.NodesTrouble != "" && unit.Status.Step != "":
		return kind.Action{Verdict: kind.Wait, Message: "waiting for the Kubernetes API, to take the cordons off: " + seen.Target.NodesTrouble}
	case cordonedBy(seen.Target.Nodes, scope.Owner):
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.UncordoningStep}
	}
	return kind.Action{Verdict: kind.Park}
}

func cordonedBy(nodes map[string]kube.Node, owner string) bool {
	for _, node := range nodes {
		if owner != "" && node.CordonedBy == owner {
			return true
		}
	}
	return false
}

// cordonAll cordons the Nodes of all machines. What somebody has cordoned before stays theirs.
func (e *Executor) cordonAll(ctx context.Context, scope kind.Scope) (kind.Outcome, error) {
	writer, err := e.sequence.Kube.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return kind.Outcome{}, err
	}
	nodes, err := writer.Nodes(ctx)
	if err != nil {
		return kind.Outcome{}, err
	}
	ours := map[string]bool{}
	for _, machine := range scope.Approved {
		ours[machine.Status.NodeName] = true
	}
	for _, node := range inOrder(nodes) {
		if !ours[node.Name] || node.Unschedulable {
			continue
		}
		if err := writer.Cordon(ctx, node.Name, scope.Owner); err != nil {
			return kind.Outcome{}, err
		}
	}
	return kind.Outcome{}, nil
}

// giveBack takes every cordon off that an owner has set, and no other.
func (e *Executor) giveBack(ctx context.Context, scope kind.Scope, owner string) error {
	writer, err := e.sequence.Kube.Writer(ctx, scope.Cluster, scope.Guard)
	if err != nil {
		return err
	}
	nodes, err := writer.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range inOrder(nodes) {
		if owner == "" || node.CordonedBy != owner {
			continue
		}
		if err := writer.Uncordon(ctx, node.Name, owner); err != nil {
			return err
		}
	}
	return nil
}

func inOrder(nodes []kube.Node) []kube.Node {
	slices.SortFunc(nodes, func(a, b kube.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// stayOff proves once more of machines that are off that they are. One that is back is a matter for a person, who keeps it from that and
// then has it told again.
func stayOff(unit kind.Unit, seen View) kind.Action {
	back, unclear := signsOfLife(seen)
	switch step := unit.Status.Step; {
	case step == v1alpha1.ShuttingDownStep && unit.FailedForGood():
		return kind.FailStep(unit, "")
	case step == v1alpha1.ShuttingDownStep && unit.Failed() && back != "":
		return kind.Action{Verdict: kind.Call, Step: v1alpha1.ShuttingDownStep}
	case step == v1alpha1.ShuttingDownStep && back+unclear != "":
		return kind.Action{Verdict: kind.Wait, Message: "not off yet: " + back + unclear}
	case step == v1alpha1.ShuttingDownStep:
		return kind.Action{Verdict: kind.Wait, Step: v1alpha1.StayingOffStep, Message: "nobody answers: waiting whether it stays so"}
	case back != "":
		return kind.Action{Verdict: kind.Fail, RetryStep: v1alpha1.ShuttingDownStep, Message: fmt.Sprintf("back by itself: %s; %s", back, poweroff.KeepOff)}
	case unclear != "":
		return kind.Action{Verdict: kind.Wait, Reason: v1alpha1.TargetReachableGate, Message: "not known to be off: " + unclear}
	case step == v1alpha1.StayingOffStep:
		return kind.Action{Verdict: kind.Done, After: poweroff.Stays}
	}
	return kind.Action{Verdict: kind.Done}
}

// signsOfLife names the machines that answer, and those of which nobody knows.
func signsOfLife(seen View) (back, unclear string) {
	var answer, doubtful []string
	for _, name := range slices.Sorted(maps.Keys(seen.Machines)) {
		switch machine := seen.Machines[name]; {
		case machine.Trouble == "":
			answer = append(answer, name)
		case !machine.Silent:
			doubtful = append(doubtful, name+": "+machine.Trouble)
		}
	}
	return some(answer), some(doubtful)
}

// shutDownAgain tells every machine of a stage that answers to power off.
func (e *Executor) shutDownAgain(ctx context.Context, scope kind.Scope, stage string) error {
	for name, seen := range e.lookAt(ctx, scope, concerned(scope, stage)) {
		machine := machineOf(scope, name)
		if machine == nil || seen.Trouble != "" || seen.Stage == talos.StageShuttingDown {
			continue
		}
		unit := kind.Unit{Status: v1alpha1.UnitStatus{Name: name, PreRebootBootID: seen.BootID}, Machine: machine}
		if _, err := poweroff.Do(ctx, e.sequence, scope, unit); err != nil {
			return err
		}
	}
	return nil
}

func machineOf(scope kind.Scope, name string) *v1alpha1.TalosMachine {
	for _, machine := range scope.Approved {
		if machine.Name == name {
			return machine
		}
	}
	return nil
}

// ownerOf is whose cordons a stage takes off: those of the operation itself, or those of the one that has stopped the cluster.
func ownerOf(scope kind.Scope, unit kind.Unit) string {
	if unit.Status.Stage == shutdownplan.CordonStage {
		return scope.Owner
	}
	return scope.StoppedBy
}
