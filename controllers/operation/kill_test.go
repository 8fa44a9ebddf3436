// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ichor.maesh.dev/hub/api/v1alpha1"
	"ichor.maesh.dev/hub/controllers/operation/kind"
	"ichor.maesh.dev/hub/providers/script"
	"ichor.maesh.dev/hub/providers/talos"
)

// victim is a kind, or an action of one, that a hub is killed at.
type victim struct {
	// steps are those that an operation of this spec goes through.
	steps []kind.Step
	spec  func() v1alpha1.TalosOperationSpec

	// unit is the unit at whose steps the hub is killed; nothing is the machine c-cp1.
	unit string

	// controlPlanes is how many there are; nothing is three.
	controlPlanes int

	// calls finds the call that a step makes to the unit. A step that makes one and is not here fails the matrix.
	calls map[v1alpha1.OperationStep]findCall

	// prepare makes of a target with control planes and a worker one on which a step is taken.
	prepare func(ctx context.Context, f *fleet, step kind.Step)

	// expect looks at what was done once the operation is over. unknown says that the first hub may have made the call of the step before
	// it was killed.
	expect func(f *fleet, step kind.Step, unknown bool)
}

// findCall finds a call of a step.
type findCall func(f *fleet) (s *script.Script, call, subject string)

// toTalos and toKube find the call that a step makes to cp1.
func toTalos(call string) findCall {
	return func(f *fleet) (*script.Script, string, string) { return f.talos.Script, call, f.addresses["cp1"] }
}

func toKube(call string) findCall {
	return func(f *fleet) (*script.Script, string, string) { return f.kube.Script, call, "cp1" }
}

// victims are the rows of the matrix. Each kind adds its own, in a file of its own.
var victims = map[string]victim{}

// patience is how long an operation of the matrix may take: some have a dozen stages, and machines that run tests do much else.
const patience = 2 * time.Minute

// addVictim adds a row.
func addVictim(name string, v victim) bool {
	v.unit = cmp.Or(v.unit, "c-cp1")
	victims[name] = v
	return true
}

// The matrix has a row for every step that an executor declares, so that no step can exist without one: killed before the claim is
// written, after it is and before the call arrives, and after the call has taken effect and before anybody knows. A hub that loses its
// leadership goes on running, and finds out only when it asks.
var _ = Describe("A hub that is killed (B16, E6)", func() {
	for name, v := range victims {
		for _, step := range v.steps {
			It(fmt.Sprintf("goes on: %s, %s not claimed yet", name, step.Name), func(ctx SpecContext) {
				killBeforeTheClaim(ctx, v, step)
			})
			if step.Waits {
				continue
			}
			It(fmt.Sprintf("goes on: %s, %s claimed and not called", name, step.Name), func(ctx SpecContext) {
				killAndGoOn(ctx, v, step, (*script.Script).HangBefore)
			})
			It(fmt.Sprintf("goes on: %s, %s called and not recorded", name, step.Name), func(ctx SpecContext) {
				killAndGoOn(ctx, v, step, (*script.Script).HangAfter)
			})
			It(fmt.Sprintf("does nothing more when another leads: %s, %s claimed and not called", name, step.Name), func(ctx SpecContext) {
				replaceAndGoOn(ctx, v, step, false)
			})
			It(fmt.Sprintf("does nothing more when another leads: %s, %s called and not recorded", name, step.Name), func(ctx SpecContext) {
				replaceAndGoOn(ctx, v, step, true)
			})
		}
	}

	It("goes on while a machine is away, and while it proves itself", func(ctx SpecContext) {
		f := newFleet(ctx, 3, 0)
		rebooted := f.talos.Rebooted
		f.talos.Rebooted = func(address string, now talos.Machine) {
			rebooted(address, now)
			f.talos.Silence(address, true)
		}
		first := f.startHub()
		op := f.create(ctx, "re", reboot("c-cp1"))
		Eventually(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.RebootingStep))
		Eventually(func() []string { return f.calls("Reboot") }).Should(HaveLen(1))
		first.kill()

		second := f.startHub()
		Consistently(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.RebootingStep))
		f.talos.Change(f.addresses["cp1"], func(m *talos.Machine, _ *talos.Etcd) { m.Stage, m.Ready = "booting", false })
		f.talos.Silence(f.addresses["cp1"], false)
		Eventually(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.VerifyingStep))
		second.kill()

		f.startHub()
		Consistently(now(ctx, op)).Should(stepOf("c-cp1", v1alpha1.VerifyingStep))
		f.talos.Change(f.addresses["cp1"], func(m *talos.Machine, _ *talos.Etcd) { m.Stage, m.Ready = talos.StageRunning, true })
		Eventually(now(ctx, op)).Should(beCompleted())
		Expect(f.calls("Reboot")).To(Equal([]string{"Reboot cp1"}))
		Expect(f.kube.Get("cp1")).To(HaveField("Unschedulable", false))
	})
})

// unitOf is the unit of an operation: a machine, or a stage without machines.
func unitOf(op *v1alpha1.TalosOperation, name string) *v1alpha1.UnitStatus {
	for i := range op.Status.Units {
		if op.Status.Units[i].Name == name {
			return &op.Status.Units[i]
		}
	}
	return op.Machine(name)
}

func stepOf(machine string, step v1alpha1.OperationStep) OmegaMatcher {
	return WithTransform(func(o *v1alpha1.TalosOperation) v1alpha1.OperationStep {
		if unit := o.Machine(machine); unit != nil {
			return unit.Step
		}
		return ""
	}, Equal(step))
}

func phaseOf(machine string, phase v1alpha1.UnitPhase) OmegaMatcher {
	return WithTransform(func(o *v1alpha1.TalosOperation) v1alpha1.UnitPhase {
		if unit := o.Machine(machine); unit != nil {
			return unit.Phase
		}
		return ""
	}, Equal(phase))
}

// fleet makes a target on which the unit goes through a step.
func (v victim) fleet(ctx context.Context, step kind.Step) *fleet {
	f := newFleet(ctx, cmp.Or(v.controlPlanes, 3), 1)
	if v.prepare != nil {
		v.prepare(ctx, f, step)
	}
	return f
}

// killAndGoOn kills the hub at a call and starts another one. Whatever happened, no machine reboots twice, and a system whose
// installation was recorded is not installed again.
func killAndGoOn(ctx context.Context, v victim, step kind.Step, hang func(*script.Script, string, string) *script.Stop) {
	GinkgoHelper()
	f := v.fleet(ctx, step)
	find, ok := v.calls[step.Name]
	Expect(ok).To(BeTrue(), "step %s has no row in the kill matrix", step.Name)
	stop := hang(find(f))
	first := f.startHub()
	op := f.create(ctx, "op", v.spec())
	Eventually(stop.Reached, patience).Should(BeClosed())
	first.kill()

	f.startHub()
	Eventually(now(ctx, op), patience).Should(beCompleted())
	v.expect(f, step, true)
}

// killBeforeTheClaim kills the hub after it has decided to take a step of cp1, and before anybody can know that.
func killBeforeTheClaim(ctx context.Context, v victim, step kind.Step) {
	GinkgoHelper()
	f := v.fleet(ctx, step)
	stalled := &stalledClaim{unit: v.unit, step: step.Name, reached: make(chan struct{})}
	f.client = func(c client.Client) client.Client { return &stalledClient{Client: c, stalled: stalled} }
	first := f.startHub()
	op := f.create(ctx, "op", v.spec())
	Eventually(stalled.reached, patience).Should(BeClosed())
	first.kill()

	f.client = nil
	f.startHub()
	Eventually(now(ctx, op), patience).Should(beCompleted())
	v.expect(f, step, false)
}

// stalledClaim keeps the claim of a step from being written, until the process ends.
type stalledClaim struct {
	unit    string
	step    v1alpha1.OperationStep
	once    sync.Once
	reached chan struct{}
}

type stalledClient struct {
	client.Client

	stalled *stalledClaim
}

// Status implements client.Client.
func (c *stalledClient) Status() client.SubResourceWriter {
	return &stalledStatus{SubResourceWriter: c.Client.Status(), stalled: c.stalled}
}

type stalledStatus struct {
	client.SubResourceWriter

	stalled *stalledClaim
}

// Update implements client.SubResourceWriter.
func (s *stalledStatus) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	if op, ok := object.(*v1alpha1.TalosOperation); ok {
		if unit := unitOf(op, s.stalled.unit); unit != nil && unit.Step == s.stalled.step && unit.Outcome == nil {
			s.stalled.once.Do(func() { close(s.stalled.reached) })
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return s.SubResourceWriter.Update(ctx, object, options...)
}

// replaceAndGoOn freezes the hub at the call of a step, lets another one do the work, and then lets the first one go on.
func replaceAndGoOn(ctx context.Context, v victim, step kind.Step, after bool) {
	GinkgoHelper()
	f := v.fleet(ctx, step)
	kindOf := v.spec().Kind
	plain := f.executors[kindOf]
	frozen := &frozenCall{Executor: plain, unit: v.unit, step: step.Name, after: after, reached: make(chan struct{}), released: make(chan struct{})}
	f.executors = map[v1alpha1.OperationKind]kind.Executor{kindOf: frozen}
	first := f.startHub()
	op := f.create(ctx, "op", v.spec())
	Eventually(frozen.reached, patience).Should(BeClosed())

	f.executors = map[v1alpha1.OperationKind]kind.Executor{kindOf: plain}
	f.startHub()
	Eventually(now(ctx, op), patience).Should(beCompleted())
	made := f.calls()
	close(frozen.released)
	Eventually(frozen.ended).Should(BeTrue())
	Eventually(first.fenced).Should(BeClosed())
	Expect(f.calls()).To(Equal(made), "what was held up arrives nowhere")
	v.expect(f, step, after)
}

// frozenCall is an executor in a process that stops for a while, as in a long garbage collection, and does not hear of anything.
type frozenCall struct {
	kind.Executor

	unit              string
	step              v1alpha1.OperationStep
	after             bool
	once              sync.Once
	reached, released chan struct{}
	over              atomic.Bool
}

// Do implements kind.Executor.
func (c *frozenCall) Do(ctx context.Context, scope kind.Scope, unit kind.Unit, step v1alpha1.OperationStep) (outcome kind.Outcome, err error) {
	do := func() { outcome, err = c.Executor.Do(ctx, scope, unit, step) }
	if unit.Status.Name != c.unit || step != c.step {
		do()
		return outcome, err
	}
	if c.after {
		do()
	}
	c.once.Do(func() { close(c.reached) })
	<-c.released
	if !c.after {
		do()
	}
	c.over.Store(true)
	return outcome, err
}

func (c *frozenCall) ended() bool { return c.over.Load() }
