// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/keyrotation"
	"ichor.maesh.dev/hub/providers/script"
)

// onManagement finds a call that is made on the management cluster.
func onManagement(call, subject string) findCall {
	return func(f *fleet) (*script.Script, string, string) { return f.management.Script, call, subject }
}

// keyVictims are the steps of a rotation by the unit that takes them, the key for which it does, and the calls that they make.
var keyVictims = map[string]struct {
	key   v1alpha1.RotatedKey
	calls map[v1alpha1.OperationStep]findCall
	waits []v1alpha1.OperationStep
}{
	"c-cp1": {v1alpha1.ServiceAccountKey, map[v1alpha1.OperationStep]findCall{
		v1alpha1.CheckingStep: toTalos("CheckConfig"), v1alpha1.ApplyingStep: toTalos("ApplyConfig"), v1alpha1.RestartingStep: toTalos("ApplyConfig"),
		v1alpha1.ProvingStep: func(f *fleet) (*script.Script, string, string) {
			return f.kube.Script, "IssueToken", f.addresses["cp1"]
		},
	}, []v1alpha1.OperationStep{v1alpha1.VerifyingStep}},
	"Keys":          {v1alpha1.ServiceAccountKey, map[v1alpha1.OperationStep]findCall{v1alpha1.GeneratingStep: onManagement("Create", "keys")}, nil},
	"RefreshTokens": {v1alpha1.ServiceAccountKey, nil, []v1alpha1.OperationStep{v1alpha1.RefreshingStep}},
	"Snapshot": {v1alpha1.SecretboxKey, map[v1alpha1.OperationStep]findCall{
		v1alpha1.SnapshottingStep: func(f *fleet) (*script.Script, string, string) { return f.snapshots.Script, "Take", "snapshot" },
	}, nil},
	"Rewrite": {v1alpha1.SecretboxKey, map[v1alpha1.OperationStep]findCall{
		v1alpha1.RewritingStep: func(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Rewrite", "secrets" },
	}, nil},
	"Bundle": {v1alpha1.SecretboxKey, map[v1alpha1.OperationStep]findCall{v1alpha1.RenewingStep: onManagement("Renew", "bundle")}, nil},
}

var _ = func() bool {
	for unit, row := range keyVictims {
		steps := slices.DeleteFunc(keyrotation.New(keyrotation.Options{}).Steps(), func(s kind.Step) bool {
			_, calls := row.calls[s.Name]
			return !calls && !slices.Contains(row.waits, s.Name)
		})
		addVictim("kind key-rotation, "+unit, victim{
			steps: steps, unit: unit, controlPlanes: 1, calls: row.calls, spec: func() v1alpha1.TalosOperationSpec { return rotation(row.key) },
			prepare: func(ctx context.Context, f *fleet, step kind.Step) {
				f.rotates(ctx, newVersion, step.Name == v1alpha1.RestartingStep)
			},
			expect: func(f *fleet, _ kind.Step, unknown bool) { f.expectKeys(unknown, row.key) },
		})
	}
	return true
}()

// Every step of a rotation is in the matrix.
func TestEveryStepOfAKeyRotationIsKilled(t *testing.T) {
	for _, step := range keyrotation.New(keyrotation.Options{}).Steps() {
		found := false
		for _, row := range keyVictims {
			_, calls := row.calls[step.Name]
			found = found || calls || slices.Contains(row.waits, step.Name)
		}
		NewWithT(t).Expect(found).To(BeTrue(), "step %s has no row in the kill matrix", step.Name)
	}
}
