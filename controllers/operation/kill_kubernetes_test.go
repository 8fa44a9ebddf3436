// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/kubernetes"
	"ichor.maesh.dev/hub/providers/script"
)

// toCluster finds a call that is about the whole cluster.
func toCluster(call string) findCall {
	return func(f *fleet) (*script.Script, string, string) { return f.kube.Script, call, "" }
}

// kubernetesVictims are the steps of an upgrade of Kubernetes by the unit that takes them, and the calls that they make.
var kubernetesVictims = map[string]struct {
	waits []v1alpha1.OperationStep
	calls map[v1alpha1.OperationStep]findCall
}{
	"Check": {calls: map[v1alpha1.OperationStep]findCall{v1alpha1.CheckingStep: toCluster("DiffManifests")}},
	"Snapshot": {calls: map[v1alpha1.OperationStep]findCall{
		v1alpha1.SnapshottingStep: func(f *fleet) (*script.Script, string, string) { return f.snapshots.Script, "Take", "snapshot" },
	}},
	"c-cp1": {
		waits: []v1alpha1.OperationStep{v1alpha1.VerifyingStep},
		calls: map[v1alpha1.OperationStep]findCall{
			v1alpha1.PullingStep: toTalos("PullImage"), v1alpha1.EvacuatingStep: toKube("Annotate"), v1alpha1.DrainingStep: toKube("Drain"),
			v1alpha1.ApplyingStep: toTalos("ApplyConfig"), v1alpha1.UncordoningStep: toKube("Uncordon"),
		},
	},
	"Manifests": {
		waits: []v1alpha1.OperationStep{v1alpha1.RollingOutStep},
		calls: map[v1alpha1.OperationStep]findCall{v1alpha1.SyncingStep: toCluster("ApplyManifests")},
	},
}

var _ = addKubernetesVictims()

// addKubernetesVictims adds a row for each unit. One control plane goes through every stage, and tells as much as three.
func addKubernetesVictims() bool {
	for unit, row := range kubernetesVictims {
		taken := append(slices.Collect(maps.Keys(row.calls)), row.waits...)
		steps := slices.DeleteFunc(kubernetes.New(nil, nil, nil).Steps(), func(s kind.Step) bool { return !slices.Contains(taken, s.Name) })
		addVictim("kind kubernetes, unit "+unit, victim{
			steps: steps, spec: upgradeKubernetes, unit: unit, controlPlanes: 1, calls: row.calls,
			prepare: func(ctx context.Context, f *fleet, step kind.Step) {
				f.runsKubernetes(ctx, oldKubernetes, newKubernetes)
				f.backedUp(ctx)
				prepareReboot(ctx, f, step)
			},
			expect: func(f *fleet, step kind.Step, unknown bool) {
				f.expectKubernetes(newKubernetes)
				if step.Name != v1alpha1.SnapshottingStep || !unknown {
					Expect(f.snapshots.Calls()).To(HaveLen(1))
				}
			},
		})
	}
	return true
}

// No step of the kind is without a row.
func TestEveryStepOfKubernetesIsKilled(t *testing.T) {
	g := NewWithT(t)
	for _, step := range kubernetes.New(nil, nil, nil).Steps() {
		rows := 0
		for _, row := range kubernetesVictims {
			if _, calls := row.calls[step.Name]; calls != step.Waits && (calls || slices.Contains(row.waits, step.Name)) {
				rows++
			}
		}
		g.Expect(rows).To(Equal(1), string(step.Name))
	}
}
