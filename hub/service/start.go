// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	talosplan "ichor.maesh.dev/hub/controllers/operation/kind/talos/plan"
	"ichor.maesh.dev/hub/controllers/operation/plan"
	"ichor.maesh.dev/hub/controllers/targets"
	"ichor.maesh.dev/hub/controllers/versions"
)

// Start is an operation that somebody is about to start.
type Start struct {
	// Facts are the objects about the target, as they were when the plan was made.
	Facts targets.Facts

	// Spec is the order.
	Spec v1alpha1.TalosOperationSpec

	// Plan is what would be done; Refusals is what speaks against it.
	Plan     plan.Plan
	Refusals []plan.Refusal
}

// RefusedError means that an operation was not started since something speaks against it. Nothing was written.
type RefusedError struct{ Refusals []plan.Refusal }

// Error names every refusal.
func (e *RefusedError) Error() string {
	var lines []string
	for _, r := range e.Refusals {
		line := r.Gate + ": " + r.Message
		if r.Help != "" {
			line += " (" + r.Help + ")"
		}
		lines = append(lines, line)
	}
	return "refused: " + strings.Join(lines, "; ")
}

// PlanTalosUpgrade plans to bring the machines of a cluster to a version of Talos. The version may lack its v.
func (s *Service) PlanTalosUpgrade(ctx context.Context, cluster client.ObjectKey, version string, maxUnavailable *intstr.IntOrString) (*Start, error) {
	normal, err := versions.Normalize(version)
	if err != nil {
		return nil, err
	}
	facts, err := s.Facts(ctx, cluster)
	if err != nil {
		return nil, err
	}
	target := planners[v1alpha1.TalosKind].Narrow(targets.Declared(facts.Cluster))
	target.TalosVersion = normal
	return s.plan(facts, target, v1alpha1.TalosOperationSpec{
		ClusterName: cluster.Name, Kind: v1alpha1.TalosKind, MaxUnavailable: maxUnavailable, ExpectedTarget: &target,
	}), nil
}

// PlanReboot plans to reboot a machine.
func (s *Service) PlanReboot(ctx context.Context, machine *v1alpha1.TalosMachine, mode v1alpha1.RebootMode) (*Start, error) {
	facts, err := s.Facts(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	if err != nil {
		return nil, err
	}
	return s.plan(facts, v1alpha1.OperationTarget{}, v1alpha1.TalosOperationSpec{
		ClusterName: machine.Spec.ClusterName, Kind: v1alpha1.NodeKind,
		Node: &v1alpha1.NodeParameters{Machine: machine.Name, Action: v1alpha1.RebootAction, RebootMode: mode},
	}), nil
}

func (s *Service) plan(facts targets.Facts, target v1alpha1.OperationTarget, spec v1alpha1.TalosOperationSpec) *Start {
	start := &Start{Facts: facts, Spec: spec}
	start.Plan, start.Refusals = planners[spec.Kind].Plan(plan.Facts{
		Spec: spec, Cluster: facts.Cluster, Machines: facts.Machines, Target: target, Observed: s.Now(),
	})
	return start
}

// AtTarget says whether the spec asks for what the plan brings, and every machine that it takes is that already, as far as the
// management API knows.
func (s *Start) AtTarget() bool {
	if s.Spec.Kind != v1alpha1.TalosKind || s.Facts.Cluster.Spec.TalosVersion != s.Plan.Target.TalosVersion {
		return false
	}
	taken, _ := plan.SplitHeld(s.Facts.Approved())
	return len(taken) > 0 && !slices.ContainsFunc(taken, func(m *v1alpha1.TalosMachine) bool {
		return !talosplan.AtTarget(m.Status.TalosVersion, m.Status.SchematicID, s.Plan.Target)
	})
}

// Create starts what was planned: the spec of the target first, then the operation. Whatever speaks against it is said before
// anything is written; if the second write fails, the error says what was done, and doing it again finishes it.
func (s *Service) Create(ctx context.Context, start *Start) (*v1alpha1.TalosOperation, error) {
	if len(start.Refusals) > 0 {
		return nil, &RefusedError{Refusals: start.Refusals}
	}
	if err := s.refuseSecond(ctx, start); err != nil {
		return nil, err
	}
	op := operationFor(start)
	if err := s.Client.Create(ctx, op.DeepCopy(), client.DryRunAll); err != nil {
		return nil, fmt.Errorf("the operation would not be accepted, nothing was changed: %w", err)
	}
	wrote, err := s.declare(ctx, start)
	if err != nil {
		return nil, err
	}
	if err := s.Client.Create(ctx, op); err != nil {
		return nil, fmt.Errorf("creating the operation (%s; run the command again to finish): %w", wrote, err)
	}
	return op, nil
}

// declare writes the target's spec, if that asks for something else.
func (s *Service) declare(ctx context.Context, start *Start) (did string, err error) {
	cluster := start.Facts.Cluster.DeepCopy()
	if start.Spec.Kind != v1alpha1.TalosKind || cluster.Spec.TalosVersion == start.Plan.Target.TalosVersion {
		return "the spec of the TalosCluster was left as it is", nil
	}
	err = retry.OnError(retry.DefaultRetry, func(err error) bool { return s.onlyStatusChanged(ctx, start, cluster, err) }, func() error {
		patched := cluster.DeepCopy()
		patched.Spec.TalosVersion = start.Plan.Target.TalosVersion
		return s.Client.Patch(ctx, patched, client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return "", fmt.Errorf("writing spec.talosVersion of TalosCluster %s, nothing was started: %w", cluster.Name, err)
	}
	return fmt.Sprintf("spec.talosVersion of TalosCluster %s is %s already", cluster.Name, start.Plan.Target.TalosVersion), nil
}

// onlyStatusChanged says whether the plan still holds although somebody wrote the TalosCluster meanwhile: the hub writes status at any
// time. It reads cluster again.
func (s *Service) onlyStatusChanged(ctx context.Context, start *Start, cluster *v1alpha1.TalosCluster, err error) bool {
	if !apierrors.IsConflict(err) || s.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster) != nil {
		return false
	}
	return apiequality.Semantic.DeepEqual(cluster.Spec, start.Facts.Cluster.Spec)
}

// refuseSecond keeps people from starting what would only wait. Operations made in other ways queue.
func (s *Service) refuseSecond(ctx context.Context, start *Start) error {
	list := &v1alpha1.TalosOperationList{}
	if err := s.Client.List(ctx, list, client.InNamespace(start.Facts.Cluster.Namespace)); err != nil {
		return fmt.Errorf("looking for unfinished operations: %w", err)
	}
	for i := range list.Items {
		if op := &list.Items[i]; op.Spec.ClusterName == start.Spec.ClusterName && !op.Completed() {
			return fmt.Errorf("operation %s of cluster %s is not finished (%s): follow it with: ichor operation watch %[1]s, or delete it first",
				op.Name, op.Spec.ClusterName, op.Status.Phase)
		}
	}
	return nil
}

func operationFor(start *Start) *v1alpha1.TalosOperation {
	return &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    start.Facts.Cluster.Namespace,
			GenerateName: fmt.Sprintf("%s-%s-", start.Spec.ClusterName, start.Spec.Kind),
			Labels:       map[string]string{clusterv1.ClusterNameLabel: start.Spec.ClusterName},
		},
		Spec: start.Spec,
	}
}
