// SPDX-License-Identifier: Apache-2.0

// Package gate holds the checks before anything disruptive. They are pure: a look at the target and the machine that is meant to
// go away in, and either nothing or the reason to wait out.
package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// View is one look at the whole target. Two views of the same state are equal.
type View struct {
	// Nodes are the Nodes by name; NodesTrouble says why they are not known.
	Nodes        map[string]kube.Node
	NodesTrouble string

	// Etcd is what the member of each control plane tells, by TalosMachine.
	Etcd map[string]EtcdView

	// Record is what a hub last wrote down on the target; RecordTrouble says why that is not known.
	Record        kube.Record
	RecordTrouble string
}

// EtcdView is what one etcd member tells, or why it does not.
type EtcdView struct {
	talos.Etcd

	Trouble string
}

// Leader is the TalosMachine whose etcd member leads, or nothing.
func (v View) Leader() string {
	for name, etcd := range v.Etcd {
		if etcd.Trouble == "" && etcd.MemberID != 0 && etcd.MemberID == etcd.Leader {
			return name
		}
	}
	return ""
}

// Input is what gates judge.
type Input struct {
	// Cluster is the target.
	Cluster *v1alpha1.TalosCluster

	// Machines are the approved machines of the target.
	Machines []*v1alpha1.TalosMachine

	// Machine is the one that is meant to go away.
	Machine *v1alpha1.TalosMachine

	// Stage is the stage that would take it away; it may leave gates out.
	Stage plan.Stage

	// Entering is set when the machine is about to be begun with, and not when it is about to be rebooted.
	Entering bool

	// View is what the target looks like now.
	View View

	// Away are the machines that a disruptive step of this operation has in hand, by TalosMachine.
	Away map[string]bool

	// MaxUnavailable is how many workers may be away at once.
	MaxUnavailable int

	// Overrides are those of the operation, and Traits what is special about its kind.
	Overrides []v1alpha1.GateOverride
	Traits    plan.Traits
}

// Wait is why a machine must not go away yet. The zero value means that it may.
type Wait struct {
	// Gate is the gate that waits.
	Gate string

	// Message says for what.
	Message string
}

type gate struct {
	name  string
	check func(Input) (wait string)
}

// gates are asked in this order; the first that waits answers.
var gates = []gate{
	{v1alpha1.MachinesDiscoveredGate, machinesDiscovered},   // A member that nobody knows could be the one that quorum needs.
	{v1alpha1.TargetReachableGate, targetReachable},         // What cannot be seen is not touched.
	{v1alpha1.EtcdHealthyGate, etcdHealthy},                 // etcd must be able to lose this member.
	{v1alpha1.ControlPlanesReadyGate, controlPlanesReady},   // The other control planes have to carry the load.
	{v1alpha1.WorkersAvailableGate, workersWithinTheBudget}, // Pods need somewhere to go.
}

// Check asks every gate that is not overridden.
func Check(in Input) Wait {
	for _, g := range gates {
		if in.overrides(g.name) || !in.Stage.Asks(g.name) {
			continue
		}
		if message := g.check(in); message != "" {
			return Wait{Gate: g.name, Message: message}
		}
	}
	return Wait{}
}

// Bypassed is what the overridden gates would have waited for. It is recorded when a machine goes away regardless.
func Bypassed(in Input) []Wait {
	var list []Wait
	for _, g := range gates {
		if !in.overrides(g.name) || !in.Stage.Asks(g.name) {
			continue
		}
		if message := g.check(in); message != "" {
			list = append(list, Wait{Gate: g.name, Message: message})
		}
	}
	return list
}

func (in Input) overrides(gate string) bool {
	return plan.MayBypassWait(gate, in.Traits) && slices.ContainsFunc(in.Overrides, func(o v1alpha1.GateOverride) bool { return o.Gate == gate })
}

func machinesDiscovered(in Input) string {
	if in.Cluster.Annotations[v1alpha1.MembersApprovedAtAnnotation] == "" {
		return "initial discovery has not matched every etcd member and every Node to a machine yet"
	}
	if in.Machine.Status.NodeName == "" && !in.Stage.Joins { // One that joins gets its Node by that.
		return fmt.Sprintf("the Node of %s is not known yet", in.Machine.Name)
	}
	return duplicated(in)
}

func targetReachable(in Input) string {
	if in.View.NodesTrouble != "" {
		return "the Kubernetes API of the cluster cannot be read: " + in.View.NodesTrouble
	}
	return ""
}

// etcdHealthy asks whether etcd is well, and stays so without the chosen member, if that goes.
func etcdHealthy(in Input) string {
	if in.Machine.Spec.Role != v1alpha1.ControlPlaneRole {
		return ""
	}
	if trouble := in.etcdTrouble(); trouble != "" {
		return trouble
	}
	members := len(controlPlanes(in.Machines))
	switch {
	case in.Stage.KeepsEtcd || in.Stage.Joins:
		return ""
	case in.Stage.Leaves && members > 1: // All are well, or were counted, and fewer are needed afterwards.
		return ""
	case in.Stage.Leaves:
		return fmt.Sprintf("%s has the last etcd member", in.Machine.Name)
	}
	if quorum := members/2 + 1; members > 1 && members-1 < quorum {
		return fmt.Sprintf("etcd has %d members and needs %d of them", members, quorum)
	}
	return ""
}

// etcdTrouble is what is wrong with etcd, but for what the operation is there to mend.
func (in Input) etcdTrouble() string {
	switch {
	case in.Stage.Sick && in.Stage.Leaves:
		return troubleWithout(in.Machine, in.Machines, in.View.Etcd)
	case in.Stage.Sick:
		return troubleOfOthers(in.Machine, in.Machines, in.View.Etcd)
	case in.Stage.EtcdOnly:
		return EtcdTrouble(in.Machines, withoutSpaceAlarms(in.View.Etcd))
	}
	return EtcdTrouble(in.Machines, in.View.Etcd)
}

// EtcdTrouble says what is wrong with etcd. It asks every member, since one that is cut off still thinks that all is well.
func EtcdTrouble(machines []*v1alpha1.TalosMachine, etcd map[string]EtcdView) string {
	var reference *EtcdView
	for _, machine := range controlPlanes(machines) {
		member, seen := etcd[machine.Name]
		switch {
		case !seen:
			return fmt.Sprintf("the etcd member of %s has not been asked", machine.Name)
		case member.Trouble != "":
			return fmt.Sprintf("the etcd member of %s cannot be asked: %s", machine.Name, member.Trouble)
		}
		if reference == nil {
			reference = &member
		}
		if trouble := memberTrouble(machine.Name, member, *reference); trouble != "" {
			return trouble
		}
	}
	if reference == nil {
		return "no control plane is known"
	}
	return membershipTrouble(reference.Members, len(controlPlanes(machines)))
}

func memberTrouble(name string, etcd, reference EtcdView) string {
	switch {
	case etcd.Leader == 0:
		return fmt.Sprintf("the etcd member of %s has no leader", name)
	case etcd.Leader != reference.Leader:
		return fmt.Sprintf("the etcd member of %s follows another leader than the others", name)
	case etcd.Learner:
		return fmt.Sprintf("the etcd member of %s is a learner", name)
	case len(etcd.Errors) > 0:
		return fmt.Sprintf("the etcd member of %s reports %s", name, strings.Join(etcd.Errors, ", "))
	case len(etcd.Alarms) > 0:
		return "etcd has an alarm: " + strings.Join(etcd.Alarms, ", ")
	case !slices.Equal(ids(etcd.Members), ids(reference.Members)):
		return fmt.Sprintf("the etcd member of %s knows other members than the others", name)
	}
	return ""
}

func membershipTrouble(members []talos.EtcdMember, controlPlanes int) string {
	for _, member := range members {
		switch {
		case !member.Started:
			return fmt.Sprintf("etcd member %s has not started", memberName(member))
		case member.Learner:
			return fmt.Sprintf("etcd member %s is a learner", memberName(member))
		}
	}
	if len(members) != controlPlanes {
		return fmt.Sprintf("etcd has %d members and the cluster %d approved control planes", len(members), controlPlanes)
	}
	return ""
}

func memberName(member talos.EtcdMember) string {
	return cmp.Or(member.Hostname, fmt.Sprintf("%016x", member.ID))
}

func ids(members []talos.EtcdMember) []uint64 {
	list := make([]uint64, 0, len(members))
	for _, member := range members {
		list = append(list, member.ID)
	}
	slices.Sort(list)
	return list
}

func controlPlanesReady(in Input) string {
	if in.Machine.Spec.Role != v1alpha1.ControlPlaneRole || in.View.NodesTrouble != "" {
		return ""
	}
	for _, machine := range controlPlanes(in.Machines) {
		if machine.Name == in.Machine.Name {
			continue
		}
		if node, ok := in.View.Nodes[machine.Status.NodeName]; !ok || !node.Ready {
			return fmt.Sprintf("control plane %s is not ready", machine.Name)
		}
	}
	return ""
}

// workersWithinTheBudget counts every worker that is away, whoever took it away. The chosen machine does not count against itself, and
// one that is drained is away already: keeping it from its reboot would help nobody.
func workersWithinTheBudget(in Input) string {
	if in.Machine.Spec.Role != v1alpha1.WorkerRole || !in.Entering || in.View.NodesTrouble != "" {
		return ""
	}
	var away []string
	for _, machine := range in.Machines {
		if machine.Spec.Role != v1alpha1.WorkerRole || machine.Name == in.Machine.Name {
			continue
		}
		if why := whyAway(in, machine); why != "" {
			away = append(away, fmt.Sprintf("%s (%s)", machine.Name, why))
		}
	}
	if len(away) < in.MaxUnavailable {
		return ""
	}
	slices.Sort(away)
	return fmt.Sprintf("%d of at most %d workers are away: %s", len(away), in.MaxUnavailable, strings.Join(away, ", "))
}

// whyAway says why a worker does not count as there; nothing if it does.
func whyAway(in Input, machine *v1alpha1.TalosMachine) string {
	switch node, ok := in.View.Nodes[machine.Status.NodeName]; {
	case in.Away[machine.Name]:
		return "in hand"
	case !ok:
		return "no Node"
	case node.CordonedBy != "":
		return fmt.Sprintf("cordoned by TalosOperation %q", node.CordonedBy)
	case node.Unschedulable:
		return "cordoned"
	case !node.Ready:
		return "not ready"
	}
	return ""
}

func controlPlanes(machines []*v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.Role != v1alpha1.ControlPlaneRole
	})
}
