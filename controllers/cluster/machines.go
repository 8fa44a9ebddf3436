// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/cluster/identity"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/kube"
	"ichor.maesh.dev/hub/providers/talos"
)

// uuidCharacters are how many characters of a UUID tell machines of the same name apart.
const uuidCharacters = 5

// discover makes a TalosMachine of every machine that was found and answers. Those that are recorded are matched by UUID.
func (r *Reconciler) discover(ctx context.Context, facts *targets.Facts, seen probe) error {
	for _, machine := range inOrder(seen.machines) {
		if machine.trouble != "" || machine.facts.UUID == "" {
			continue
		}
		if recorded := byUUID(facts.Machines, machine.facts.UUID); recorded != nil {
			if err := r.moved(ctx, *facts, seen, recorded, machine); err != nil {
				return err
			}
			continue
		}
		if machine.facts.NodeName == "" {
			continue // It is on its way up; without the name of its Node there is none to give it.
		}
		if atAddress(facts.Machines, machine.address) != nil {
			continue // Another machine answers at a recorded address: that is for a person to sort out.
		}
		if facts.Adopted() && memberFound(*facts, seen, machine) == nil {
			continue // Only Cluster API's providers say who belongs to a cluster of theirs.
		}
		made, err := r.create(ctx, newMachine(*facts, seen, machine))
		if err != nil {
			return err
		}
		facts.Machines = append(facts.Machines, *made)
	}
	return nil
}

// create creates a TalosMachine. A name that another cluster's machine has gets some of the UUID behind it; a machine that is there
// already, and only not in the cache yet, is taken as it is.
func (r *Reconciler) create(ctx context.Context, made *v1alpha1.TalosMachine) (*v1alpha1.TalosMachine, error) {
	wanted := made.Name
	for range 2 {
		created := made.DeepCopy()
		err := r.Client.Create(ctx, created)
		if err == nil {
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("creating TalosMachine %s: %w", client.ObjectKeyFromObject(made), err)
		}
		there := &v1alpha1.TalosMachine{}
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(made), there); err != nil {
			return nil, fmt.Errorf("reading TalosMachine %s: %w", client.ObjectKeyFromObject(made), err)
		}
		if there.Spec.ClusterName == made.Spec.ClusterName && there.Spec.UUID == made.Spec.UUID {
			return there, nil
		}
		made.Name = withUUID(made.Name, made.Spec.UUID)
	}
	return nil, fmt.Errorf("no name is free for the machine with UUID %q: %s and %s are taken", made.Spec.UUID, wanted, withUUID(wanted, made.Spec.UUID))
}

func inOrder(machines map[string]found) []found {
	list := make([]found, 0, len(machines))
	for _, machine := range machines {
		list = append(list, machine)
	}
	slices.SortFunc(list, func(a, b found) int { return strings.Compare(a.address, b.address) })
	return list
}

func newMachine(facts targets.Facts, seen probe, machine found) *v1alpha1.TalosMachine {
	approval, owner := v1alpha1.Approved, facts.Owner()
	switch member := memberFound(facts, seen, machine); {
	case member != nil: // Its Machine is its approval, and takes it along when it goes.
		owner = ownedByMember(member)
	case facts.Cluster.Annotations[v1alpha1.MembersApprovedAtAnnotation] != "":
		approval = v1alpha1.ApprovalPending
	}
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       facts.Cluster.Namespace,
			Name:            machineName(facts, machine.facts),
			Labels:          map[string]string{clusterv1.ClusterNameLabel: facts.Cluster.Name},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterName: facts.Cluster.Name, Role: machine.role, Address: machine.address, UUID: machine.facts.UUID, Approval: approval,
		},
	}
}

// machineName is <cluster>-<node name>, lower case and with dashes for dots, and some of the UUID if that name is taken.
func machineName(facts targets.Facts, machine talos.Machine) string {
	label := identity.Label(machine.NodeName)
	if label == "" {
		return withUUID(facts.Cluster.Name, machine.UUID)
	}
	name := facts.Cluster.Name + "-" + label
	if facts.Machine(name) != nil {
		return withUUID(name, machine.UUID)
	}
	return name
}

func withUUID(name, uuid string) string {
	return name + "-" + strings.ToLower(uuid[:min(uuidCharacters, len(uuid))])
}

func byUUID(machines []v1alpha1.TalosMachine, uuid string) *v1alpha1.TalosMachine {
	for i := range machines {
		if machines[i].Spec.UUID == uuid {
			return &machines[i]
		}
	}
	return nil
}

func atAddress(machines []v1alpha1.TalosMachine, address string) *v1alpha1.TalosMachine {
	for i := range machines {
		if machines[i].Spec.Address == address {
			return &machines[i]
		}
	}
	return nil
}

// record writes what was seen of each machine into its status, where that changed.
func (r *Reconciler) record(ctx context.Context, facts *targets.Facts, seen probe) error {
	for i := range facts.Machines {
		machine := &facts.Machines[i]
		before := machine.DeepCopy()
		describe(machine, seen)
		describeMember(machine, *facts, seen)
		joins := hasJoined(machine)
		setJoined(machine, joins)
		setRemoved(machine)
		if !apiequality.Semantic.DeepEqual(before.Status, machine.Status) {
			if err := r.Client.Status().Patch(ctx, machine, client.MergeFrom(before)); err != nil {
				return fmt.Errorf("writing status of TalosMachine %s: %w", client.ObjectKeyFromObject(machine), err)
			}
		}
		if joins {
			if err := r.markJoined(ctx, machine); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasJoined says whether a machine that was to join works as one of the cluster by now.
func hasJoined(machine *v1alpha1.TalosMachine) bool {
	return machine.Joining() && meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.MachineReadyCondition)
}

// setJoined says how far a machine is that was asked to join.
func setJoined(machine *v1alpha1.TalosMachine, joins bool) {
	switch {
	case machine.Spec.Join == nil:
		meta.RemoveStatusCondition(&machine.Status.Conditions, v1alpha1.MachineJoinedCondition)
	case joins || !machine.Joining():
		setMachine(machine, v1alpha1.MachineJoinedCondition, metav1.ConditionTrue, v1alpha1.MachineJoinedReason, "")
	case machine.Spec.Approval != v1alpha1.Approved:
		setMachine(machine, v1alpha1.MachineJoinedCondition, metav1.ConditionFalse, v1alpha1.MachineToApproveReason, "let it join with: ichor machine approve "+machine.Name)
	default:
		setMachine(machine, v1alpha1.MachineJoinedCondition, metav1.ConditionFalse, v1alpha1.MachineJoiningReason, "an operation makes it join: ichor node join "+machine.Name)
	}
}

// setRemoved shows that a machine is asked to be removed. Nothing but an operation does that, which somebody starts who may.
func setRemoved(machine *v1alpha1.TalosMachine) {
	if machine.Spec.Removal == nil {
		meta.RemoveStatusCondition(&machine.Status.Conditions, v1alpha1.MachineRemovedCondition)
		return
	}
	setMachine(machine, v1alpha1.MachineRemovedCondition, metav1.ConditionFalse, v1alpha1.MachineRemovingReason, "an operation removes it: ichor machine remove "+machine.Name)
}

// markJoined records that a machine has joined. From then on it counts as one of the cluster, whatever becomes of its status.
func (r *Reconciler) markJoined(ctx context.Context, machine *v1alpha1.TalosMachine) error {
	before := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.JoinedAtAnnotation, r.Clock.Now().UTC().Format(time.RFC3339))
	if err := r.Client.Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("recording that TalosMachine %s has joined: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}

func describe(machine *v1alpha1.TalosMachine, seen probe) {
	machine.Status.ObservedGeneration = machine.Generation
	now, asked := seen.machines[machine.Spec.Address]
	switch {
	case !asked || now.trouble != "":
		setMachine(machine, v1alpha1.MachineReadyCondition, metav1.ConditionUnknown, v1alpha1.MachineNotReachableReason, now.trouble)
		if meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.IdentityConfirmedCondition) == nil {
			setMachine(machine, v1alpha1.IdentityConfirmedCondition, metav1.ConditionUnknown, v1alpha1.NotYetObservedReason, "")
		}
	case now.facts.UUID != machine.Spec.UUID:
		message := fmt.Sprintf("a machine with UUID %q answers at %s", now.facts.UUID, machine.Spec.Address)
		setMachine(machine, v1alpha1.IdentityConfirmedCondition, metav1.ConditionFalse, v1alpha1.IdentityMismatchReason, message)
		setMachine(machine, v1alpha1.MachineReadyCondition, metav1.ConditionUnknown, v1alpha1.MachineNotReachableReason, message)
	default:
		setMachine(machine, v1alpha1.IdentityConfirmedCondition, metav1.ConditionTrue, v1alpha1.IdentityConfirmedReason, "")
		describeAnswering(machine, now, nodeNamed(seen.nodes, now.facts.NodeName), seen.kubeTrouble)
	}
}

func describeAnswering(machine *v1alpha1.TalosMachine, now found, node *kube.Node, kubeTrouble string) {
	status := &machine.Status
	status.NodeName, status.TalosVersion, status.BootID = now.facts.NodeName, now.facts.Version, now.facts.BootID
	status.SchematicID, status.Platform = now.facts.SchematicID, now.facts.Platform
	status.SecureBoot = v1alpha1.SecureBootDisabled
	if now.facts.SecureBoot {
		status.SecureBoot = v1alpha1.SecureBootEnabled
	}
	if now.etcd != nil {
		status.EtcdMemberID = fmt.Sprintf("%x", now.etcd.MemberID)
	}
	if node != nil {
		status.KubeletVersion = node.KubeletVersion
	}
	describeConfig(machine, now.config)
	if missing := notReady(now, node, kubeTrouble); missing != "" {
		setMachine(machine, v1alpha1.MachineReadyCondition, metav1.ConditionFalse, v1alpha1.MachineNotReadyReason, missing)
		return
	}
	setMachine(machine, v1alpha1.MachineReadyCondition, metav1.ConditionTrue, v1alpha1.MachineReadyReason, "")
}

func notReady(now found, node *kube.Node, kubeTrouble string) string {
	switch {
	case now.facts.Stage != talos.StageRunning:
		return fmt.Sprintf("the machine is in stage %q", now.facts.Stage)
	case !now.facts.Ready:
		return "not ready: " + strings.Join(now.facts.Unmet, ", ")
	case kubeTrouble != "":
		return "the Kubernetes API cannot be read: " + kubeTrouble
	case node == nil:
		return fmt.Sprintf("there is no Node %q", now.facts.NodeName)
	case !node.Ready:
		return "the Node is not Ready"
	case now.role == v1alpha1.ControlPlaneRole && now.etcd == nil:
		return "etcd does not answer: " + now.etcdTrouble
	case now.etcd != nil && now.etcd.Learner:
		return "the etcd member is a learner"
	}
	return ""
}

func nodeNamed(nodes []kube.Node, name string) *kube.Node {
	for i := range nodes {
		if strings.EqualFold(nodes[i].Name, name) {
			return &nodes[i]
		}
	}
	return nil
}

func setMachine(machine *v1alpha1.TalosMachine, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: machine.Generation,
	})
}

// unmatched says which Node or etcd member has no machine. Nothing means that all have one.
func unmatched(facts targets.Facts, seen probe) string {
	machines := facts.Machines
	for _, node := range seen.nodes {
		if strangeNode(facts, node) {
			continue // Condition MachinesDiscovered names it.
		}
		if node.RunsTalos() && !slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool { return strings.EqualFold(m.Status.NodeName, node.Name) }) {
			return fmt.Sprintf("Node %q has no machine", node.Name)
		}
	}
	if len(seen.unaddressed) > 0 {
		return fmt.Sprintf("machine %q has no address of its own: all that it tells are shared, or of one link only", seen.unaddressed[0])
	}
	for _, machine := range inOrder(seen.machines) {
		if machine.trouble != "" && atAddress(machines, machine.address) == nil {
			return fmt.Sprintf("the machine at %s is not known and does not answer: %s", machine.address, machine.trouble)
		}
		if machine.etcd == nil {
			continue
		}
		for _, member := range machine.etcd.Members {
			id := fmt.Sprintf("%x", member.ID)
			if !slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool { return m.Status.EtcdMemberID == id }) {
				return fmt.Sprintf("etcd member %q (%s) has no machine", member.Hostname, id)
			}
		}
	}
	return ""
}
