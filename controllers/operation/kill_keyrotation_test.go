// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/machineconfig"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/keyrotation"
	"ichor.maesh.dev/hub/providers/script"
)

// onManagement finds a call that is made on the management cluster.
func onManagement(call, subject string) findCall {
	return func(f *fleet) (*script.Script, string, string) { return f.management.Script, call, subject }
}

// keyVictims are the steps of a rotation by the unit that takes them, the key for which it does, and the calls that they make. A rotation that
// goes back is turned back as soon as an API server uses the new key.
var keyVictims = []struct {
	unit    string
	key     v1alpha1.RotatedKey
	calls   map[v1alpha1.OperationStep]findCall
	waits   []v1alpha1.OperationStep
	back    bool
	prepare func(*fleet)
}{
	{unit: "c-cp1", key: v1alpha1.ServiceAccountKey, calls: map[v1alpha1.OperationStep]findCall{
		v1alpha1.CheckingStep: toTalos("CheckConfig"), v1alpha1.ApplyingStep: toTalos("ApplyConfig"), v1alpha1.RestartingStep: toTalos("ApplyConfig"),
		v1alpha1.ProvingStep: toServer("IssueToken"),
	}, waits: []v1alpha1.OperationStep{v1alpha1.VerifyingStep}},
	{unit: "c-cp1", key: v1alpha1.SecretboxKey, calls: map[v1alpha1.OperationStep]findCall{v1alpha1.RewritingStep: toServer("RewriteAt")}},
	{unit: "Keys", key: v1alpha1.ServiceAccountKey, calls: map[v1alpha1.OperationStep]findCall{v1alpha1.GeneratingStep: onManagement("Create", "keys")}},
	{unit: "PublishKeys", key: v1alpha1.ServiceAccountKey, waits: []v1alpha1.OperationStep{v1alpha1.AwaitingCredentialsStep}, prepare: (*fleet).verifiesElsewhere},
	{unit: "RefreshTokens", key: v1alpha1.ServiceAccountKey, waits: []v1alpha1.OperationStep{v1alpha1.RefreshingStep}},
	{unit: "Snapshot", key: v1alpha1.SecretboxKey, calls: map[v1alpha1.OperationStep]findCall{
		v1alpha1.SnapshottingStep: func(f *fleet) (*script.Script, string, string) { return f.snapshots.Script, "Take", "snapshot" },
	}},
	{unit: "Rewrite", key: v1alpha1.SecretboxKey, calls: map[v1alpha1.OperationStep]findCall{v1alpha1.RewritingStep: rewriting}},
	{unit: "Bundle", key: v1alpha1.SecretboxKey, calls: map[v1alpha1.OperationStep]findCall{v1alpha1.RenewingStep: onManagement("Renew", "bundle")}},
	{unit: "BackRefreshTokens", key: v1alpha1.ServiceAccountKey, waits: []v1alpha1.OperationStep{v1alpha1.RefreshingStep}, back: true},
	{unit: "BackRewrite", key: v1alpha1.SecretboxKey, calls: map[v1alpha1.OperationStep]findCall{v1alpha1.RewritingStep: rewriting}, back: true},
	{unit: "Bundle", key: v1alpha1.SecretboxKey, calls: map[v1alpha1.OperationStep]findCall{v1alpha1.RenewingStep: onManagement("Renew", "bundle")}, back: true},
}

// toServer finds a call to the API server of cp1.
func toServer(call string) findCall {
	return func(f *fleet) (*script.Script, string, string) { return f.kube.Script, call, f.addresses["cp1"] }
}

// rewriting finds the call that has Secrets written again.
func rewriting(f *fleet) (*script.Script, string, string) { return f.kube.Script, "Rewrite", "secrets" }

// verifiesElsewhere makes a target one whose tokens are verified by somebody who is given the new key.
func (f *fleet) verifiesElsewhere() {
	config := f.talos.ConfigOf(f.addresses["cp1"])
	config.Active = bytes.Replace(config.Active, []byte("issuerURL: https://10.0.0.1:6443"), []byte("issuerURL: https://bucket.example"), 1)
	config.Persistent = config.Active
	f.talos.Configure(f.addresses["cp1"], config)
	f.annotations = map[string]string{v1alpha1.ConfirmStageAnnotation: "PublishKeys"}
}

// turnsBack has somebody turn back the operation as soon as cp1 uses a new key.
func (f *fleet) turnsBack(ctx context.Context) {
	apply, background := f.talos.Applied, context.WithoutCancel(ctx)
	turn := sync.OnceFunc(func() {
		turnBack(background, &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "op"}})
	})
	f.talos.Applied = func(address string, data []byte) {
		defer GinkgoRecover()
		apply(address, data)
		account, err := machineconfig.ServiceAccountOf(data)
		Expect(err).NotTo(HaveOccurred())
		encryption, err := machineconfig.EncryptionOf(data)
		Expect(err).NotTo(HaveOccurred())
		if account.Issuer != string(keyBundle().Certs.K8sServiceAccount.Key) || encryption.Keys()[0].Secret != keyBundle().Secrets.SecretboxEncryptionSecret {
			turn()
		}
	}
}

var _ = func() bool {
	for _, row := range keyVictims {
		name := "kind key-rotation, " + row.unit + " of " + string(row.key)
		if row.back {
			name += ", turned back"
		}
		steps := slices.DeleteFunc(keyrotation.New(keyrotation.Options{}).Steps(), func(s kind.Step) bool {
			_, calls := row.calls[s.Name]
			return !calls && !slices.Contains(row.waits, s.Name)
		})
		addVictim(name, victim{
			steps: steps, unit: row.unit, controlPlanes: 1, calls: row.calls, spec: func() v1alpha1.TalosOperationSpec { return rotation(row.key) },
			prepare: func(ctx context.Context, f *fleet, step kind.Step) {
				f.rotates(ctx, newVersion, step.Name == v1alpha1.RestartingStep)
				if row.back {
					f.turnsBack(ctx)
				}
				if row.prepare != nil {
					row.prepare(f)
				}
			},
			expect: func(f *fleet, _ kind.Step, unknown bool) {
				if row.back {
					f.expectOldKeys()
					return
				}
				f.expectKeys(unknown, row.key)
			},
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
