// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/controllers/operation/kind/carotation"
	"ichor.maesh.dev/hub/providers/script"
)

// toVault finds a call that is about Secrets.
func toVault(call, subject string) findCall {
	return func(f *fleet) (*script.Script, string, string) { return f.vault.Script, call, subject }
}

// rotationVictims are the steps of a rotation of one authority by the unit that takes them, and the calls that they make. The prefix of a stage is
// the authority.
var rotationVictims = map[string]struct {
	waits []v1alpha1.OperationStep
	calls map[v1alpha1.OperationStep]func(of v1alpha1.CAAuthority) findCall
}{
	"Prepare": {calls: map[v1alpha1.OperationStep]func(v1alpha1.CAAuthority) findCall{
		v1alpha1.GeneratingStep: func(v1alpha1.CAAuthority) findCall { return toVault("Create", "rotation") },
	}},
	"c-cp1": {
		waits: []v1alpha1.OperationStep{v1alpha1.VerifyingStep},
		calls: map[v1alpha1.OperationStep]func(v1alpha1.CAAuthority) findCall{
			v1alpha1.ApplyingStep: func(v1alpha1.CAAuthority) findCall { return toTalos("ApplyConfig") },
		},
	},
	"Trust": {calls: map[v1alpha1.OperationStep]func(v1alpha1.CAAuthority) findCall{
		v1alpha1.TrustingStep: func(of v1alpha1.CAAuthority) findCall { return toVault("HandOver", string(of)) },
	}},
	"AwaitingCredentials": {
		waits: []v1alpha1.OperationStep{v1alpha1.AwaitingCredentialsStep},
		calls: map[v1alpha1.OperationStep]func(v1alpha1.CAAuthority) findCall{
			v1alpha1.HandingOverStep: func(of v1alpha1.CAAuthority) findCall { return toVault("HandOverAuthority", string(of)) },
			v1alpha1.CatchingUpStep: func(v1alpha1.CAAuthority) findCall {
				return func(f *fleet) (*script.Script, string, string) { return f.talos.Script, "ApplyConfig", lateAddress }
			},
		},
	},
	"Finish": {calls: map[v1alpha1.OperationStep]func(v1alpha1.CAAuthority) findCall{
		v1alpha1.FinishingStep: func(v1alpha1.CAAuthority) findCall { return toVault("Delete", "rotation") },
	}},
}

// lateAddress is where a machine answers that joins late.
const lateAddress = "10.0.1.9"

var _ = addRotationVictims()

func addRotationVictims() bool {
	all := carotation.New(carotation.Options{}).Steps()
	for _, of := range []v1alpha1.CAAuthority{talosCA, kubernetesCA} {
		for name, row := range rotationVictims {
			unit, calls := name, map[v1alpha1.OperationStep]findCall{}
			if name == "Trust" || name == "AwaitingCredentials" {
				unit = string(of) + name
			}
			for step, find := range row.calls {
				calls[step] = find(of)
			}
			addVictim("kind ca-rotation, "+string(of)+", unit "+name, victim{
				steps: slices.DeleteFunc(slices.Clone(all), func(s kind.Step) bool { return calls[s.Name] == nil && !slices.Contains(row.waits, s.Name) }),
				spec:  rotates(of), unit: unit, controlPlanes: 1, calls: calls,
				prepare: func(ctx context.Context, f *fleet, step kind.Step) { prepareRotation(ctx, f, of, step) },
				expect:  func(f *fleet, step kind.Step, unknown bool) { expectRotatedOnce(f, of, step, unknown) },
			})
		}
	}
	return true
}

// prepareRotation makes a target whose people have the new credentials before they are there. A machine joins late where a step is about such.
func prepareRotation(ctx context.Context, f *fleet, of v1alpha1.CAAuthority, step kind.Step) {
	GinkgoHelper()
	f.hasAuthorities(ctx, "v1.14.1")
	f.annotations = confirmed(of)
	if step.Name == v1alpha1.CatchingUpStep {
		background := context.WithoutCancel(ctx)
		f.vault.handing = sync.OnceFunc(func() {
			defer GinkgoRecover()
			f.joins(background, "w9", lateAddress, "v1.14.1", v1alpha1.Approved)
		})
		f.addresses["w9"] = lateAddress
		DeferCleanup(func() { f.vault.handing = nil })
	}
}

// expectRotatedOnce expects every machine to know the new authority alone, to have been given three configs and no more, and no machine to have
// another new authority than the others: that is made once.
func expectRotatedOnce(f *fleet, of v1alpha1.CAAuthority, step kind.Step, unknown bool) {
	GinkgoHelper()
	f.expectRotated(context.Background(), of)
	for name, times := range f.perMachine() {
		most := 3
		if unknown && (step.Name == v1alpha1.ApplyingStep || step.Name == v1alpha1.CatchingUpStep) {
			most++
		}
		Expect(times).To(BeNumerically("<=", most), name)
	}
	for name := range f.addresses {
		Expect(f.newAuthority(of, name)).To(Equal(f.newAuthority(of, "cp1")), name)
	}
}

// No step of the kind is without a row.
func TestEveryStepOfARotationIsKilled(t *testing.T) {
	g := NewWithT(t)
	for _, step := range carotation.New(carotation.Options{}).Steps() {
		rows := 0
		for _, row := range rotationVictims {
			if _, calls := row.calls[step.Name]; calls != step.Waits && (calls || slices.Contains(row.waits, step.Name)) {
				rows++
			}
		}
		g.Expect(rows).To(Equal(1), string(step.Name))
	}
}

// killedCall is an executor in a process that is killed at a call of a stage: before it is made, or after.
type killedCall struct {
	kind.Executor

	stage, unit string
	step        v1alpha1.OperationStep
	after       bool
	once        sync.Once
	reached     chan struct{}
}

// Do implements kind.Executor.
func (c *killedCall) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (kind.Outcome, error) {
	if unit.Status.Stage != c.stage || unit.Status.Name != c.unit || step != c.step {
		return c.Executor.Do(ctx, scope, unit, step)
	}
	if c.after {
		if outcome, err := c.Executor.Do(ctx, scope, unit, step); err != nil {
			return outcome, err
		}
	}
	c.once.Do(func() { close(c.reached) })
	<-ctx.Done()
	return kind.Outcome{}, ctx.Err()
}

// The steps of a way back are those of the way there; the stages are others.
var _ = Describe("A hub that is killed while it turns a rotation back", func() {
	for _, row := range []struct {
		of          v1alpha1.CAAuthority
		stage, unit string
		step        v1alpha1.OperationStep
	}{
		{talosCA, "TalosBackTrust", "TalosBackTrust", v1alpha1.TrustingStep},
		{talosCA, "TalosBackSwap", "c-cp1", v1alpha1.ApplyingStep},
		{talosCA, "TalosBackCredentials", "TalosBackCredentials", v1alpha1.TrustingStep},
		{talosCA, "TalosBackAccept", "c-cp1", v1alpha1.ApplyingStep},
		{kubernetesCA, "KubernetesBackAcceptWorkers", "c-w1", v1alpha1.ApplyingStep},
	} {
		for _, after := range []bool{false, true} {
			It(fmt.Sprintf("goes on: stage %s, called: %t", row.stage, after), func(ctx SpecContext) {
				f := newFleet(ctx, 1, 1)
				f.hasAuthorities(ctx, "v1.14.1")
				plain := f.executors[v1alpha1.CARotationKind]
				killed := &killedCall{Executor: plain, stage: row.stage, unit: row.unit, step: row.step, after: after, reached: make(chan struct{})}
				f.executors = map[v1alpha1.OperationKind]kind.Executor{v1alpha1.CARotationKind: killed}
				first := f.startHub()
				op := f.create(ctx, "op", rotates(row.of)())
				Eventually(now(ctx, op)).Should(waitingFor("CredentialsConfirmed", Not(BeEmpty())))
				turnBack(ctx, op)
				Eventually(killed.reached).Should(BeClosed())
				first.kill()

				f.executors = map[v1alpha1.OperationKind]kind.Executor{v1alpha1.CARotationKind: plain}
				f.startHub()
				Eventually(now(ctx, op), patience).Should(beCompleted())
				f.expectUnchanged(ctx, row.of)
				for name, times := range f.perMachine() {
					Expect(times).To(BeNumerically("<=", 4), name)
				}
			})
		}
	}
})
