// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/providers/capi"
)

// Start is an operation that somebody is about to start.
type Start struct {
	// Order is what they asked for, with the cluster and the machine that it turned out to mean.
	Order Order

	// Facts are the objects about the target, and Observed when they were read.
	Facts    targets.Facts
	Observed time.Time

	// Spec is the order as an operation has it.
	Spec v1alpha1.TalosOperationSpec

	// Plan is what would be done; Refusals is what speaks against it.
	Plan     plan.Plan
	Refusals []plan.Refusal

	// Installation is the hub's own, where the order is about the hub; nil otherwise, or if there is none.
	Installation *v1alpha1.IchorInstallation

	// Declared is what the spec asks for now, as far as it concerns the kind.
	Declared v1alpha1.OperationTarget

	// unasked is the machine that the start asks to be removed; nil if it asks none, or that asks already.
	unasked *v1alpha1.TalosMachine

	// operations are those of the namespace.
	operations []v1alpha1.TalosOperation
}

// Plan says what an order would do, and what speaks against it. It writes nothing.
func (s *Service) Plan(ctx context.Context, order Order) (*Start, error) {
	list := &v1alpha1.TalosOperationList{}
	if err := s.Client.List(ctx, list, client.InNamespace(order.Cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	order, err := s.locate(ctx, order)
	if err != nil {
		return nil, err
	}
	facts, err := s.Facts(ctx, order.Cluster)
	if err != nil {
		return nil, err
	}
	if err := s.mine(ctx, order.Cluster); err != nil {
		return nil, err
	}
	order = withMachines(onMachine(order, facts), facts)
	facts, unasked := asking(order, facts)
	snapshot, err := targets.Snapshot(ctx, s.Client, order.Cluster.Namespace, order.Spec)
	if err != nil {
		return nil, err
	}
	installation, err := s.installation(ctx, order.Spec)
	if err != nil {
		return nil, err
	}
	planner := planners[order.Spec.Kind]
	start := &Start{
		Order: order, Facts: facts, Observed: s.Now(), Spec: order.Spec, Installation: installation, operations: list.Items,
		Declared: planner.Narrow(targets.DeclaredFor(facts.Cluster, installation)),
		unasked: unasked,
	}
	start.Plan, start.Refusals = plan.Judge(planner, plan.Facts{
		Spec: start.Spec, Cluster: facts.Cluster, Machines: facts.Machines, Target: over(start.Declared, order.Target), Observed: start.Observed,
		CAPICluster: facts.CAPICluster, Snapshot: snapshot, Installation: installation,
	})
	start.Plan.Warnings = append(start.Plan.Warnings, start.waits()...)
	if start.Plan.Target != (v1alpha1.OperationTarget{}) {
		target := start.Plan.Target
		start.Spec.ExpectedTarget = &target
	}
	start.Refusals = slices.Concat(start.unfinished(), start.Refusals)
	start.judge(start.declares())
	return start, nil
}

// judge says what the change of the spec means, and what speaks against it.
func (s *Start) judge(object client.Object) {
	c := changeOf(object, s.Plan.Target)
	s.Refusals = append(s.Refusals, c.refusals(s)...)
	s.Plan.Warnings = append(s.Plan.Warnings, c.warnings...)
}

// locate finds the cluster of an order that names a machine only.
func (s *Service) locate(ctx context.Context, order Order) (Order, error) {
	if order.Cluster.Name != "" || order.Spec.Node == nil || order.Spec.Node.Machine == "" {
		return order, nil
	}
	machine, err := s.Machine(ctx, order.Cluster.Namespace, "", order.Spec.Node.Machine)
	if err != nil {
		return Order{}, err
	}
	order.Cluster.Name, order.Spec.ClusterName = machine.Spec.ClusterName, machine.Spec.ClusterName
	return order, nil
}

// onMachine replaces the name of a Node by that of its machine. What nobody knows stays, and the plan says so.
func onMachine(order Order, facts targets.Facts) Order {
	node := order.Spec.Node
	if node == nil || node.Machine == "" || facts.Machine(node.Machine) != nil {
		return order
	}
	if found := byNode(facts.Machines, node.Machine); len(found) == 1 {
		node = node.DeepCopy()
		node.Machine, order.Spec.Node = found[0].Name, node
	}
	return order
}

// over is what is declared, with what an order asks for in its place.
func over(declared, target v1alpha1.OperationTarget) v1alpha1.OperationTarget {
	return v1alpha1.OperationTarget{
		TalosVersion:      cmp.Or(target.TalosVersion, declared.TalosVersion),
		SchematicID:       cmp.Or(target.SchematicID, declared.SchematicID),
		KubernetesVersion: cmp.Or(target.KubernetesVersion, declared.KubernetesVersion),
		CiliumVersion:     cmp.Or(target.CiliumVersion, declared.CiliumVersion),
		KubeProxy:         cmp.Or(target.KubeProxy, declared.KubeProxy),
		MachineConfigHash: cmp.Or(target.MachineConfigHash, declared.MachineConfigHash),
		IchorVersion:      cmp.Or(target.IchorVersion, declared.IchorVersion),
	}
}

// unfinished refuses a second operation on a cluster, which would only wait. Operations that are made in other ways queue.
func (s *Start) unfinished() []plan.Refusal {
	var refusals []plan.Refusal
	for _, op := range unfinished(s.operations, s.Spec.ClusterName) {
		refusals = append(refusals, plan.Refusal{
			Gate:    v1alpha1.OperationUnfinishedGate,
			Message: fmt.Sprintf("operation %s of cluster %s is not finished (%s)", op.Name, op.Spec.ClusterName, cmp.Or(op.Status.Phase, v1alpha1.OperationPending)),
			Help:    fmt.Sprintf("follow it with: ichor operation watch %s, or delete it first", op.Name),
		})
	}
	return refusals
}

// unfinished are the operations of a cluster that are not over, the oldest first.
func unfinished(operations []v1alpha1.TalosOperation, cluster string) []*v1alpha1.TalosOperation {
	var found []*v1alpha1.TalosOperation
	for i := range operations {
		if op := &operations[i]; op.Spec.ClusterName == cluster && !op.Completed() {
			found = append(found, op)
		}
	}
	slices.SortFunc(found, func(a, b *v1alpha1.TalosOperation) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// waits are why the operation would wait at first, as far as the management API knows.
func (s *Start) waits() []plan.Warning {
	cluster := s.Facts.Cluster
	available := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.AvailableCondition)
	var warnings []plan.Warning
	for _, row := range []struct {
		code    string
		waits   bool
		message string
	}{
		{plan.ClusterPausedWarning, capi.Paused(s.Facts.CAPICluster), "it is paused in the sense of Cluster API"},
		{plan.ClusterLockedWarning, cluster.Status.LockHolder != "", "its lock is held by " + cluster.Status.LockHolder},
		{plan.NotAvailableWarning, cluster.Power() == v1alpha1.ClusterRuns && available != nil && available.Status == metav1.ConditionFalse, "the hub cannot work on it; see: ichor cluster get " + cluster.Name},
	} {
		if row.waits {
			warnings = append(warnings, plan.Warning{Code: row.code, Message: fmt.Sprintf("the operation waits for cluster %s: %s", cluster.Name, row.message)})
		}
	}
	return warnings
}

// WritesSpec says whether the start changes what the spec of the cluster asks for.
func (s *Start) WritesSpec() bool { return s.Declared != s.Plan.Target }

// AtTarget says whether the spec asks for what the plan brings, and every machine that it takes is that already, as far as the
// management API knows.
func (s *Start) AtTarget() bool {
	if s.Spec.Kind == v1alpha1.IchorKind {
		return !s.WritesSpec() && s.Installation != nil && s.Installation.Status.Version == s.Plan.Target.IchorVersion
	}
	taken := s.taken()
	return !s.WritesSpec() && len(taken) > 0 && !slices.ContainsFunc(taken, func(m *v1alpha1.TalosMachine) bool {
		return !planners[s.Spec.Kind].AtTarget(m, s.Plan.Target)
	})
}

// taken are the machines that the plan takes.
func (s *Start) taken() []*v1alpha1.TalosMachine {
	return slices.DeleteFunc(s.Facts.Approved(), func(m *v1alpha1.TalosMachine) bool {
		return !slices.ContainsFunc(s.Plan.Stages, func(stage plan.Stage) bool { return slices.Contains(stage.Machines, m.Name) })
	})
}

// operation is the operation as the start makes it. With a key its name follows from that, so that it cannot be made twice.
func (s *Start) operation(user, key string) *v1alpha1.TalosOperation {
	op := &v1alpha1.TalosOperation{Spec: s.Spec}
	op.Namespace, op.GenerateName = s.Order.Cluster.Namespace, fmt.Sprintf("%s-%s-", s.Spec.ClusterName, s.Spec.Kind)
	metav1.SetMetaDataLabel(&op.ObjectMeta, clusterLabel, s.Spec.ClusterName)
	if user != "" {
		metav1.SetMetaDataAnnotation(&op.ObjectMeta, v1alpha1.CreatedByAnnotation, user)
	}
	if key != "" {
		op.Name, op.GenerateName = op.GenerateName+hashOf(key), ""
		metav1.SetMetaDataLabel(&op.ObjectMeta, v1alpha1.IdempotencyKeyLabel, key)
	}
	return op
}
